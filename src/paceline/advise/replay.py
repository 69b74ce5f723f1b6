"""Drafters asked along an answer that is known: what they would have been accepted, at any K.

A greedy target accepts exactly the drafted tokens that stand in its answer. So its passes need not
be run again: a round at `place` drafts, its accepted tokens are those that agree with the recorded
ones, one more follows, and the next round begins there. What comes out is, round for round, what
the loop does with that drafter and that K.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import torch

from paceline.advise.stage import Lane
from paceline.advise.timing import timed
from paceline.core.protocols import Drafter
from paceline.core.stats import Stats
from paceline.core.types import Emitted, Seconds


@dataclass(frozen=True)
class Said:
    """What a drafter said at one place: `drafted` tokens, the first `agreeing` of which stand in
    the answer, in so many `seconds`."""

    drafted: int
    agreeing: int
    seconds: float


class Says(Protocol):
    """A drafter beside an answer."""

    def at(self, place: int, k: int) -> Said:
        """What it says behind the first `place` tokens of the answer, asked for `k`."""
        ...


def ask(lane: Lane, drafter: Drafter, place: int, k: int) -> Said:
    """Ask a drafter. What it reads of the target has been read, or is read on its time."""
    seqs = lane.at(place)
    with torch.no_grad():
        seconds, draft = timed(lane.cached.model.device, lambda: drafter.propose(seqs, [k]))
    tokens: list[int] = draft.tokens[0, : draft.lengths[0]].tolist()
    agreeing = 0
    for token, known in zip(tokens, lane.answer[place:], strict=False):
        if token != known:
            break
        agreeing += 1
    return Said(len(tokens), agreeing, seconds)


@dataclass(frozen=True)
class Scanning:
    """A drafter that is a function of the committed tokens: asked anew each time, as what it says
    may depend on how much it is asked for. `cost()`: its seconds in a round. Asked again and again
    it is much quicker than between passes, which leave nothing of it in the processor's caches."""

    lane: Lane
    drafter: Drafter
    cost: Callable[[], float]

    def at(self, place: int, k: int) -> Said:
        return replace(ask(self.lane, self.drafter, place, k), seconds=self.cost())


@dataclass(frozen=True)
class Stepping:
    """A drafter that goes token by token, by what it said at many places of an answer when asked
    for `depth` tokens: a shorter draft is the beginning of a longer one.

    A draft longer than `depth` goes on, where all of it agrees, with what was said behind it; where
    it does not, what follows is rejected and only counted. That is exact for a draft model, which
    says the same of the same tokens, and nearly so for others: a head looks at the target's states
    afresh there, and where text is translated the end of a draft may have read on otherwise.
    `cost(n)`: the seconds of a draft for which it took n steps. `exactly[k]`: what it said when
    asked for just k tokens, by place, where it was.
    """

    said: Mapping[int, Said]
    depth: int
    cost: Callable[[int], float]
    exactly: dict[int, Mapping[int, Said]] = field(default_factory=dict[int, Mapping[int, Said]])

    def at(self, place: int, k: int) -> Said:
        if (known := self.exactly.get(k, {}).get(place)) is not None:
            return replace(known, seconds=self.cost(min(k, known.drafted + 1)))
        drafted = agreeing = 0
        said = self.said[place]
        while True:
            part = min(said.drafted, k - drafted)
            same = min(said.agreeing, part)
            ends = said.drafted < self.depth  # by itself: it would not have drafted more
            drafted, agreeing = drafted + part, agreeing + same
            if drafted == k or ends:
                break
            following = self.said.get(place + drafted)
            if same < part or following is None:
                drafted = k
                break
            said = following
        return Said(drafted, agreeing, self.cost(min(k, drafted + 1)))


def survey(lane: Lane, drafter: Drafter, places: Iterable[int], depth: int) -> dict[int, Said]:
    """What a drafter says at each place, asked for `depth` tokens. From the last place to the
    first: drafters that write into the target's cache write behind what the next one needs."""
    with lane.kept():
        return {place: ask(lane, drafter, place, depth) for place in sorted(places, reverse=True)}


@dataclass(frozen=True)
class Turn:
    """One round: what it committed, and the seconds of drafting."""

    emitted: Emitted
    draft_s: float


def replay(
    answer: Sequence[int], parts: Sequence[Says], k: int, start: int, stop: int, limit: int
) -> list[Turn]:
    """The rounds from place `start` of an answer until `stop` of its tokens are there, with drafts
    of at most `k` by the first of `parts` that says anything. `limit`: how long the answer might
    have been; the last token before it is not drafted (see `Fixed`)."""
    turns: list[Turn] = []
    place = start
    while place < stop:
        said, seconds = Said(0, 0, 0.0), 0.0
        room = min(k, limit - place - 1)
        for part in parts if room else ():
            said = part.at(place, room)
            seconds += said.seconds
            if said.drafted:
                break
        end = min(place + said.agreeing + 1, len(answer))
        accepted = min(said.agreeing, end - place)
        turns.append(Turn(Emitted(list(answer[place:end]), said.drafted, accepted), seconds))
        place = end
    return turns


def counted(turns: Iterable[Turn]) -> Stats:
    """α, τ and the like of these rounds."""
    stats = Stats()
    for turn in turns:
        stats.add(turn.emitted, Seconds(turn.draft_s, 0.0, 0.0))
    return stats
