"""Means and trends with their uncertainty: percentile bootstrap over prompts, with a fixed seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

DRAWS = 2000
LEAST = 5  # samples, for an interval to mean anything

_SEED = 20_001
_TAIL = 0.025

Sample = TypeVar("Sample")
Point = tuple[float, float]


@dataclass(frozen=True)
class Estimate:
    """A value from `n` samples; 95% of the bootstrap's values lie from `low` to `high`, which are
    None where the samples are too few to tell."""

    value: float
    low: float | None
    high: float | None
    n: int

    def said(self, unit: str = "", places: int = 2) -> str:
        """The value, and its interval in brackets."""
        if self.low is None or self.high is None:
            return f"{self.value:.{places}f}{unit}"
        return f"{self.value:.{places}f}{unit} ({self.low:.{places}f}–{self.high:.{places}f})"


def estimate(
    samples: Sequence[Sample], value: Callable[[Sequence[Sample]], float | None]
) -> Estimate | None:
    """`value` of the samples, and what it might have been with others of their kind. None if it
    has none."""
    found = value(samples) if samples else None
    if found is None:
        return None
    if len(samples) < LEAST:
        return Estimate(found, None, None, len(samples))
    dice = random.Random(_SEED)
    drawn = (value(dice.choices(samples, k=len(samples))) for _ in range(DRAWS))
    values = sorted(each for each in drawn if each is not None)
    low, high = values[int(_TAIL * len(values))], values[int((1 - _TAIL) * len(values))]
    return Estimate(found, low, high, len(samples))


def geometric(ratios: Sequence[float]) -> float | None:
    """The mean of ratios: that of b over a is one over that of a over b."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None


def ratio(ratios: Sequence[float]) -> Estimate | None:
    """The geometric mean of ratios, each above 0."""
    logs = [math.log(each) for each in ratios]
    return estimate(logs, lambda drawn: math.exp(sum(drawn) / len(drawn)))


def mean(values: Sequence[float]) -> Estimate | None:
    """The arithmetic mean."""
    return estimate(values, lambda drawn: sum(drawn) / len(drawn))


def slope(points: Sequence[Point]) -> float | None:
    """Of the straight line nearest to the points; None where all have the same x."""
    n = len(points)
    at = sum(x for x, _ in points) / n
    spread = sum((x - at) ** 2 for x, _ in points)
    if spread < 1e-12:
        return None
    return sum((x - at) * y for x, y in points) / spread


def centred(groups: Sequence[Sequence[Point]]) -> list[Point]:
    """The points of all groups, each from the middle of its group: what is left is how y goes
    with x among points of one kind. Groups of one point say nothing about that."""
    found: list[Point] = []
    for group in groups:
        if len(group) > 1:
            x = sum(x for x, _ in group) / len(group)
            y = sum(y for _, y in group) / len(group)
            found += [(a - x, b - y) for a, b in group]
    return found


def trend(
    points: Sequence[Point], places: Sequence[float]
) -> list[tuple[float, float, float, float]]:
    """The straight line nearest to the points: (x, y, low, high) at each of `places`; empty if
    there is none, or too few points for an interval."""
    fitted = _line(points)
    if fitted is None or len(points) < LEAST:
        return []
    dice = random.Random(_SEED)
    drawn = (_line(dice.choices(points, k=len(points))) for _ in range(DRAWS))
    lines = [line for line in drawn if line is not None]
    found: list[tuple[float, float, float, float]] = []
    for x in places:
        values = sorted(a + b * x for a, b in lines)
        low, high = values[int(_TAIL * len(values))], values[int((1 - _TAIL) * len(values))]
        found.append((x, fitted[0] + fitted[1] * x, low, high))
    return found


def _line(points: Sequence[Point]) -> tuple[float, float] | None:
    rise = slope(points) if points else None
    if rise is None:
        return None
    n = len(points)
    return sum(y for _, y in points) / n - rise * sum(x for x, _ in points) / n, rise
