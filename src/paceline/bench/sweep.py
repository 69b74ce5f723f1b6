"""The grid of `--sweep`: `k=1:8 draft=lookup,suffix temperature=0,0.7`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

from paceline.build import check_window
from paceline.build.drafts import Spec
from paceline.build.verify import make_verifier
from paceline.build.windows import make_window
from paceline.errors import PacelineError, unknown

Cell = Mapping[str, Any]
MOST = 512  # cells


def parse(texts: Sequence[str]) -> list[Cell]:
    """The cells of a grid: all combinations of the axes, the last one changing fastest; a single
    empty one where there is no axis. An axis is NAME=VALUE,VALUE,…; several stand in one text, with
    spaces between, or in several. Raises PacelineError for what means nothing."""
    axes: dict[str, list[Any]] = {}
    for word in " ".join(texts).split():
        name, sign, values = word.partition("=")
        if name not in _AXES:
            raise unknown("axis of --sweep", name, _AXES)
        if not sign or not all(values.split(",")):
            raise PacelineError(f"--sweep {word}: write {name}= and values with commas between")
        if name in axes:
            raise PacelineError(f"--sweep has {name} twice: write all its values in one")
        each = [value for text in values.split(",") for value in _AXES[name](text)]
        axes[name] = list(dict.fromkeys(each))
    if math.prod(map(len, axes.values())) > MOST:
        raise PacelineError(f"--sweep has more than {MOST} cells; leave some out")
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def label(cell: Cell) -> str:
    """`draft=lookup:5 k=4`; "" for the cell of no grid."""
    return " ".join(f"{name}={value}" for name, value in cell.items())


def _k(text: str) -> list[int]:
    low, colon, high = text.partition(":")
    try:
        ends = int(low), int(high if colon else low)
    except ValueError:
        raise PacelineError(f"--sweep k={text}: give numbers, as in k=1:8 or k=2,4") from None
    if ends[0] > ends[1]:
        raise PacelineError(f"--sweep k={text}: the first number is the larger one")
    for k in ends:
        check_window(k)
    return list(range(ends[0], ends[1] + 1))


def _draft(text: str) -> list[str]:
    if text != "auto":
        Spec(text)
    return [text]


def _window(text: str) -> list[str]:
    make_window(text, 1)
    return [text]


def _verify(text: str) -> list[str]:
    make_verifier(text)
    return [text]


def _temperature(text: str) -> list[float]:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise PacelineError(f"--sweep temperature={text}: give numbers from 0 on")
    return [value]


_AXES: dict[str, Callable[[str], Sequence[Any]]] = {
    "draft": _draft,
    "k": _k,
    "window": _window,
    "verify": _verify,
    "temperature": _temperature,
}
