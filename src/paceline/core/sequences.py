"""The committed tokens: the only state that is true. Everything else is a cache over them."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from paceline.core.noise import DRAFT, Noise, draw, race, uniforms
from paceline.core.params import SamplingParams
from paceline.core.protocols import Matcher
from paceline.core.target import Prefix, Target, target
from paceline.core.tree import heights, parents_of
from paceline.core.types import Draft, Emitted, Finish, Verdict
from paceline.errors import PacelineError


class Sequences:
    """B rows of at most S tokens, on the host.

    `tokens` [B, S] int64, right-padded; `lengths[b]` of them are committed, the first
    `prompts[b]` of which were given. `running[b]`: the row still grows, up to `limits[b]` tokens.
    `params[b]`: its sampling; `eos[b]`: the tokens that end it; `seeds[b]`: its randomness;
    `requests[b]`: a new object for each request, by which it is known; `matchers[b]`: of its
    grammar, if it has one. `slots[b]`: the row of every cache that this row is read into.
    `coupled`: drafters draw by the race that the target's tokens are drawn by (see `race`); only
    for a verifier that draws so too, as a draft is then not independent of the target's tokens.
    """

    def __init__(self, batch: int, length: int, coupled: bool = False) -> None:
        self.coupled = coupled
        self.tokens = torch.zeros(batch, length, dtype=torch.int64)
        self.lengths = [0] * batch
        self.prompts = [0] * batch
        self.limits = [0] * batch
        self.running = [False] * batch
        self.params = [SamplingParams()] * batch
        self.eos: list[frozenset[int]] = [frozenset()] * batch
        self.seeds = [0] * batch
        self.requests = [object()] * batch
        self.matchers: list[Matcher | None] = [None] * batch
        self.slots = list(range(batch))
        self._origin: Sequences | None = None  # of a selection: what it was selected from
        self._shared = False  # with whom it may share its tokens

    @property
    def batch(self) -> int:
        """How many rows there are, running or not."""
        return len(self.lengths)

    def admit(
        self, row: int, ids: Sequence[int], params: SamplingParams, eos: Collection[int] = ()
    ) -> None:
        """Start a request in `row` from the prompt `ids`. Its end tokens are `eos` (unless
        `ignore_eos`) and `params.stop_token_ids`. Raises PacelineError if the prompt is empty or
        leaves no room for a token."""
        room = self.tokens.shape[1]
        check_room(len(ids), room)
        self.tokens[row, : len(ids)] = torch.tensor(ids, dtype=torch.int64)
        self.lengths[row] = self.prompts[row] = len(ids)
        wanted = room if params.max_tokens is None else len(ids) + params.max_tokens
        self.limits[row] = min(room, wanted)
        self.params[row] = params
        own = frozenset[int]() if params.ignore_eos else frozenset(eos)
        self.eos[row] = own | frozenset(params.stop_token_ids)
        fresh = 0 if self.coupled else secrets.randbits(64)
        self.seeds[row] = fresh if params.seed is None else params.seed
        self.requests[row] = object()
        self.matchers[row] = params.grammar.start() if params.grammar else None
        self.running[row] = True

    def finish(self, row: int) -> None:
        """End a row, whatever it still wanted."""
        self.running[row] = False

    def only(self, rows: Collection[int]) -> Sequences:
        """The same sequences with no other rows running: for a drafter that is to skip some."""
        view = copy.copy(self)
        view.running = [run and b in rows for b, run in enumerate(self.running)]
        return view

    def select(self, rows: Sequence[int]) -> Sequences:
        """Those rows alone, in that order, to be read and drafted for side by side. What is
        committed to them here is committed to these sequences too."""
        part = copy.copy(self)
        part._origin = self
        part.slots = [self.slots[b] for b in rows]
        part.lengths = [self.lengths[b] for b in rows]
        part.prompts = [self.prompts[b] for b in rows]
        part.limits = [self.limits[b] for b in rows]
        part.running = [self.running[b] for b in rows]
        part.params = [self.params[b] for b in rows]
        part.eos = [self.eos[b] for b in rows]
        part.seeds = [self.seeds[b] for b in rows]
        part.requests = [self.requests[b] for b in rows]
        part.matchers = [self.matchers[b] for b in rows]
        first, last = rows[0], rows[-1]
        part._shared = list(rows) == list(range(first, last + 1))
        part.tokens = self.tokens[first : last + 1] if part._shared else self.tokens[list(rows)]
        return part

    def committed(self, row: int) -> Tensor:
        """The committed ids of a row, [lengths[row]] int64: a view."""
        return self.tokens[row, : self.lengths[row]]

    @property
    def argmax_suffices(self) -> bool:
        """Whether no running row needs more of the target than its likeliest tokens."""
        rows = zip(self.params, self.running, strict=True)
        return all(params.argmax_suffices for params, run in rows if run)

    def probs(self, logits: Tensor, draft: Draft) -> Target:
        """p from the target's `logits` [B, K+1, V], position by position behind `draft`."""
        p = target(logits, [self._prefix(b, draft) for b in range(self.batch)])
        verify = [params.verify for params in self.params]
        return replace(p, verify=verify) if any(verify) else p

    def _prefix(self, row: int, draft: Draft) -> Prefix | None:
        if not self.running[row]:
            return None
        committed, given = self.committed(row), self.prompts[row]
        proposed = draft.tokens[row, : draft.lengths[row]]
        return Prefix(
            self.params[row],
            committed[:given],
            committed[given:],
            proposed,
            self.eos[row],
            None if draft.parents is None else parents_of(draft, row),
            self.matchers[row],
        )

    def noise(self, draft: Draft) -> Noise:
        """The uniforms of this round's verification."""
        return Noise.at(self.seeds, self.lengths, draft.tokens.shape[1])

    def draft_noise(self, k: int) -> Tensor:
        """[B, k] uniforms for a drafter's own draws in this round."""
        return uniforms(self.seeds, self.lengths, DRAFT, range(k))

    def draw_draft(self, q: Tensor, j: int, ids: Tensor | None = None) -> Tensor:
        """Token number `j` (from 0) of each row's draft: an index [B] drawn from `q` [B, V'] (>= 0,
        any positive sum); -1 where that is no distribution. `ids` [V']: the target's id of each
        index (None: the same)."""
        if self.coupled:
            return race(q, self.seeds, [length + j for length in self.lengths], ids)
        u = self.draft_noise(j + 1)[:, j]
        return draw(q, u.to(q.device, non_blocking=True))

    def commit(self, verdict: Verdict, draft: Draft) -> list[Emitted | None]:
        """Make the verdict's tokens real, cut at end tokens and limits: the only place where a row
        grows, and the only copy from the device in a round. None for rows that were not running.

        An end token is kept and ends the row with "stop", also if it is the last that fits.
        """
        packed = torch.cat([verdict.accepted[:, None], verdict.tokens], 1)
        host = cast("list[list[int]]", packed.tolist())  # pyright: ignore[reportUnknownMemberType]
        return [
            self._commit(b, host[b][0], host[b][1:], _within_reach(draft, verdict, b, host[b][0]))
            if self.running[b]
            else None
            for b in range(self.batch)
        ]

    def _commit(self, row: int, accepted: int, tokens: list[int], drafted: int) -> Emitted:
        fresh: list[int] = []
        finish: Finish | None = None
        start = self.lengths[row]
        for token in tokens[: accepted + 1]:
            if token < 0:
                finish = "error"
                break
            fresh.append(token)
            if token in self.eos[row] or self._complete(row, fresh):
                finish = "stop"
                break
            if start + len(fresh) == self.limits[row]:
                finish = "length"
                break
        self._grow(row, torch.tensor(fresh, dtype=torch.int64), finish is None)
        return Emitted(fresh, drafted, min(accepted, len(fresh)), finish)

    def _complete(self, row: int, fresh: list[int]) -> bool:
        """Whether the row's grammar ends it behind the `fresh` tokens."""
        if (matcher := self.matchers[row]) is None:
            return False
        output: list[int] = self.committed(row)[self.prompts[row] :].tolist()  # pyright: ignore
        return matcher.complete([*output, *fresh])

    def _grow(self, row: int, fresh: Tensor, running: bool) -> None:
        start, slot = self.lengths[row], self.slots[row]
        self.lengths[row] = end = start + len(fresh)
        if not self._shared:
            self.tokens[row, start:end] = fresh
        self.running[row] = running
        if (origin := self._origin) is not None:
            origin._grow(origin.slots.index(slot), fresh, running)


def check_room(prompt: int, room: int) -> None:
    """Raise PacelineError for a prompt of no tokens, or of so many that `room` has none left."""
    if not prompt:
        raise PacelineError("the prompt is empty: it needs at least one token")
    if prompt >= room:
        raise PacelineError(
            f"the prompt has {prompt} tokens and the context holds {room}: "
            f"shorten it to at most {room - 1}"
        )


def _within_reach(draft: Draft, verdict: Verdict, row: int, accepted: int) -> int:
    """How many drafted tokens could have been accepted along the path that was."""
    if draft.parents is None or verdict.path is None:
        return draft.lengths[row]
    last = int(verdict.path[row, accepted - 1]) if accepted else -1
    return accepted + heights(parents_of(draft, row))[last + 1]
