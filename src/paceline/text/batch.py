"""Requests side by side: each has a row of its own from its admission to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol, runtime_checkable

import torch

from paceline.controllers.adaptive import Choice
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.protocols import Syncs
from paceline.core.sequences import Sequences
from paceline.core.types import Emitted, Round
from paceline.text.completion import Piece, Seen
from paceline.text.parts import Parts
from paceline.text.request import Request

_FAIR = 4  # every so many turns the prompt that came first is read first, and not the shortest


class Grown(NamedTuple):
    """What one round did for one request: `emitted` as it counts, its `piece`, and `ended`: the
    row is free again."""

    request: Request
    emitted: Emitted
    piece: Piece
    ended: bool


@runtime_checkable
class Chooses(Protocol):
    """A controller that can say why."""

    def choice(self, row: int) -> Choice | None:
        """See `Adaptive.choice`."""
        ...


class Batch:
    """`slots` rows of at most `length` tokens. What a row has read stays when its request ends: a
    later prompt that begins with the same tokens goes on from there, in whichever row it is.

    A request's answer depends on no other request: on a CPU to the bit.
    """

    def __init__(self, parts: Parts, slots: int, length: int) -> None:
        self.slots = slots
        self.length = length
        self._eos = parts.tokenizer.eos_ids
        self._seqs = Sequences(slots, length, parts.coupled)
        if parts.prepare is not None:
            parts.prepare(slots)
        target = CachedModel(parts.model, slots, length, parts.tokenizer.size)
        drafter = parts.make_drafter(slots, length, target)
        self._loop = Loop(target, drafter, parts.verifier, parts.controller)
        self._requests: list[Request | None] = [None] * slots
        self._unread: dict[int, int] = {}  # tokens of prompts, by row, in the order of admission
        self._freed = list(range(slots))  # free rows, the one that was free for longest first
        self._turn = 0

    @property
    def free(self) -> int:
        """How many rows are free."""
        return len(self._freed)

    @property
    def requests(self) -> list[Request]:
        """Those that have a row."""
        return [request for request in self._requests if request is not None]

    @property
    def unread(self) -> int:
        """Tokens of prompts that are still to be read."""
        return sum(self._unread.values())

    def admit(self, request: Request) -> None:
        """Give it the free row that has read most of its prompt. Raises PacelineError for a prompt
        that is empty or has no room, IndexError if no row is free."""
        known = self._loop.target.known(torch.tensor(request.ids, dtype=torch.int64))
        row = max(self._freed, key=lambda row: known[row])  # the first of them on a tie
        self._seqs.admit(row, request.ids, request.params, self._eos)
        self._freed.remove(row)
        self._requests[row] = request
        if len(request.ids) > 1:  # the last one is read in the first round
            self._unread[row] = len(request.ids) - 1

    def remove(self, request: Request) -> None:
        """Free its row, whatever it still wanted; nothing happens if it has none."""
        if request in self._requests:
            self._free(self._requests.index(request))

    def read(self, budget: int) -> None:
        """Read about `budget` tokens of the prompts that are not read yet, the shortest rest first,
        and now and then the one that came first."""
        self._turn += 1
        rows = list(self._unread)
        if self._turn % _FAIR:
            rows.sort(key=lambda row: self._unread[row])
        for row in rows:
            if budget <= 0:
                return
            part = self._seqs.select([row])
            left = self._sync(part, 0)  # what is known already is not counted
            if left:
                left, before = self._sync(part, budget), left
                budget -= before - left
            self._unread[row] = left
            if not left:
                del self._unread[row]

    @torch.no_grad()
    def _sync(self, part: Sequences, budget: int) -> int:
        """How many tokens target and drafter have still to read after so many."""
        unread = self._loop.target.sync(part, 0)
        left = self._loop.target.sync(part, budget) if unread and budget else unread
        if isinstance(self._loop.drafter, Syncs):
            left += self._loop.drafter.sync(part, 0 if left else budget - (unread - left))
        return left

    def step(self) -> list[Grown]:
        """One round for all requests whose prompts are read; nothing if there is none."""
        running = enumerate(self._requests)
        rows = [b for b, request in running if request is not None and b not in self._unread]
        if not rows:
            return []
        round = self._loop.step(self._seqs.select(rows))
        grown: list[Grown] = []
        for i, row in enumerate(rows):
            request, emitted = self._requests[row], round.emitted[i]
            assert request is not None
            assert emitted is not None
            emitted, piece = request.add(round, i, emitted)
            if request.rounds:
                piece = replace(piece, seen=self._seen(round, i, row, request, emitted))
            if emitted.finish is not None:
                self._free(row)
            grown.append(Grown(request, emitted, piece, emitted.finish is not None))
        return grown

    def _seen(self, round: Round, i: int, row: int, request: Request, emitted: Emitted) -> Seen:
        """Row i of the round, which is `row` here."""
        controller, whole = self._loop.controller, round.emitted[i]
        assert whole is not None
        base = self._seqs.lengths[row] - len(whole.tokens)
        choice = controller.choice(i) if isinstance(controller, Chooses) else None
        seed = self._seqs.seeds[row]
        return Seen(round, i, request.params, emitted, base, seed, choice)

    def _free(self, row: int) -> None:
        self._seqs.finish(row)
        self._requests[row] = None
        self._unread.pop(row, None)
        self._freed.append(row)
