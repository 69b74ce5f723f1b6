"""One drafter under an adaptive window: what is known of it, and how far its drafts go."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, TypedDict

from torch import Tensor

from paceline.controllers.acceptance import Lesson, Taught, bin_of
from paceline.controllers.outlook import Outlook, Probe, Row
from paceline.controllers.plan import asking_rate, best_window, goes_on, promised
from paceline.core.shape import largest
from paceline.core.types import Draft, Emitted

Kind = Literal["steps", "whole", "opaque"]
"""How a drafter drafts: token by token, telling how sure it is of each; at once and for next to
nothing, telling the same; or without telling."""
_SPREAD = 0.2  # how far one draft moves what is known of their breadth
_ENOUGH = 16.0  # tests that say what a drafter is worth


class Known(TypedDict):
    """What is known of a drafter, as JSON has it; what was taught of greedy rows and of others."""

    taught: list[Lesson]


class Source:
    """The drafter of number `index`, for drafts of up to `k` tokens: a `Pace`. `saved`: what was
    known of it before; raises KeyError, TypeError or ValueError where that is something else.
    `draft`: see `Paces.pace`."""

    def __init__(
        self, index: int, k: int, saved: Known | None = None, draft: str | None = None
    ) -> None:
        self.index = index
        self.draft = draft
        self.kind: Kind = "opaque"
        self.taught = {drawn: Taught(k) for drawn in (False, True)}
        if saved:
            self.taught = {
                drawn: Taught.from_dict(lesson, k)
                for drawn, lesson in zip((False, True), saved["taught"], strict=True)
            }
        self._confidence = 0.0
        self._spread = 1.0  # of an opaque drafter: tokens of a draft for each that was asked for
        self._limits: Sequence[int] = ()
        self._now: Outlook
        self._bins: dict[int, list[float]] = {}
        self._places: dict[int, list[float]] = {}

    def asks(self, confidence: float) -> None:
        """The drafter asks at each step, and would by itself end a draft at that confidence."""
        self.kind, self._confidence = "steps", confidence

    def to_dict(self) -> Known:
        """What it can be made from again."""
        return {"taught": [self.taught[drawn].to_dict() for drawn in (False, True)]}

    def begin(self, now: Outlook) -> None:
        """A round begins: if this drafter makes more tokens a second than those before it, it is
        the best one."""
        self._now = now
        self._bins, self._places = {}, {}
        if self.kind == "whole" or not now.rows:
            return  # costs nothing to ask, and tells for itself what its draft is worth
        step = now.step[self.index]
        if len(now.rows) == now.count == 1 and self.kind == "steps":
            ((b, row),) = now.rows.items()
            first, behind = self.taught[row.drawn].first, promised(self._of_places(b)[1:])
            rate = asking_rate(first, self._of_bins(b), behind, now.time, step)
            window = now.limits[b]
        else:
            gains = [promised(self._of_places(b)) for b in now.rows]
            rate, window = self._best_window(gains, step, self._spread)  # a tree is read, too
        now.offers[self.index] = rate, window
        if window and rate > now.rate:
            now.rate, now.best, now.window = rate, self.index, window

    def _best_window(
        self, gains: Sequence[Sequence[float]], step: float, spread: float = 1.0
    ) -> tuple[float, int]:
        """See `best_window`; `spread`: tokens that are read for each one of a draft."""
        now = self._now
        widths = [now.width([min(w, len(row) - 1) for row in gains]) for w in range(len(now.time))]
        time = [now.seconds(min(len(now.time) - 1, spread * width)) for width in widths]
        return best_window(gains, now.count - len(gains), time, step)

    def limits(self, k: Sequence[int]) -> Sequence[int]:
        """See `Pace`."""
        now = self._now
        limits = list(k)
        for b, row in now.rows.items():
            if self.kind == "whole":
                continue
            if now.best != self.index:
                limits[b] = min(k[b], int(self._tries(b, row)))
            elif self.kind == "opaque":
                limits[b] = min(k[b], now.window)
        self._limits = limits
        return limits

    def steps(self, b: int, draft: Draft) -> int:
        """How many draft steps were taken for the draft of row b; none is counted of what costs
        next to nothing."""
        if self.kind == "steps" and draft.sure is not None:
            return len(draft.sure[b])
        return self._limits[b] if self.kind == "opaque" else 0

    def _tries(self, b: int, row: Row) -> bool:
        """Whether this drafter is to be tried for row b, where it does not pay."""
        now = self._now
        if not self.probe(row).due or any(b == other for other, _ in now.probing):
            return False
        now.probing.add((b, self.index))
        return True

    def probe(self, row: Row) -> Probe:
        """When it is tried for that row."""
        if self.index not in row.probes:
            known = self.taught[row.drawn].places[0][1] >= _ENOUGH
            row.probes[self.index] = Probe(self.price, known)
        return row.probes[self.index]

    @property
    def price(self) -> float:
        """The tokens that the best there is would make while a single one is drafted in vain."""
        now = self._now
        step = 0.0 if self.kind == "whole" else now.step[self.index]
        return max(0.0, now.rate * (now.seconds(now.width([1])) + step) - now.count)

    def measure(self, logits: Tensor) -> Tensor:
        """The largest probability."""
        return largest(logits)

    def further(
        self, rows: Sequence[int], drafted: int, sure: Sequence[Sequence[float]]
    ) -> Sequence[int]:
        """See `Pace`: of `rows` that are decided for those go on for which some number of further
        tokens pays; where rows are padded, all or none."""
        now, on = self._now, []
        looked = len(sure[rows[0]]) > drafted
        decided: list[int] = []
        for b in rows:
            if (b, self.index) in now.probing:
                on.append(b)
            elif b in now.rows:
                decided.append(b)
            elif prod(sure[b]) >= self._confidence:
                on.append(b)
        together = [[b] for b in decided] if now.ragged else [decided] if decided else []
        for some in together:
            if self._pays(some, drafted, sure, looked, len(decided)):
                on += some
        if now.ragged:
            now.paid += now.width([1] * len(on)) if looked else 0
        else:
            now.paid = max(now.paid, drafted + 1 if on and looked else drafted)
        return on

    def _pays(
        self,
        rows: Sequence[int],
        drafted: int,
        sure: Sequence[Sequence[float]],
        looked: bool,
        among: int,
    ) -> bool:
        """Whether further tokens pay for `rows`, which share draft steps with all of `among`."""
        now = self._now
        if not drafted and not looked:
            return True  # that it pays to ask is known by now
        most = max(now.limits[b] for b in rows) - drafted
        gains = [0.0] * most
        for b in rows:
            known = self._known(b, sure[b])
            behind = self._of_places(b)[len(known) :]
            reached = prod(known[:drafted])
            each = promised([*known[drafted:], *behind])
            for n in range(most):
                gains[n] += reached * each[min(n + 1, len(each) - 1)]
        step = now.step[self.index] * len(rows) / among
        if now.ragged:
            widths = [now.paid + now.width([n] * len(rows)) for n in range(most + 1)]
        else:
            widths = [max(drafted + n, now.paid) for n in range(most + 1)]
        base = now.seconds(widths[0])
        costs = [now.seconds(widths[n]) - base + step * (n - looked) for n in range(1, most + 1)]
        return goes_on(gains, costs, now.rate)

    def _known(self, b: int, sure: Sequence[float]) -> list[float]:
        """The chances of tokens of which the confidence is known."""
        chances = self._of_bins(b)
        return [chances[bin_of(value)] for value in sure]

    def _of_bins(self, b: int) -> list[float]:
        """The chance of a token of row b for each bin of confidence, in the mood that it is in."""
        if b not in self._bins:
            row = self._now.rows[b]
            chance = row.moods[self.index].chance
            self._bins[b] = [chance(each) for each in self.taught[row.drawn].of_bins()]
        return self._bins[b]

    def _of_places(self, b: int) -> list[float]:
        """The same by its place in the draft."""
        if b not in self._places:
            row, most = self._now.rows[b], self._now.limits[b]
            chance = row.moods[self.index].chance
            self._places[b] = [chance(each) for each in self.taught[row.drawn].of_places()[:most]]
        return self._places[b]

    def lengths(
        self, rows: Sequence[int], sure: Sequence[Sequence[float]], lengths: Sequence[int]
    ) -> Sequence[int]:
        """See `Pace`: of drafts that are there the length that makes the most tokens a second, if
        that is more than can be had without them."""
        if self.kind == "steps":
            return lengths
        self.kind = "whole"
        now, kept = self._now, list(lengths)
        decided = [b for b in rows if b in now.rows and lengths[b]]
        gains = [promised(self._known(b, sure[b][: lengths[b]])) for b in decided]
        rate, window = now.offers[self.index] = self._best_window(gains, 0.0)
        for b in decided:
            if window and rate > now.rate:
                kept[b] = min(kept[b], window)
            else:
                kept[b] = int(self._tries(b, now.rows[b]))
        width = now.width([kept[b] for b in rows])
        now.paid = now.paid + width if now.ragged else max(now.paid, width)
        return kept

    def learn(self, b: int, row: Row | None, drawn: bool, draft: Draft, emitted: Emitted) -> None:
        """The `draft` of row b, which was this drafter's, was verified; `drawn`: at a temperature;
        `row`: what is known of it, if it was decided for."""
        if self.kind == "opaque" and self._limits[b]:
            self._spread += _SPREAD * (draft.lengths[b] / self._limits[b] - self._spread)
        sure = () if draft.sure is None else draft.sure[b]
        taught = self.taught[drawn]
        if self.kind == "steps" and sure:
            taught.looked(sure[0])
        places, bins = taught.of_places(), taught.of_bins()
        for i in range(min(emitted.tested, len(places))):
            known = sure[i] if i < len(sure) else None
            expected = places[i] if known is None else bins[bin_of(known)]
            passed = i < emitted.accepted
            taught.add(i, known, passed)
            if row is not None:
                mood = row.moods[self.index]
                mood.add(mood.chance(expected), passed)
