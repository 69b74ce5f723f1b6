"""How likely drafted tokens are accepted: what a pair has taught, and the mood of one request.

A drafter's own confidence is a good order and a poor probability, so it is calibrated: confidences
fall into bins, and a bin's chance is the share of its tokens that passed. Where no confidence is
known yet, as for tokens that are still to be drafted, it is the share that passed at that place in
the draft, given that all before it did. Both are counts that fade, of all requests together.

What one request is like just now is one number beside them, the mood m: all chances are those, with
odds times e^m. After each test m moves by RATE times the surprise (the step of a logistic
regression on its intercept) and fades, so that a text that turns hard or easy is noticed within a
few tests, and one surprise where one was to be expected counts for little.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from math import exp
from typing import TypedDict

EDGES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 0.985)
_MIDDLES = (0.05, 0.15, 0.28, 0.42, 0.58, 0.72, 0.85, 0.93, 0.97, 0.99)
BINS = len(_MIDDLES)
_NEAR = [0.25 / 2 ** abs(distance) for distance in range(-BINS, BINS)]
_FADE = 1 - 1 / 256  # of a count, with each new one in its place
_TRUST = 4.0  # tests that what is expected beforehand counts for
_FIRST = 0.6  # the chance of a first token, before any test
RATE = 0.4
_CALM = 0.98  # what is left of a mood after a test
_DEEPEST = 5.0
_SURE = 0.995  # no chance is larger: a draft of any length would pay


def bin_of(sure: float) -> int:
    """The bin that a confidence falls into."""
    return bisect_right(EDGES, sure)


class Taught:
    """What all requests of a pair have shown of one drafter, for drafts of up to `k` tokens."""

    def __init__(self, k: int) -> None:
        self.bins = [[0.0, 0.0] for _ in range(BINS)]  # passed, tested
        self.places = [[0.0, 0.0] for _ in range(k)]
        self.first = [1.0] * BINS  # how often a draft's first token fell into each
        self._of_bins: list[float] = []  # what was worked out since the last test
        self._of_places: list[float] = []

    def of_bins(self) -> list[float]:
        """The chance of a token whose confidence falls into each bin, those before it accepted."""
        if not self._of_bins:
            for index, (passed, tested) in enumerate(self.bins):
                p, t = _TRUST * _MIDDLES[index], _TRUST  # at first as likely as it is sure, then
                for weight, (others, n) in zip(_NEAR[BINS - index :], self.bins, strict=False):
                    p, t = (
                        p + weight * others,
                        t + weight * n,
                    )  # like the others, the near above all
                self._of_bins.append((passed + _TRUST * p / t) / (tested + _TRUST))
        return self._of_bins

    def of_places(self) -> list[float]:
        """The chance of each token of a draft, those before it accepted."""
        if not self._of_places:
            expected = _FIRST
            for passed, tested in self.places:
                # where little is known a token is as likely as the one before it
                expected = (passed + _TRUST * expected) / (tested + _TRUST)
                self._of_places.append(expected)
        return self._of_places

    def looked(self, sure: float) -> None:
        """A draft was begun; `sure` is the confidence of its first token."""
        self.first = [_FADE * count for count in self.first]
        self.first[bin_of(sure)] += 1

    def add(self, place: int, sure: float | None, passed: bool) -> None:
        """The token at that place of a draft (from 0), of that confidence, was tested."""
        self._of_bins, self._of_places = [], []
        counts = [self.places[place]] if place < len(self.places) else []
        for count in counts if sure is None else [*counts, self.bins[bin_of(sure)]]:
            count[0] = _FADE * count[0] + passed
            count[1] = _FADE * count[1] + 1

    def to_dict(self) -> Lesson:
        """What `from_dict` takes."""
        return {"bins": self.bins, "places": self.places, "first": self.first}

    @classmethod
    def from_dict(cls, saved: Lesson, k: int) -> Taught:
        """What had been taught when it was saved. Raises KeyError, TypeError or ValueError for
        anything else."""
        taught = cls(k)
        taught.bins = [_count(each) for each in saved["bins"]]
        taught.places = [_count(each) for each in saved["places"]]
        taught.first = [max(0.0, float(each)) for each in saved["first"]]
        if not len(taught.bins) == len(taught.first) == BINS or not sum(taught.first) > 0:
            raise ValueError("other bins")
        if len(taught.places) != k:
            raise ValueError("another window")
        return taught


class Mood:
    """How much easier (> 0) or harder one request is just now than what has been taught."""

    def __init__(self) -> None:
        self.value = 0.0
        self._odds = 1.0

    def chance(self, taught: float) -> float:
        """The chance that was taught, in this mood."""
        odds = self._odds * taught
        return min(_SURE, odds / (1 - taught + odds))

    def lift(self) -> None:
        """What was hard may be so no longer."""
        self.value = max(0.0, self.value)
        self._odds = exp(self.value)

    def add(self, expected: float, passed: bool) -> None:
        """A token of which `expected` was the chance, in this mood, was tested."""
        moved = _CALM * self.value + RATE * (passed - expected)
        self.value = min(_DEEPEST, max(-_DEEPEST, moved))
        self._odds = exp(self.value)


class Lesson(TypedDict):
    """A `Taught` as JSON has it."""

    bins: list[list[float]]
    places: list[list[float]]
    first: list[float]


def _count(pair: Sequence[float]) -> list[float]:
    passed, tested = (float(value) for value in pair)
    if not 0 <= passed <= tested < float("inf"):
        raise ValueError(f"no count: {pair}")
    return [passed, tested]
