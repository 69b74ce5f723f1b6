"""The committed tokens: the only state that is true. Everything else is a cache over them."""

from __future__ import annotations

import copy
import secrets
from collections.abc import Collection, Sequence
from typing import cast

import torch
from torch import Tensor

from paceline.core.noise import DRAFT, Noise, draw, race, uniforms
from paceline.core.params import SamplingParams
from paceline.core.target import Prefix, Target, target
from paceline.core.tree import heights, parents_of
from paceline.core.types import Draft, Emitted, Finish, Verdict
from paceline.errors import PacelineError


class Sequences:
    """B rows of at most S tokens, on the host.

    `tokens` [B, S] int64, right-padded; `lengths[b]` of them are committed, the first
    `prompts[b]` of which were given. `running[b]`: the row still grows, up to `limits[b]` tokens.
    `params[b]`: its sampling; `eos[b]`: the tokens that end it; `seeds[b]`: its randomness;
    `requests[b]`: a new object for each request, by which it is known.
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
        if not ids:
            raise PacelineError("the prompt is empty: it needs at least one token")
        if len(ids) >= room:
            raise PacelineError(
                f"the prompt has {len(ids)} tokens and the context holds {room}: "
                f"shorten it to at most {room - 1}"
            )
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
        self.running[row] = True

    def finish(self, row: int) -> None:
        """End a row, whatever it still wanted."""
        self.running[row] = False

    def only(self, rows: Collection[int]) -> Sequences:
        """The same sequences with no other rows running: for a drafter that is to skip some."""
        view = copy.copy(self)
        view.running = [run and b in rows for b, run in enumerate(self.running)]
        return view

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
        return target(logits, [self._prefix(b, draft) for b in range(self.batch)])

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
            if token in self.eos[row]:
                finish = "stop"
                break
            if start + len(fresh) == self.limits[row]:
                finish = "length"
                break
        self.tokens[row, start : start + len(fresh)] = torch.tensor(fresh, dtype=torch.int64)
        self.lengths[row] = start + len(fresh)
        self.running[row] = finish is None
        return Emitted(fresh, drafted, min(accepted, len(fresh)), finish)


def _within_reach(draft: Draft, verdict: Verdict, row: int, accepted: int) -> int:
    """How many drafted tokens could have been accepted along the path that was."""
    if draft.parents is None or verdict.path is None:
        return draft.lengths[row]
    last = int(verdict.path[row, accepted - 1]) if accepted else -1
    return accepted + heights(parents_of(draft, row))[last + 1]
