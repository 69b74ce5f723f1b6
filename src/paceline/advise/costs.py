"""What a round costs: arithmetic on measured seconds. Nothing here looks at a clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Verdict = Literal["memory-bound", "in between", "compute-bound"]


@dataclass(frozen=True)
class Passes:
    """T(n), the target's pass over n tokens of each row, and o(n), the rest of such a round
    (verification, commit), in seconds by n, from n = 1 on. `batch`: rows side by side; `context`:
    committed tokens behind which they were timed."""

    batch: int
    context: int
    target: Mapping[int, float]
    rest: Mapping[int, float]

    def seconds(self, n: int) -> float:
        """T(n) + o(n); between the sizes that were timed, and beyond them, on a line."""
        return _between(self.target, n) + _between(self.rest, n)

    @property
    def r(self) -> dict[int, float]:
        """r(n) = T(n) / T(1)."""
        return {n: t / self.target[1] for n, t in self.target.items()}


@dataclass(frozen=True)
class Roof:
    """r(n) as a roofline: `flat` up to `knee` tokens, where memory is the limit, then `slope` more
    with each token, where arithmetic is."""

    flat: float
    knee: float
    slope: float

    def __call__(self, n: float) -> float:
        return self.flat + self.slope * max(0.0, n - self.knee)


def fit(r: Mapping[int, float]) -> Roof:
    """The roofline nearest to r(n), by least squares over all knees on a grid of a quarter."""
    sizes, values = np.array(list(r), dtype=float), np.array(list(r.values()))
    best, least = Roof(float(values.mean()), float(sizes[-1]), 0.0), np.inf
    for knee in np.arange(sizes[0], sizes[-1], 0.25):
        basis = np.stack([np.ones_like(sizes), np.maximum(0.0, sizes - knee)], 1)
        (flat, slope), *_ = np.linalg.lstsq(basis, values, rcond=None)
        error = float(((basis @ np.array([flat, slope]) - values) ** 2).sum())
        if slope >= 0 and error < least - 1e-12:
            best, least = Roof(float(flat), float(knee), float(slope)), error
    return best


def verdict(r: Mapping[int, float]) -> Verdict:
    """What limits a pass of few tokens, by r(5): reading the weights, if five tokens cost less than
    two passes of one; arithmetic, if they cost three and a half or more, of five."""
    five = _between(r, 5)
    if five < 2:
        return "memory-bound"
    return "compute-bound" if five >= 3.5 else "in between"


def _between(values: Mapping[int, float], n: int) -> float:
    """The value at n, on a line between its neighbours; beyond the last, on with the last line."""
    if n in values:
        return values[n]
    sizes: Sequence[int] = sorted(values)
    if len(sizes) == 1:
        return values[sizes[0]]
    i = min(max(1, bisect_left(sizes, n)), len(sizes) - 1)
    low, high = sizes[i - 1], sizes[i]
    share = (n - low) / (high - low)
    return values[low] + share * (values[high] - values[low])
