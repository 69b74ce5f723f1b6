"""Windows by name: what stands behind `--window`. A new one is a line in `WINDOWS`.

What the adaptive window has timed and what drafts have taught it is kept in a file for each pair
and machine, so that a program that answers one prompt starts with what the last one knew.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import torch

from paceline.build.costs import time_rounds
from paceline.build.drafts import Makers
from paceline.build.models import Loaded, Note
from paceline.build.trees import Shape
from paceline.controllers.adaedl import AdaEDL
from paceline.controllers.adaptive import Adaptive
from paceline.controllers.confidence import Confidence
from paceline.controllers.cost import CostBook, between
from paceline.controllers.fixed import Fixed
from paceline.controllers.heuristic import Heuristic
from paceline.controllers.svip import SVIP
from paceline.core.protocols import Controller, Ragged
from paceline.errors import PacelineError, unknown
from paceline.models.store import beside, cache_home

ADAPTIVE = "adaptive"
_FORMAT = 2  # of the file; another number is another file
_TIMED = 64  # tokens of the largest pass that is timed; behind it, a line


def _fixed(k: int, value: str) -> Controller:
    if value:
        raise PacelineError(f"--window fixed:{value}: how many it drafts is --k {value}")
    return Fixed(k)


def _adaptive(k: int, value: str) -> Controller:
    if value:
        raise PacelineError(
            f"--window adaptive:{value}: it has no parameters; --k is its largest K"
        )
    return Adaptive(k, CostBook({}, {}))


def _heuristic(k: int, value: str) -> Controller:
    if value:
        raise PacelineError(
            f"--window heuristic:{value}: it has no parameters; --k is its largest K"
        )
    return Heuristic(k)


def _confidence(k: int, value: str) -> Controller:
    if value == "auto":
        return Confidence(k, tuned=True)
    return Confidence(k, _number("confidence", value)) if value else Confidence(k)


def _adaedl(k: int, value: str) -> Controller:
    return AdaEDL(k, _number("adaedl", value)) if value else AdaEDL(k)


def _svip(k: int, value: str) -> Controller:
    return SVIP(k, _number("svip", value)) if value else SVIP(k)


def _number(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise PacelineError(f"--window {name}:{value}: {value!r} is no number") from None


WINDOWS: dict[str, Callable[[int, str], Controller]] = {
    ADAPTIVE: _adaptive,
    "fixed": _fixed,
    "heuristic": _heuristic,
    "confidence": _confidence,
    "adaedl": _adaedl,
    "svip": _svip,
}


def make_window(text: str, k: int) -> Controller:
    """The controller called `text`, NAME or NAME:VALUE, of windows up to `k`. Raises PacelineError
    for a name or a value that means nothing."""
    name, _, value = text.partition(":")
    if name not in WINDOWS:
        raise unknown("window", text, WINDOWS)
    return WINDOWS[name](k, value)


class Tuned:
    """An adaptive window and the file that keeps what it knows. `pair`: what that depends on beside
    machine, target, K and the shape of drafts."""

    def __init__(
        self,
        k: int,
        target: Loaded,
        maker: Makers,
        shape: Shape,
        pair: Sequence[object],
        note: Note,
    ) -> None:
        model = [target.fingerprint or target.name, target.dtype, target.model.device]
        key = json.dumps([_FORMAT, *_machine(), *model, k, shape, *pair], default=str)
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        self.path = cache_home() / "windows" / f"{name}.json"
        self._ragged = isinstance(target.model, Ragged)
        empty = Adaptive(k, CostBook({}, {}), ragged=self._ragged)
        self.controller = _restored(self.path, k, self._ragged) or empty
        self._target, self._maker, self._note = target, maker, note
        self._most = 1 + max(k, shape.tokens(k))

    def prepare(self, batch: int) -> None:
        """Time what batches of up to that size cost, if nobody has yet. Where rows are not padded
        their tokens cost what as many of one row do."""
        book = self.controller.book
        if batch in book.batches:
            return
        self._note("timing passes, once, to know which windows pay")
        vocab = min(self._target.tokenizer.size, self._target.model.vocab_size)
        model, parts, most = self._target.model, self._maker.parts, self._most
        if not self._ragged:
            book.include(batch, *time_rounds(model, vocab, parts, batch, most))
            return
        time, steps = time_rounds(model, vocab, parts, 1, max(most, min(_TIMED, most * batch)))
        for rows in range(1, batch + 1):
            if rows not in book.batches:
                curve = [between(time, rows * n - 1) for n in range(1, most + 1)]
                book.include(rows, curve, steps)

    def save(self) -> None:
        """Write down what is known. What cannot be written is not missed: it is timed again."""
        new = beside(self.path, f".{os.getpid()}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new.write_text(json.dumps(self.controller.to_dict()))
            os.replace(new, self.path)
        except OSError:
            with suppress(OSError):
                new.unlink(missing_ok=True)


def _restored(path: Path, k: int, ragged: bool) -> Adaptive | None:
    """None where nothing was saved, or nothing that makes sense."""
    try:
        return Adaptive.from_dict(json.loads(path.read_text()), k, ragged)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _machine() -> list[object]:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return [platform.machine(), os.cpu_count(), torch.backends.cpu.get_cpu_capability(), gpu]
