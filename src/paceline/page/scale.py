"""From values to places along an axis, and the round numbers to write there."""

from __future__ import annotations

import math
from dataclasses import dataclass


def ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """At most `most` + 1 round numbers from `low` to `high`, evenly spaced by 1, 2, 2.5 or 5
    times a power of ten; `whole`: by whole numbers."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    sizes = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(m * power for m in sizes if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def doublings(low: float, high: float, base: float = 1.0) -> list[float]:
    """`base` doubled or halved as often as it stays from `low` to `high`; for an axis of logs.
    Round numbers instead, where these would be fewer than three."""
    first = math.ceil(math.log2(low / base) - 1e-9)
    last = math.floor(math.log2(high / base) + 1e-9)
    if last - first < 2:
        return [value for value in ticks(low, high, 5) if value > 0]
    return [base * 2.0**n for n in range(first, last + 1)]


@dataclass(frozen=True)
class Scale:
    """`low` to `high` (log: both above 0) laid from place `start` to place `end`."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)
