"""Stop watches: passes of the target and steps of a drafter, each a median over turns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import TypeVar

import torch

from paceline.advise.costs import Passes
from paceline.advise.stage import Lane
from paceline.build.verify import make_verifier
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.protocols import Drafter
from paceline.core.sequences import Sequences
from paceline.core.types import Draft

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
AHEAD = 4  # tokens of a timed draft
NEWS = 2  # tokens that were committed since the drafter was last asked, as after most rounds

T = TypeVar("T")


class Filler:
    """Drafts `n` times token 0 for every row, whatever there is room for: what a pass costs depends
    on neither."""

    def __init__(self, n: int) -> None:
        self._n = n

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """The same each time."""
        lengths = [self._n] * seqs.batch
        return Draft(torch.zeros(seqs.batch, self._n, dtype=torch.int64), lengths)


def timed(device: torch.device, call: Callable[[], T]) -> tuple[float, T]:
    """Seconds of a call, with all that it started on `device`, and what it returned."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    began = perf_counter()
    made = call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter() - began, made


class Rounds:
    """Rounds of the loop behind what `start` begins with: `of(n)` scores n tokens of each row."""

    def __init__(self, cached: CachedModel, start: Callable[[], Sequences]) -> None:
        self._cached, self._start = cached, start
        self._verifier = make_verifier("auto")

    def of(self, n: int) -> tuple[float, float]:
        """T(n) and o(n), the rest of the round, in seconds. On CUDA, where the pass goes on while
        the rest is prepared, all of it counts as T(n)."""
        device = self._cached.model.device
        loop = Loop(self._cached, Filler(n - 1), self._verifier, Fixed(n - 1))
        seqs = self._start()
        taken, round = timed(device, lambda: loop.step(seqs))
        if device.type == "cuda":
            return taken, 0.0
        return round.seconds.target, round.seconds.overhead


@dataclass(frozen=True)
class Yardstick:
    """T(1) of one row, timed again beside whatever is timed: machines are now faster and now
    slower, and what is compared must have met the same one. `t1`: what it was at first."""

    rounds: Rounds
    t1: float

    def scale(self, others: Sequence[float]) -> float:
        """By what to multiply seconds, beside which a plain pass took `others`, to have them as if
        the machine were what it was at first."""
        return self.t1 / median(others)

    def now(self) -> float:
        """A plain pass."""
        return self.rounds.of(1)[0]


class PassTimer:
    """T(n) and o(n) of `rounds`, turn by turn. Each turn begins and ends with n = 1, and what
    counts is the median of the ratios to those two: turns may lie far apart, and the machine be
    another one in each. `batch`, `context`: see `Passes`."""

    def __init__(
        self, rounds: Rounds, batch: int, context: int, sizes: Sequence[int] = SIZES
    ) -> None:
        self._rounds, self._batch, self._context = rounds, batch, context
        self._more = [n for n in sizes if n > 1]
        self._ratios: dict[int, list[float]] = defaultdict(list)
        self._rest: dict[int, list[float]] = defaultdict(list)
        self._ones: list[float] = []
        rounds.of(1)  # reads what is unread, and warms up

    def turn(self) -> None:
        """Time all sizes once more, beginning with another one each time."""
        first = len(self._ones) % max(1, len(self._more))
        order = (1, *self._more[first:], *self._more[:first], 1)
        each = [(n, *self._rounds.of(n)) for n in order]
        one = (each[0][1] + each[-1][1]) / 2
        self._ones.append(one)
        for n, target, rest in each:
            self._ratios[n].append(target / one)
            self._rest[n].append(rest / one)

    @property
    def t1(self) -> float:
        """T(1): the median of the turns so far."""
        return median(self._ones)

    def passes(self, t1: float) -> Passes:
        """What all turns so far say together, where T(1) is `t1`."""
        sizes = (1, *self._more)
        return Passes(
            self._batch,
            self._context,
            {n: t1 * (median(self._ratios[n]) if n > 1 else 1.0) for n in sizes},
            {n: t1 * median(self._rest[n]) for n in sizes},
        )


def time_passes(timer: PassTimer, turns: int, beside: Yardstick) -> Passes:
    """So many turns of passes that are not the plain ones of one row, held against those."""
    others: list[float] = []
    for _ in range(turns):
        others.append(beside.now())
        timer.turn()
    return timer.passes(beside.scale(others) * timer.t1)


Start = Callable[[], Sequences]
Place = tuple[Start, Start]  # where a drafter was asked last, and where it is asked now


class StepTimer:
    """What drafting costs, place by place, as a ratio to a plain pass beside it."""

    def __init__(self, beside: Yardstick) -> None:
        self._beside = beside
        self._firsts: list[float] = []
        self._further: list[float] = []
        self._counts: list[int] = []

    def turn(self, cached: CachedModel, drafter: Drafter, place: Place) -> None:
        """Time a drafter once more: the first token, which takes reading what is new, and further
        ones. What it reads of the target has been read by then."""
        device, (before, now) = cached.model.device, place
        with torch.no_grad():
            seqs = before()
            cached.sync(seqs)
            drafter.propose(seqs, [1] * seqs.batch)
            seqs = now()
            cached.sync(seqs)
            one = self._beside.now()
            first, _ = timed(device, lambda: drafter.propose(seqs, [1] * seqs.batch))
            again, _ = timed(device, lambda: drafter.propose(seqs, [1] * seqs.batch))
            ahead, draft = timed(device, lambda: drafter.propose(seqs, [AHEAD] * seqs.batch))
        steps = min(AHEAD, max(draft.lengths) + 1)
        self._firsts.append(first / one)
        self._counts.append(steps)
        if steps > 1:
            self._further.append((ahead - again) / (steps - 1) / one)

    @property
    def taken(self) -> float:
        """How many steps it took on average when it was asked for AHEAD tokens."""
        return sum(self._counts) / len(self._counts)

    def seconds(self, n: int) -> float:
        """What a draft of n steps takes, by all turns so far."""
        first = _middle(self._firsts)
        step = max(0.0, _middle(self._further)) if self._further else first
        return self._beside.t1 * (first + step * (n - 1)) if n else 0.0


def _middle(values: Sequence[float]) -> float:
    """The mean without the least and the largest of five or more: a draft takes now more, now less,
    as its text needs, and a spell of the machine is no part of that."""
    kept = sorted(values)[1:-1] if len(values) >= 5 else values
    return sum(kept) / len(kept)


def places(lane: Lane, stretch: range, turns: int) -> list[Place]:
    """So many places all over a stretch of a lane's answer, NEWS tokens behind others. The last one
    comes first: what drafters write into the target's cache is then behind what is read next."""
    each = [stretch[int((i + 0.5) * len(stretch) / turns)] for i in reversed(range(turns))]
    return [
        (lambda at=place: lane.at(max(0, at - NEWS)), lambda at=place: lane.at(at))
        for place in each
    ]
