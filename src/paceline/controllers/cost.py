"""What rounds cost: the curve T(n) of the target and a step of each drafter, kept true as one goes.

Both are timed once, before the first request, and from then on every round is a measurement. A
curve keeps the shape that was timed, with its steps, and fits two numbers to what rounds take, how
high it is and how much dearer each further token has become:

    T(n) = A t_n + C (n - 1),   t_n = T_timed(n) / T_timed(1),

by least squares in which a round counts 5 % less with each one that follows. A few rounds of
whatever size are enough to move all of T when the machine gets busy or the context long; C is drawn
towards 0, so that rounds of one size alone leave the shape as it was timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

KEEP = 0.95
_TIMED = 4.0  # rounds that the timing before the first request counts for
_LINEAR = 0.5  # rounds of two tokens, as dear as was timed, that are always counted
_OUTLIER = 2.0  # a round that takes so many times what was expected counts as so many times
_STEP = 0.1  # how far one round moves what a draft step is thought to cost


class CostCurve:
    """T(n) in seconds, for n = 1..`len(timed)` tokens of a row, of which `timed[n - 1]` were
    measured. Raises ValueError where that is no time."""

    def __init__(self, timed: Sequence[float]) -> None:
        if not min(timed) > 0:
            raise ValueError(f"a pass takes no time: {timed}")
        self._shape = [t / timed[0] for t in timed]
        self._sums = [_TIMED, 0.0, 0.0, _TIMED * timed[0], 0.0]  # as if rounds of 1 had been seen
        self.values = list(timed)

    def _fit(self) -> None:
        # sums over rounds of t², t (n - 1), (n - 1)², t T and (n - 1) T
        tt, tn, nn, ts, ns = self._sums
        nn += _LINEAR
        determinant = tt * nn - tn * tn
        height, slope = (nn * ts - tn * ns) / determinant, (tt * ns - tn * ts) / determinant
        if height <= 0:  # noise: no pass takes less than no time
            height, slope = ts / tt, 0.0
        values, last = self.values, 0.0
        for n, t in enumerate(self._shape):
            values[n] = last = max(last, height * t + slope * n)  # and none less than a shorter one

    def add(self, n: float, seconds: float) -> None:
        """One round over `n` tokens a row, on average, took so long, drafting not counted. Of more
        tokens than were timed nothing is learned."""
        if n > len(self.values):
            return
        expected = between(self.values, n - 1)
        seconds = min(max(seconds, expected / _OUTLIER), expected * _OUTLIER)
        t, m = between(self._shape, n - 1), n - 1
        one = (t * t, t * m, m * m, t * seconds, m * seconds)
        self._sums = [KEEP * value + more for value, more in zip(self._sums, one, strict=True)]
        self._fit()


class CostBook:
    """The curves of one pair, by batch size, length of the context and whether tokens are drawn,
    and what a step of each drafter costs in units of T(1).

    `timed`: the curve of each batch size, in seconds; `steps`: of each, c of every drafter. A curve
    that was never timed starts as the one that is nearest.
    """

    def __init__(
        self, timed: Mapping[int, Sequence[float]], steps: Mapping[int, Sequence[float]]
    ) -> None:
        self._curves = {(batch, 0, False): CostCurve(curve) for batch, curve in timed.items()}
        self._steps = {batch: list(each) for batch, each in steps.items()}

    @property
    def batches(self) -> list[int]:
        """The batch sizes of which something is known."""
        return sorted(self._steps)

    def include(self, batch: int, timed: Sequence[float], steps: Sequence[float]) -> None:
        """What was timed for one more batch size."""
        self._curves[batch, 0, False] = CostCurve(timed)
        self._steps[batch] = list(steps)

    def curve(self, batch: int, context: int, drawn: bool) -> CostCurve:
        """T(n) of a pass over `batch` rows, the longest of `context` tokens; `drawn`: at a
        temperature."""
        key = (batch, bucket(context), drawn)
        if key not in self._curves:
            near = min(self._curves, key=lambda other: _distance(key, other))
            self._curves[key] = CostCurve(self._curves[near].values)
        return self._curves[key]

    def steps(self, batch: int) -> list[float]:
        """c of each drafter beside a batch of that size: a list to read and, by `stepped`, to
        change."""
        if batch not in self._steps:
            near = min(self._steps, key=lambda other: abs(other - batch))
            self._steps[batch] = list(self._steps[near])
        return self._steps[batch]

    def stepped(self, batch: int, index: int, share: float) -> None:
        """A step of drafter `index` took `share` of T(1)."""
        steps = self.steps(batch)
        floor = max(steps[index], 1e-4)
        share = min(share, _OUTLIER * floor)
        steps[index] += _STEP * (share - steps[index])

    def to_dict(self) -> Saved:
        """What `from_dict` takes."""
        return {
            "curves": [[*key, curve.values] for key, curve in self._curves.items()],
            "steps": [[batch, steps] for batch, steps in self._steps.items()],
        }

    @classmethod
    def from_dict(cls, saved: Saved) -> CostBook:
        """The book as it was when it was saved. Raises KeyError, TypeError or ValueError for
        anything else."""
        book = cls({}, {int(batch): _floats(steps) for batch, steps in saved["steps"]})
        for batch, context, drawn, values in saved["curves"]:
            curve = CostCurve(_floats(values))
            book._curves[int(batch), int(context), bool(drawn)] = curve
        if not book._curves or not book._steps:
            raise ValueError("nothing was saved")
        return book


class Saved(TypedDict):
    """A `CostBook` as JSON has it."""

    curves: list[list[Any]]
    steps: list[list[Any]]


def between(values: Sequence[float], at: float) -> float:
    """The value at a place that may lie between two of them, or behind the last."""
    low = int(at)
    if len(values) == 1 or (low == at and low < len(values)):
        return values[min(low, len(values) - 1)]
    low = min(low, len(values) - 2)
    return values[low] + (at - low) * (values[low + 1] - values[low])


def bucket(context: int) -> int:
    """Contexts by length: up to 1,024 tokens, 4,096, 16,384, …"""
    found = 0
    while context > 1024:
        context, found = context >> 2, found + 1
    return found


def _distance(one: tuple[int, int, bool], other: tuple[int, int, bool]) -> tuple[int, int, bool]:
    return abs(one[0] - other[0]), abs(one[1] - other[1]), one[2] != other[2]


def _floats(values: Sequence[Any]) -> list[float]:
    found = [float(value) for value in values]
    if not found or not all(0 <= value < float("inf") for value in found):
        raise ValueError(f"no costs: {values}")
    return found
