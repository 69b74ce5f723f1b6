"""The window that tunes itself: as many drafted tokens as make the most tokens a second, or none.

Every round, from what a token's chances are (`acceptance`) and what passes cost (`cost`), the rate
of each drafter is worked out, and of none at all; the best one is asked, and its draft goes on as
long as the next token's expected gain pays for what it costs (`plan`). Where nothing pays, the
round is one of plain decoding, and now and then a single token is drafted to see whether that has
changed. Such probes come ever more rarely while they fail, so that in N tokens what they lose grows
as N^(2/3): slower than the text, and the wait between two is about N^(1/3) times the first.

Rows of a batch are read in one pass, so they share its cost and are decided for together; those
whose requests name a drafter of their own, among theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean
from typing import TypedDict

from paceline.controllers.cost import CostBook, CostCurve, Saved
from paceline.controllers.fixed import room
from paceline.controllers.outlook import Outlook, Row
from paceline.controllers.source import Known, Source
from paceline.core.sequences import Sequences
from paceline.core.types import Emitted, Round


class State(TypedDict):
    """An `Adaptive` as JSON has it."""

    book: Saved
    known: list[Known]


@dataclass(frozen=True)
class Choice:
    """Why a row's draft was as long as it was, in tokens a second of all rows together. `plain`:
    of plain decoding. `offers`: of each drafter that was weighed, with its best window, and that
    window; where tokens are drafted one by one it is where the draft was expected to end. `tried`:
    the drafter that was tried although it does not pay. `decided`: False: nothing was weighed for
    the row, as it has a seed, or no room for a draft."""

    plain: float
    offers: Mapping[int, tuple[float, int]]
    tried: int | None = None
    decided: bool = True


class Adaptive:
    """Windows of up to `k` tokens, by the costs in `book`, which every round keeps true.

    A request's mood is its own; what its drafts teach is for all that come after. Rows that are
    drawn from a seed keep the window `k`, as with a window that depends on what rounds took they
    would not come out the same again; those of a `coupled` batch come out the same whatever is
    drafted, and are tuned. `known`: of each drafter, from a `to_dict` before. `ragged`: the target
    reads rows without padding (see `Ragged`).
    """

    def __init__(
        self, k: int, book: CostBook, known: Sequence[Known] = (), ragged: bool = False
    ) -> None:
        self.k = k
        self.book = book
        self.sources: list[Source] = []
        self._known = known
        self._ragged = ragged
        self._rows: dict[object, Row] = {}
        self._now: list[tuple[Row, Outlook] | None] = []  # of each row of the round
        self._curve: CostCurve | None = None
        self._batch = 0
        self._asked: list[int] = []  # drafters of the round before, whose caches lag by no more

    def pace(self, index: int, confidence: float | None = None, draft: str | None = None) -> Source:
        """See `Paces`. Drafters come in order, from 0 on."""
        if index == len(self.sources):
            known = self._known[index] if index < len(self._known) else None
            self.sources.append(Source(index, self.k, known, draft))
        if confidence is not None:
            self.sources[index].asks(confidence)
        return self.sources[index]

    def to_dict(self) -> State:
        """What `from_dict` takes."""
        known = [source.to_dict() for source in self.sources]
        return {"book": self.book.to_dict(), "known": known}

    @classmethod
    def from_dict(cls, saved: State, k: int, ragged: bool = False) -> Adaptive:
        """The controller as it was when it was saved, between requests. Raises KeyError, TypeError
        or ValueError for anything else."""
        known = list(saved["known"])
        for index, each in enumerate(known):
            Source(index, k, each)  # to refuse at once what makes no sense
        return cls(k, CostBook.from_dict(saved["book"]), known, ragged)

    def window(self, seqs: Sequences) -> Sequence[int]:
        """The longest draft of each row that there is room for; how far one goes is up to its
        `Pace`."""
        running = [b for b in range(seqs.batch) if seqs.running[b]]
        limits = room(seqs, self.k)
        self._batch = seqs.batch
        context = max((seqs.lengths[b] for b in running), default=1)
        drawn = any(seqs.params[b].temperature > 0 for b in running)
        self._curve = self.book.curve(self._batch, context, drawn)
        outlooks: dict[str | None, Outlook] = {}
        rows = {seqs.requests[b]: self._row(seqs, b) for b in running}
        self._now = [None] * seqs.batch
        for b in running:
            row = rows[seqs.requests[b]]
            if row.draft not in outlooks:
                outlooks[row.draft] = self._outlook(len(running), limits)
            now = outlooks[row.draft]
            self._now[b] = row, now
            seeded = row.drawn and seqs.params[b].seed is not None and not seqs.coupled
            if limits[b] and not seeded:
                now.rows[b] = row
        self._rows = rows
        for source in self.sources:
            if source.draft in outlooks:
                source.begin(outlooks[source.draft])
        return limits

    def choice(self, row: int) -> Choice | None:
        """What the last window of that row was chosen by; None if it was not running."""
        if (known := self._now[row]) is None:
            return None
        _, now = known
        tried = next((index for b, index in now.probing if b == row), None)
        return Choice(now.count / now.time[0], dict(now.offers), tried, row in now.rows)

    def _row(self, seqs: Sequences, b: int) -> Row:
        """What is known of the request in row b."""
        if (known := self._rows.get(seqs.requests[b])) is not None:
            return known
        params, named = seqs.params[b], {source.draft for source in self.sources}
        draft = params.draft if params.draft in named else None
        return Row(params.temperature > 0, len(self.sources), draft)

    def _outlook(self, count: int, limits: list[int]) -> Outlook:
        assert self._curve is not None
        time = self._curve.values
        step = [c * time[0] for c in self.book.steps(self._batch)]
        return Outlook({}, count, limits, time, step, count / time[0], self._ragged)

    def observe(self, round: Round) -> None:
        """Learn what tokens were accepted, and what the round took."""
        assert self._curve is not None, "a round without a window"
        draft = round.draft
        by = [0] * len(draft.lengths) if draft.by is None else draft.by
        fresh = False
        for b, emitted in enumerate(round.emitted):
            if emitted is None or (known := self._now[b]) is None:
                continue
            row, now = known
            fresh, row.new = fresh or row.new, False
            decided = now.rows.get(b)
            if self.sources and by[b] >= 0:
                self.sources[by[b]].learn(b, decided, row.drawn, draft, emitted)
            if decided is not None:
                self._count_probes(now, b, decided, by[b], emitted)
        if not fresh:
            self._time(round, by)
        self._asked = [] if fresh else sorted({index for index in by if index >= 0})

    def _count_probes(self, now: Outlook, b: int, row: Row, by: int, emitted: Emitted) -> None:
        for index, source in enumerate(self.sources):
            if source.draft != row.draft:
                continue
            probe, asked = source.probe(row), by == index and emitted.drafted > 0
            if asked and (b, index) in now.probing:
                probe.tried(emitted.accepted > 0, source.price)
                if emitted.accepted:
                    row.moods[index].lift()
            elif asked:
                probe.failed = 0 if emitted.accepted else probe.failed
            else:
                probe.passed(len(emitted.tokens))

    def _time(self, round: Round, by: Sequence[int]) -> None:
        """Keep the costs true, but for rounds in which prompts were read."""
        assert self._curve is not None
        seconds, draft, t1 = round.seconds, round.draft, self._curve.values[0]
        steps = [0] * len(self.sources)
        for b, index in enumerate(by):
            if 0 <= index < len(steps):
                steps[index] = max(steps[index], self.sources[index].steps(b, draft))
        taken = [index for index, count in enumerate(steps) if count]
        if len(taken) == 1 and taken[0] in self._asked:
            share = seconds.draft / steps[taken[0]] / t1
            self.book.stepped(self._batch, taken[0], share)
        rows = [n for n, emitted in zip(draft.lengths, round.emitted, strict=True) if emitted]
        width = mean(rows) if self._ragged else draft.tokens.shape[1]
        self._curve.add(1 + width, seconds.target + seconds.overhead)
