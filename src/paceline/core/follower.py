"""A head with a cache of its own: it follows a target through what that one has computed.

Its entry j is made of the target's features at position j and the token at j + 1, and looks at the
entries before it; what comes out of the last entry guesses the token behind the last one committed.
While it drafts, its own states stand in for features that nobody has computed yet. Such entries are
never counted: once the target has read the tokens, they are computed again from its features.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.core.cached import CHUNK, CachedModel
from paceline.core.sequences import Sequences

_FEW = 8  # so few missing entries are read for all rows at once, padded


class Follows(Protocol):
    """The network of such a head. D: the width of its own states, F: of the target's features."""

    def new_cache(self, batch: int, length: int) -> Any:
        """Room for `batch` rows of `length` entries; the contents mean nothing yet."""
        ...

    def combine(self, features: Tensor) -> Tensor:
        """The target's features [B, T, F] -> states [B, T, D] to read."""
        ...

    def forward(
        self,
        states: Tensor,
        tokens: Tensor,
        at: Sequence[int],
        cache: Any,
        rows: Sequence[int],
        *,
        parents: Tensor | None = None,
    ) -> Tensor:
        """Read `states` [B, T, D], each with the token [B, T] that follows it, into entries from
        `at[b]` on of row `rows[b]`; entry i sees the entries 0..i, or with `parents` those that a
        `Branching` model's node would. The states [B, T, D] that come out: what `score` takes,
        and what stands in for the next position's features."""
        ...

    def score(self, states: Tensor) -> Tensor:
        """Logits [N, V'] of what comes out as `states` [N, D]."""
        ...


