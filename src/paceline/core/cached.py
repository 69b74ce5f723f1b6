"""A model that reads sequences through a cache, by feeding whatever the cache lacks.

Prefill, rollback after a rejection, a draft model that lags by two, slot reuse and prefix reuse are
one operation: find how far the cache was computed from what is committed, and feed the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from paceline.core.passes import Passes
from paceline.core.protocols import Branching, Copies, Model, Tapped
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Verdict

SLACK = 64  # positions of a cache behind the longest sequence: drafts and padding end there
CHUNK = 512  # tokens of one prefill pass
Want = Literal["nothing", "logits", "top"]
_FEW = 8  # so few missing tokens are fed for all rows at once, padded
_WORTH_COPYING = 16  # tokens; fewer are read again


class CachedModel:
    """`model` with a cache for `batch` sequences of at most `length` tokens.

    `ids` [B, S] holds the token that each cache entry was computed from and `filled[b]` how many
    entries of row b mean anything; row b of some sequences has row `slots[b]` of all that. Writing
    at a position forgets everything behind it: those entries were computed from a prefix that is
    gone. `vocab` cuts the logits to the ids that the tokenizer knows (the head may be padded).
    """

    def __init__(self, model: Model, batch: int, length: int, vocab: int | None = None) -> None:
        self.model = model
        self._passes = Passes(model)
        self.length = length
        self.vocab = model.vocab_size if vocab is None else min(vocab, model.vocab_size)
        self.cache = model.new_cache(batch, length + SLACK)
        self.filled = [0] * batch
        self.taps: list[int] = []
        self.hidden: Tensor | None = None
        # pinned, so that drafted tokens come over without a stall; by the time that they are
        # looked at, the round's one synchronisation has passed
        pinned = model.device.type == "cuda"
        self.ids = torch.full((batch, length + SLACK), -1, dtype=torch.int64, pin_memory=pinned)

    def tap(self, layers: Sequence[int]) -> None:
        """From now on keep the states that enter these layers (see `Tapped`) in `hidden`
        [B, S, n * D], position by position; what was read before is forgotten. Raises ValueError
        if other layers are tapped already, or the model cannot be."""
        if self.taps == list(layers):
            return
        if self.taps or not isinstance(self.model, Tapped):
            raise ValueError(f"layers {list(layers)} cannot be tapped: {self.taps or 'never'} are")
        self.taps = list(layers)
        self.model = self.model.tapped(layers)
        self._passes = Passes(self.model)
        self.filled = [0] * len(self.filled)

    @property
    def ranks(self) -> bool:
        """Whether `best` can be asked for."""
        return self._passes.ranks

    @property
    def branches(self) -> bool:
        """Whether drafts may be trees."""
        return self._passes.branches

    def seen(self, seqs: Sequences, row: int) -> int:
        """How many leading cache entries of `row` were computed from its committed tokens."""
        return self._shared(seqs.slots[row], seqs, row)

    def _shared(self, slot: int, seqs: Sequences, row: int) -> int:
        """How many leading tokens of `row` the entries of that slot were computed from."""
        most = min(self.filled[slot], seqs.lengths[row])
        same = self.ids[slot, :most] == seqs.tokens[row, :most]
        return most if bool(same.all()) else int(same.to(torch.int8).argmin())

    def known(self, ids: Tensor) -> list[int]:
        """How many leading tokens of `ids` [n] each row of the cache has read."""
        most = [min(filled, len(ids)) for filled in self.filled]
        return [
            int((self.ids[slot, :n] == ids[:n]).long().cumprod(0).sum())
            for slot, n in enumerate(most)
        ]

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """Read all but the last committed token of every running row, at most `budget` of them.
        What another row has read of the same beginning is copied.

        Returns how many are still unread. The last token stays pending: the next `score` or `read`
        writes its entry.
        """
        left = 0
        for row in range(seqs.batch):
            if not seqs.running[row]:
                continue
            start, end = self.seen(seqs, row), seqs.lengths[row] - 1
            if end - start >= _WORTH_COPYING:
                start = self._copy(seqs, row, start)
            slot = seqs.slots[row]
            while start < end and (budget is None or budget > 0):
                stop = min(end, start + (CHUNK if budget is None else min(CHUNK, budget)))
                tokens = seqs.tokens[row : row + 1, start:stop]
                self._feed(tokens, [start], [stop - start], [slot], [stop - start])
                budget = None if budget is None else budget - (stop - start)
                start = stop
            left += max(0, end - start)
        return left

    def _copy(self, seqs: Sequences, row: int, seen: int) -> int:
        """Copy what another row has read of this one's beginning, if that is much more than `seen`
        tokens; how many are there then."""
        slot, end = seqs.slots[row], seqs.lengths[row] - 1
        if not isinstance(self.model, Copies):
            return seen
        others = [s for s in range(len(self.filled)) if s != slot and self.filled[s] > seen]
        found = {s: min(end, self._shared(s, seqs, row)) for s in others}
        source = max(found, key=lambda s: found[s], default=slot)
        count = found.get(source, 0)
        if count < seen + _WORTH_COPYING:
            return seen
        self.filled[slot] = 0  # if interrupted
        self.model.copy(self.cache, source, slot, count)
        self.ids[slot, :count] = self.ids[source, :count]
        if self.hidden is not None:
            self.hidden[slot, :count] = self.hidden[source, :count]
        self.filled[slot] = count
        return count

    def score(self, seqs: Sequences, draft: Draft) -> Tensor:
        """Logits [B, K+1, V] behind the committed tokens and behind each drafted one, in one pass.
        Reads first what is unread. Rows with shorter drafts are padded; what stands there is
        undefined, as are rows that are not running. Of a tree no entry counts before `keep`.
        Raises ValueError for a tree if the model cannot read one."""
        return self._score(seqs, draft, "logits")

    def best(self, seqs: Sequences, draft: Draft) -> Tensor:
        """The likeliest token [B, K+1] int64 where `score` gives logits, the lowest id on a tie and
        -1 where there is none (see `Target.top`). Of a model that `ranks`."""
        return self._score(seqs, draft, "top")

    def _score(self, seqs: Sequences, draft: Draft, want: Want) -> Tensor:
        self.sync(seqs)
        at = self._places(seqs, -1)
        pending = torch.stack([_window(seqs.tokens[b], i, 1) for b, i in enumerate(at)])
        tokens = torch.cat([self._on_device(pending), self._on_device(draft.tokens)], 1)
        real = [draft.lengths[b] + 1 if seqs.running[b] else 0 for b in range(seqs.batch)]
        if draft.parents is None:
            return self._feed(tokens, at, real, seqs.slots, real, want)
        pending = torch.full((seqs.batch, 1), -1, dtype=torch.int64)
        parents = torch.cat([pending, draft.parents + 1], 1)
        count = [min(1, n) for n in real]
        return self._feed(tokens, at, count, seqs.slots, real, want, parents)

    def keep(self, seqs: Sequences, draft: Draft, verdict: Verdict) -> None:
        """After `score` of a tree: make the accepted path the cache's entries behind the committed
        tokens. Nothing to do for chains, whose entries stand where they belong. Call before the
        verdict is committed."""
        if verdict.path is None:
            return
        assert isinstance(self.model, Branching)
        path = verdict.path.cpu()
        for b, n in enumerate(verdict.accepted.tolist()):  # pyright: ignore
            start, slot = seqs.lengths[b], seqs.slots[b]
            if not n or not seqs.running[b] or self.filled[slot] != start:
                continue
            source: list[int] = (path[b, :n] + start).tolist()  # pyright: ignore
            self.model.move(self.cache, slot, source, start)
            self.ids[slot, start : start + n] = draft.tokens[b, path[b, :n]].cpu()
            if self.hidden is not None:
                self.hidden[slot, start : start + n] = self.hidden[slot, source]
            self.filled[slot] = start + n

    def read(self, seqs: Sequences) -> Tensor:
        """Logits [B, V] behind the last committed token of each running row; everything is read."""
        start = [
            min(at, self.seen(seqs, b)) if seqs.running[b] else at
            for b, at in enumerate(self._places(seqs, -1))  # the pending token at the latest
        ]
        count = _differences(seqs, start)
        if max(count) > _FEW:
            self.sync(seqs)
            start = self._places(seqs, -1)
            count = _differences(seqs, start)
        width = max(1, *count)
        tokens = torch.stack([_window(seqs.tokens[b], s, width) for b, s in enumerate(start)])
        logits = self._feed(self._on_device(tokens), start, count, seqs.slots, count, "logits")
        if width == 1:
            return logits[:, 0]
        last = torch.tensor([max(0, c - 1) for c in count]).to(logits.device, non_blocking=True)
        return logits[torch.arange(seqs.batch, device=logits.device), last]

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """Logits [B, V] behind one more token a row, `tokens` [B]: the draft's token number
        `behind` (from 0). Call after `read`, for `behind` = 0, 1, …"""
        at = self._places(seqs, behind)
        count = [int(run) for run in seqs.running]
        return self._feed(tokens[:, None], at, count, seqs.slots, count, "logits")[:, 0]

    def level(self, seqs: Sequences, tokens: Tensor, parents: Tensor) -> Tensor:
        """Logits [B, W, V] behind each of `tokens` [B, W], the last W of M nodes of a tree behind
        the committed tokens; `parents` [B, M] on the CPU, as in `Draft.parents`. Call after `read`,
        each time with the nodes before and W more. No entry of a node ever counts. Of a model that
        is `Branching`; ValueError for another."""
        before = parents.shape[1] - tokens.shape[1]
        at = [place + before for place in self._places(seqs, 0)]
        real = [tokens.shape[1] * run for run in seqs.running]
        return self._feed(tokens, at, [0] * seqs.batch, seqs.slots, real, "logits", parents)

    def lend(self, seqs: Sequences, behind: int) -> list[int]:
        """Where another model may write its entry for the token `behind` the committed ones, row by
        row: what stands from there on is no longer this model's."""
        at = self._places(seqs, behind)
        for slot, start in zip(seqs.slots, at, strict=True):
            self.filled[slot] = min(self.filled[slot], start)
        return at

    def _places(self, seqs: Sequences, behind: int) -> list[int]:
        """Position `behind` the committed tokens of each row. A row that is not running is read
        along with the others, behind what its cache holds, where it does no harm."""
        return [
            length + behind if run else min(length, self.filled[slot])
            for length, run, slot in zip(seqs.lengths, seqs.running, seqs.slots, strict=True)
        ]

    def _feed(
        self,
        tokens: Tensor,
        at: Sequence[int],
        count: Sequence[int],
        slots: Sequence[int],
        real: Sequence[int],
        want: Want = "nothing",
        parents: Tensor | None = None,
    ) -> Tensor:
        """One forward pass over `tokens` [b, T] for those slots, of which the first `real[i]` of
        row i mean something; the entries of the first `count[i]` count. Keeps `ids` and `filled`
        true, also if the pass is interrupted."""
        for slot, start in zip(slots, at, strict=True):
            self.filled[slot] = min(self.filled[slot], start)
        # a draft model may know fewer ids than the target: it then reads others, which is harmless
        known = self._on_device(tokens).clamp(max=self.model.vocab_size - 1)
        limit = self.vocab if want == "top" else None
        logits = want == "logits"
        output = self._passes(known, at, self.cache, slots, real, parents, logits, limit)
        for i, (slot, start, n) in enumerate(zip(slots, at, count, strict=True)):
            if n and self.filled[slot] == start:
                self.ids[slot, start : start + n].copy_(tokens[i, :n], non_blocking=True)
                if self.taps and output.hidden is not None:
                    kept = self._keep(output.hidden)[slot, start : start + real[i]]
                    kept.copy_(output.hidden[i, : real[i]])  # of a tree `keep` chooses
                self.filled[slot] = start + n
        if output.top is not None:
            return output.top
        return torch.empty(0) if output.logits is None else output.logits[..., : self.vocab]

    def _keep(self, hidden: Tensor) -> Tensor:
        if self.hidden is None:
            shape = (*self.ids.shape, hidden.shape[-1])
            self.hidden = torch.zeros(shape, dtype=hidden.dtype, device=hidden.device)
        return self.hidden

    def _on_device(self, tokens: Tensor) -> Tensor:
        return tokens.to(self.model.device, non_blocking=True)


def _differences(seqs: Sequences, start: Sequence[int]) -> list[int]:
    """How many committed tokens of each running row stand behind `start`."""
    rows = zip(seqs.lengths, start, seqs.running, strict=True)
    return [length - begin if run else 0 for length, begin, run in rows]


def _window(tokens: Tensor, start: int, width: int) -> Tensor:
    """`width` tokens from `start`; zeros past the end of the buffer."""
    part = tokens[start : start + width]
    return part if len(part) == width else torch.nn.functional.pad(part, (0, width - len(part)))
