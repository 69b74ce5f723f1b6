"""What a jump head reads of a target's rows, and its state from one drafted token to the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paceline.core.cached import CachedModel
from paceline.core.sequences import Sequences

if TYPE_CHECKING:
    from paceline.models.jump import Jump


class Into:
    """Where a step's entries go: those of the running rows of `seqs`, `count` each, from positions
    `at` on into `cache`, the target's; with `parents` the last nodes of a tree (see
    `core.protocols.Branching`). `arguments`: the same, as a `Decoder` takes it."""

    def __init__(
        self,
        seqs: Sequences,
        at: Sequence[int],
        cache: Any,
        count: int,
        parents: Tensor | None = None,
    ) -> None:
        self.cache = cache
        self.arguments: dict[str, Any] = {
            "at": at,
            "cache": cache.data.numpy(),
            "rows": seqs.slots,
            "counts": [count * run for run in seqs.running],
        }
        if parents is not None:
            self.arguments["parents"] = parents.contiguous().numpy()


class JumpReads:
    """What `head` reads of the rows of one target, and its states [B, n, D]: at the last drafted
    token, or, of a tree, at the last committed one and at all nodes."""

    def __init__(self, head: Jump, target: CachedModel) -> None:
        self._head = head
        self._target = target
        self._entered = self._left = torch.empty(0)

    def read(self, seqs: Sequences) -> Tensor:
        """Logits [B, V'] behind the last committed token of each running row, of two at least."""
        self._target.sync(seqs)
        hidden = self._target.hidden
        assert hidden is not None
        # the target's states end one token before the pending one, which is the last
        places = [max(0, n - 2) for n in seqs.lengths]
        states = torch.stack([hidden[s, n, None] for s, n in zip(seqs.slots, places, strict=True)])
        self._entered, self._left = states.chunk(2, -1)
        pending = [seqs.tokens[b, max(0, n - 1)] for b, n in enumerate(seqs.lengths)]
        return self._step(seqs, torch.stack(pending), -1)

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """Logits [B, V'] behind the draft's token number `behind`, `tokens` [B]."""
        return self._step(seqs, tokens, behind)

    def level(self, seqs: Sequences, tokens: Tensor, parents: Tensor) -> Tensor:
        """Logits [B, W, V'] behind the last nodes of a tree; see `CachedModel.level`."""
        before = parents.shape[1] - tokens.shape[1]
        at = [place + before for place in self._target.lend(seqs, 0)]
        into = Into(seqs, at, self._target.cache, tokens.shape[1], parents)
        above = (parents[:, before:, None] + 1).expand(-1, -1, self._left.shape[-1])
        entered, left, logits = self._head.step(
            self._known(tokens),
            self._entered.gather(1, above),
            self._left.gather(1, above),
            into,
        )
        self._entered = torch.cat([self._entered, entered], 1)
        self._left = torch.cat([self._left, left], 1)
        return logits

    def _step(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        into = Into(seqs, self._target.lend(seqs, behind), self._target.cache, 1)
        known = self._known(tokens)[:, None]
        self._entered, self._left, logits = self._head.step(known, self._entered, self._left, into)
        return logits[:, 0]

    def _known(self, tokens: Tensor) -> Tensor:
        return tokens.clamp(max=self._target.model.vocab_size - 1)  # as the target reads them