class Follower:
    """`model` beside `target`, whose `hidden` holds the features that it reads.

    `ids` [B, S] holds the tokens that the entries were computed from (entry j: those up to j + 1)
    and `filled[b]` how many entries of row b were computed from the target's own features; row b of
    some sequences has row `slots[b]` of all that.
    """

    def __init__(self, target: CachedModel, model: Follows) -> None:
        batch, length = target.ids.shape
        self.target = target
        self.model = model
        self.cache = model.new_cache(batch, length)
        self.filled = [0] * batch
        self.ids = torch.full((batch, length), -1, dtype=torch.int64)
        self._states = torch.empty(0)  # [B, n, D]: of the last token, or of a tree's so far

    def seen(self, seqs: Sequences, row: int) -> int:
        """How many leading entries of `row` were computed from its committed tokens."""
        slot = seqs.slots[row]
        most = min(self.filled[slot], seqs.lengths[row] - 1)
        if most <= 0:
            return 0
        same = self.ids[slot, : most + 1] == seqs.tokens[row, : most + 1]
        return most if bool(same.all()) else max(0, int(same.to(torch.int8).argmin()) - 1)

    def read(self, seqs: Sequences) -> Tensor:
        """Logits [B, V'] behind the last committed token of each running row, which has at least
        two; undefined for the others. The target reads all but that token first."""
        self.target.sync(seqs)
        ends = [n - 1 if run else 0 for n, run in zip(seqs.lengths, seqs.running, strict=True)]
        start = [
            min(self.seen(seqs, b), end - 1) if end else self.filled[seqs.slots[b]]
            for b, end in enumerate(ends)
        ]
        for b, end in enumerate(ends):
            if end - start[b] > _FEW:
                self._catch_up(seqs, b, start[b], None)
                start[b] = end - 1
        count = [end - begin if end else 0 for begin, end in zip(start, ends, strict=True)]
        states = self._read(seqs, start, count, range(seqs.batch))
        rows = torch.arange(len(count), device=states.device)
        last = torch.tensor([max(0, n - 1) for n in count]).to(states.device, non_blocking=True)
        self._states = states[rows, last][:, None]
        return self.model.score(self._states[:, 0])

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """Read all entries but the last of every running row, as far as the target has read, at
        most `budget` of them. How many are still unread of those."""
        left = 0
        for b in range(seqs.batch):
            if not seqs.running[b]:
                continue
            start = self.seen(seqs, b)
            end = min(seqs.lengths[b] - 2, self.target.filled[seqs.slots[b]])
            if start < end and (budget is None or budget > 0):
                read = self._catch_up(seqs, b, start, budget, end)
                budget = None if budget is None else budget - read
                start += read
            left += max(0, end - start)
        return left

    def _catch_up(
        self, seqs: Sequences, row: int, start: int, budget: int | None, end: int | None = None
    ) -> int:
        """Read a row's entries from `start` on, to the last but one or to `end`, at most `budget`;
        how many."""
        end = seqs.lengths[row] - 2 if end is None else end
        stop = end if budget is None else min(end, start + budget)
        for at in range(start, stop, CHUNK):
            self._read(seqs, [at], [min(CHUNK, stop - at)], [row])
        return stop - start

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """Logits [B, V'] behind one more token a row, `tokens` [B]: the draft's token number
        `behind` (from 0). Call after `read`, for `behind` = 0, 1, …"""
        at = self._places(seqs, behind)
        states, tokens = self._states, tokens[:, None]
        self._states = self.model.forward(states, tokens, at, self.cache, seqs.slots)
        return self.model.score(self._states[:, 0])

    def level(self, seqs: Sequences, tokens: Tensor, parents: Tensor) -> Tensor:
        """Logits [B, W, V'] behind the last nodes of a tree; see `CachedModel.level`."""
        before = parents.shape[1] - tokens.shape[1]
        at = [place + before for place in self._places(seqs, 0)]
        # the pending token's state comes first
        above = (parents[:, before:, None] + 1).expand(-1, -1, self._states.shape[-1])
        states = self._states.gather(1, above.to(self._states.device, non_blocking=True))
        tokens = tokens.to(states.device, non_blocking=True)
        states = self.model.forward(states, tokens, at, self.cache, seqs.slots, parents=parents)
        self._states = torch.cat([self._states, states], 1)
        return self.model.score(states.flatten(0, 1)).view(*tokens.shape, -1)

    def _places(self, seqs: Sequences, behind: int) -> list[int]:
        """Where the entry goes that is made with the drafted token `behind`."""
        return [
            n - 1 + behind if run else self.filled[slot]
            for n, run, slot in zip(seqs.lengths, seqs.running, seqs.slots, strict=True)
        ]

    def _read(
        self, seqs: Sequences, at: Sequence[int], count: Sequence[int], rows: Sequence[int]
    ) -> Tensor:
        """One pass over the entries from `at` on of those rows, the first `count[i]` of each real.
        Keeps `ids` and `filled` true, also if the pass is interrupted."""
        slots = [seqs.slots[b] for b in rows]
        features = self.target.hidden
        assert features is not None, "the target has read nothing yet"
        width = max(1, *count)
        for slot, start, n in zip(slots, at, count, strict=True):
            if n:
                self.filled[slot] = min(self.filled[slot], start)
        # both buffers have slack behind the longest sequence, so that padding ends within them
        known = torch.stack([features[b, s : s + width] for b, s in zip(slots, at, strict=True)])
        next_ids = [_padded(seqs.tokens[b, s + 1 :], width) for b, s in zip(rows, at, strict=True)]
        tokens = torch.stack(next_ids).to(known.device, non_blocking=True)
        states = self.model.forward(self.model.combine(known), tokens, at, self.cache, slots)
        for b, slot, start, n in zip(rows, slots, at, count, strict=True):
            if n:
                read = slice(start, start + n + 1)
                self.ids[slot, read] = seqs.tokens[b, read]
                self.filled[slot] = start + n
        return states


def _padded(tokens: Tensor, width: int) -> Tensor:
    """The first `width` tokens; zeros past the end of the buffer."""
    part = tokens[:width]
    return torch.nn.functional.pad(part, (0, width - len(part)))
