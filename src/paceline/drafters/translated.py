"""A draft model with a vocabulary of its own reads what is committed in the target's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from paceline.core.cached import CachedModel
from paceline.core.sequences import Sequences


class ReadsTokens(Protocol):
    """The draft's ids for the target's tokens."""

    def read(self, tokens: Sequence[int], first: bool) -> tuple[int, list[int], list[int]]:
        """For `tokens`, which begin at the beginning (`first`) or where an earlier call settled
        everything before: how many of them are settled, the draft's ids for these, which no later
        token changes, and the ids for the others. Together they are a function of the whole
        sequence, however it is cut into calls."""
        ...

    def longer(self, draft_id: int) -> Mapping[int, int]:
        """Draft ids that begin with the string of `draft_id` and go on, for which the target has no
        token, and for each the target's id of what it adds (-1: none)."""
        ...


class Reader:
    """A draft model's view of the committed text: rows of its own ids, and a cache over them.

    `make(length)` gives the model behind a cache for `batch` rows of `length` ids. The draft may
    need more ids for a text than the target: the cache starts with room for `length` and is made
    anew, twice as long, when a row outgrows it. Beyond `context` ids, what the draft model was made
    for, a row is not drafted.
    """

    def __init__(
        self,
        make: Callable[[int], CachedModel],
        text: ReadsTokens,
        batch: int,
        length: int,
        context: int,
    ) -> None:
        self._make, self._text, self._context = make, text, context
        self._own = self._now = Sequences(batch, min(length, context))
        self._cached = make(min(length, context))
        # the target's tokens that are settled, and how many ids of the draft's they are
        self._settled = [(torch.empty(0, dtype=torch.int64), 0)] * batch

    @property
    def device(self) -> torch.device:
        """Where the model's logits are."""
        return self._cached.model.device

    def follow(self, seqs: Sequences, k: Sequence[int]) -> list[int]:
        """Take what the running rows with `k[b]` > 0 have committed. How many ids, at most `k[b]`,
        the draft model may propose behind each: the other rows are left alone."""
        for b, slot in enumerate(seqs.slots):
            self._own.running[slot] = bool(seqs.running[b] and k[b]) and self._take(seqs, b)
        self._now = self._own.select(seqs.slots)
        rows = zip(k, self._now.lengths, self._now.running, strict=True)
        return [min(n, self._context - length + 1) if run else 0 for n, length, run in rows]

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """Take what the running rows have committed, and read at most `budget` ids of it; how many
        are still unread. See `paceline.core.protocols.Syncs`."""
        self.follow(seqs, [1] * seqs.batch)
        return self._cached.sync(self._now, budget)

    def tail(self, seqs: Sequences, row: int) -> list[int]:
        """The target's tokens at the end of a row whose ids later tokens may change."""
        return _ids(seqs.committed(row)[len(self._settled[seqs.slots[row]][0]) :])

    def read(self) -> Tensor:
        """Logits [B, V] over the draft's ids behind each row that `follow` took."""
        return self._cached.read(self._now)

    def last(self, row: int) -> int:
        """The last of the draft's ids in a row that `follow` took."""
        return int(self._now.tokens[row, self._now.lengths[row] - 1])

    def longer(self, row: int) -> Mapping[int, int]:
        """What the draft model might rather have said than the row's last id: longer tokens that
        begin with it, and for each the target's id of what it adds (-1: none)."""
        several = self._now.lengths[row] > 1  # else nothing stands before it to ask the model at
        return self._text.longer(self.last(row)) if several else {}

    def before(self, rows: Collection[int]) -> Tensor:
        """Logits [B, V] like `read`, but behind all ids of `rows` except the last: rows that
        `follow` took and that have several. Call before `read`."""
        part = self._now.only(rows)
        part.lengths = [n - (b in rows) for b, n in enumerate(self._now.lengths)]
        return self._cached.read(part)

    def replace_last(self, row: int) -> None:
        """The row's first drafted id stands in the place of its last one."""
        self._now.lengths[row] -= 1

    def extend(self, tokens: Tensor, behind: int) -> Tensor:
        """Logits [B, V] behind one more of the draft's ids a row, `tokens` [B]: number `behind`
        (from 0) of its draft. Call after `read`, for `behind` = 0, 1, …"""
        return self._cached.extend(self._now, tokens, behind)

    def _take(self, seqs: Sequences, row: int) -> bool:
        slot = seqs.slots[row]
        tokens, (known, at) = seqs.committed(row), self._settled[slot]
        if not torch.equal(known, tokens[: len(known)]):  # another request
            known, at = tokens[:0], 0
        closed, done, rest = self._text.read(_ids(tokens[len(known) :]), not len(known))
        self._write(slot, at, done + rest)
        self._settled[slot] = tokens[: len(known) + closed].clone(), at + len(done)
        length = at + len(done) + len(rest)
        fits = 0 < length <= self._context
        self._own.lengths[slot] = length if fits else 0
        return fits

    def _write(self, slot: int, at: int, ids: list[int]) -> None:
        """What does not fit is left out: such a row has outgrown the context for good."""
        ids = ids[: max(0, self._context - at)]
        room = self._own.tokens.shape[1]
        if at + len(ids) > room:
            while room < at + len(ids):
                room = min(2 * room, self._context)
            grown = Sequences(self._own.batch, room)
            grown.tokens[:, : self._own.tokens.shape[1]] = self._own.tokens
            grown.lengths, grown.running = self._own.lengths, self._own.running
            self._own = grown
            self._cached = self._make(room)
        self._own.tokens[slot, at : at + len(ids)] = torch.tensor(ids, dtype=torch.int64)


def _ids(tokens: Tensor) -> list[int]:
    return tokens.tolist()  # pyright: ignore
