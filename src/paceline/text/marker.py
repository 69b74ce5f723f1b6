"""Grammars that begin in the middle of free text, behind a marker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from paceline.text.matching import Inside, Mask, Words

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Marker:
    """A text that begins something. `crossing` says where tokens of `words` run over its end."""

    def __init__(self, text: str, words: Words) -> None:
        self.text = text.encode()
        self._words = words
        self._crossing: dict[int, list[tuple[int, bytes]]] = {}

    def step(self, begun: int, data: bytes) -> tuple[int, bytes | None]:
        """Read `data` where the first `begun` bytes of the marker stand already: how many do then,
        and once it is complete what comes behind it, else None."""
        text = self.text[:begun] + data
        at = text.find(self.text)
        if at >= 0:
            return 0, text[at + len(self.text) :]
        most = min(len(text), len(self.text) - 1)
        return next(n for n in range(most, -1, -1) if text.endswith(self.text[:n])), None

    def crossing(self, begun: int) -> Iterable[tuple[int, bytes]]:
        """The tokens that would complete the marker and go on, and what they go on with."""
        if begun not in self._crossing:
            steps = ((i, self.step(begun, data)[1]) for i, data in self._near(begun))
            self._crossing[begun] = [(i, rest) for i, rest in steps if rest]
        return self._crossing[begun]

    def _near(self, begun: int) -> Iterable[tuple[int, bytes]]:
        head, text = self.text[:begun], self.text
        return [(i, data) for i, data in enumerate(self._words.bytes) if text in head + data]


class Trigger:
    """A marker and the grammar that follows it, with what can be known of them beforehand."""

    def __init__(self, marker: Marker, start: Callable[[], LLMatcher], words: Words) -> None:
        self.marker, self.start, self.words = marker, start, words
        self._fits: dict[bytes, bool] = {b"": True}
        self._free: dict[int, Mask] = {}

    def free(self, begun: int) -> Mask:
        """What may come next in free text: all but tokens that complete the marker and go on as
        the grammar does not begin."""
        if begun not in self._free:
            mask = np.ones(self.words.size, dtype=bool)
            for token, rest in self.marker.crossing(begun):
                mask[token] = self._fit(rest)
            self._free[begun] = mask
        return self._free[begun]

    def _fit(self, rest: bytes) -> bool:
        if rest not in self._fits:
            self._fits[rest] = self.begin(rest) is not None
        return self._fits[rest]

    def begin(self, rest: bytes) -> Inside | None:
        """A reader behind the first bytes of the grammar; None if it does not begin so."""
        inside = Inside(self.start, self.words)
        return inside if not rest or inside.spell(self.words.spelled(rest)) else None


class Outside:
    """A `Reader` of free text, in which a marker makes a grammar begin. Where that may end, a token
    that it does not allow ends it and is free text again."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger
        self._inside: Inside | None = None
        self._begun = 0  # bytes of the marker that the free text ends with
        self._before: list[tuple[Inside | None, int, bool]] = []  # and: was it fed to the grammar?

    def mask(self) -> Mask:
        """See `Reader.mask`."""
        if self._inside is None:
            return self._trigger.free(self._begun)
        mask = self._inside.strictly()
        return mask | self._trigger.free(0) if self._inside.may_end() else mask

    def feed(self, token: int) -> bool:
        """See `Reader.feed`."""
        if token in self._trigger.words.ends:
            return False
        here = (self._inside, self._begun)
        if self._inside is not None and self._inside.feed(token):
            self._before.append((*here, True))
            return True
        if self._inside is not None and not self._inside.may_end():
            return False
        inside = None
        begun, rest = self._trigger.marker.step(self._begun, self._trigger.words.bytes[token])
        if rest is not None and (inside := self._trigger.begin(rest)) is None:
            return False
        self._inside, self._begun = inside, begun
        self._before.append((*here, False))
        return True

    def back(self, count: int) -> None:
        """See `Reader.back`."""
        for _ in range(count):
            self._inside, self._begun, fed = self._before.pop()
            if fed and self._inside is not None:
                self._inside.back(1)

    def complete(self) -> bool:
        """See `Reader.complete`: there may always be more text."""
        return False
