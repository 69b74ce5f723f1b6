"""The window that tunes itself: as many drafted tokens as make the most tokens a second, or none.

Every round, from what a token's chances are (`acceptance`) and what passes cost (`cost`), the rate
of each drafter is worked out, and of none at all; the best one is asked, and its draft goes on as
long as the next token's expected gain pays for what it costs (`plan`). Where nothing pays, the
round is one of plain decoding, and now and then a single token is drafted to see whether that has
changed. Such probes come ever more rarely while they fail, so that in N tokens what they lose grows
as N^(2/3): slower than the text, and the wait between two is about N^(1/3) times the first.

Rows of a batch are read in one pass, so they share its cost and are decided for together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from paceline.controllers.cost import CostBook, Saved
from paceline.controllers.fixed import room
from paceline.controllers.source import Known, Outlook, Row, Source
from paceline.core.sequences import Sequences
from paceline.core.types import Emitted, Round


class State(TypedDict):
    """An `Adaptive` as JSON has it."""

    book: Saved
    known: list[Known]


class Adaptive:
    """Windows of up to `k` tokens, by the costs in `book`, which every round keeps true.

    A request's mood is its own; what its drafts teach is for all that come after. Rows that are
    drawn from a seed keep the window `k`, as with a window that depends on what rounds took they
    would not come out the same again; those of a `coupled` batch come out the same whatever is
    drafted, and are tuned. `known`: of each drafter, from a `to_dict` before.
    """

    def __init__(self, k: int, book: CostBook, known: Sequence[Known] = ()) -> None:
        self.k = k
        self.book = book
        self.sources: list[Source] = []
        self._known = known
        self._rows: dict[int, Row] = {}
        self._now: Outlook | None = None
        self._drawn = False
        self._batch = 0
        self._context = 0
        self._asked: list[int] = []  # drafters of the round before, whose caches lag by no more

    def pace(self, index: int, confidence: float | None = None) -> Source:
        """See `Paces`. Drafters come in order, from 0 on."""
        if index == len(self.sources):
            known = self._known[index] if index < len(self._known) else None
            self.sources.append(Source(index, self.k, known))
        if confidence is not None:
            self.sources[index].asks(confidence)
        return self.sources[index]

    def to_dict(self) -> State:
        """What `from_dict` takes."""
        known = [source.to_dict() for source in self.sources]
        return {"book": self.book.to_dict(), "known": known}

    @classmethod
    def from_dict(cls, saved: State, k: int) -> Adaptive:
        """The controller as it was when it was saved, between requests. Raises KeyError, TypeError
        or ValueError for anything else."""
        known = list(saved["known"])
        for index, each in enumerate(known):
            Source(index, k, each)  # to refuse at once what makes no sense
        return cls(k, CostBook.from_dict(saved["book"]), known)

    def window(self, seqs: Sequences) -> Sequence[int]:
        """The longest draft of each row that there is room for; how far one goes is up to its
        `Pace`."""
        running = [b for b in range(seqs.batch) if seqs.running[b]]
        limits = room(seqs, self.k)
        rows: dict[int, Row] = {}
        for b in running:
            row = self._rows.get(b)
            if row is None or row.request is not seqs.requests[b]:
                drawn = seqs.params[b].temperature > 0
                self._rows[b] = row = Row(seqs.requests[b], drawn, len(self.sources))
            seeded = row.drawn and seqs.params[b].seed is not None and not seqs.coupled
            if limits[b] and not seeded:
                rows[b] = row
        self._batch = seqs.batch
        self._context = max((seqs.lengths[b] for b in running), default=1)
        self._drawn = any(self._rows[b].drawn for b in running)
        time = self.book.curve(self._batch, self._context, self._drawn).values
        now = Outlook(
            rows=rows,
            count=len(running),
            limits=limits,
            time=time,
            step=[c * time[0] for c in self.book.steps(self._batch)],
            rate=len(running) / time[0],
        )
        for source in self.sources:
            source.begin(now)
        self._now = now
        return limits

    def observe(self, round: Round) -> None:
        """Learn what tokens were accepted, and what the round took."""
        now = self._now
        assert now is not None, "a round without a window"
        draft = round.draft
        by = [0] * len(draft.lengths) if draft.by is None else draft.by
        fresh = False
        for b, emitted in enumerate(round.emitted):
            if emitted is None:
                continue
            row = self._rows[b]
            fresh, row.new = fresh or row.new, False
            decided = now.rows.get(b)
            if self.sources and by[b] >= 0:
                self.sources[by[b]].learn(b, decided, row.drawn, draft, emitted)
            if decided is not None:
                self._count_probes(now, b, decided, by[b], emitted)
        if not fresh:
            self._time(now, round, by)
        self._asked = [] if fresh else sorted({index for index in by if index >= 0})

    def _count_probes(self, now: Outlook, b: int, row: Row, by: int, emitted: Emitted) -> None:
        for index, source in enumerate(self.sources):
            probe, asked = source.probe(row), by == index and emitted.drafted > 0
            if asked and (b, index) in now.probing:
                probe.tried(emitted.accepted > 0, source.price)
                if emitted.accepted:
                    row.moods[index].lift()
            elif asked:
                probe.failed = 0 if emitted.accepted else probe.failed
            else:
                probe.passed(len(emitted.tokens))

    def _time(self, now: Outlook, round: Round, by: Sequence[int]) -> None:
        """Keep the costs true, but for rounds in which prompts were read."""
        seconds, draft = round.seconds, round.draft
        curve = self.book.curve(self._batch, self._context, self._drawn)
        steps = [0] * len(self.sources)
        for b, index in enumerate(by):
            if 0 <= index < len(steps):
                steps[index] = max(steps[index], self.sources[index].steps(b, draft))
        taken = [index for index, count in enumerate(steps) if count]
        if len(taken) == 1 and taken[0] in self._asked:
            share = seconds.draft / steps[taken[0]] / now.time[0]
            self.book.stepped(self._batch, taken[0], share)
        curve.add(draft.tokens.shape[1] + 1, seconds.target + seconds.overhead)
