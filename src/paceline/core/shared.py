"""Another model over the target's own cache: what a draft made of the target itself reads.

The target has read everything up to the pending token, so such a draft needs no cache, no prefill
and no rollback of its own: its context is the target's own keys and values. It writes behind them,
where the target's next pass writes anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.core.cached import CachedModel
from paceline.core.passes import Passes
from paceline.core.protocols import Model
from paceline.core.sequences import Sequences


class Shared:
    """`model` over `target`'s cache, whose shape must suit both. `vocab` cuts the logits."""

    def __init__(self, target: CachedModel, model: Model) -> None:
        self.target = target
        self.model = model
        self.vocab = min(target.vocab, model.vocab_size)
        self._passes = Passes(model)

    def read(self, seqs: Sequences) -> Tensor:
        """Logits [B, V] behind the last committed token of each running row."""
        pending = [seqs.tokens[b, max(0, n - 1)] for b, n in enumerate(seqs.lengths)]
        self.target.sync(seqs)
        return self._feed(seqs, torch.stack(pending), -1)

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """Logits [B, V] behind one more token a row, `tokens` [B]: the draft's token number
        `behind` (from 0). Call after `read`, for `behind` = 0, 1, …"""
        return self._feed(seqs, tokens, behind)

    def level(self, seqs: Sequences, tokens: Tensor, parents: Tensor) -> Tensor:
        """Logits [B, W, V] behind the last nodes of a tree; see `CachedModel.level`. The model must
        be `Branching`."""
        before = parents.shape[1] - tokens.shape[1]
        at = [place + before for place in self.target.lend(seqs, 0)]
        real = [tokens.shape[1] * run for run in seqs.running]
        return self._logits(seqs, tokens, at, real, parents)

    def _feed(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        at, real = self.target.lend(seqs, behind), [int(run) for run in seqs.running]
        return self._logits(seqs, tokens[:, None], at, real, None)[:, 0]

    def _logits(
        self,
        seqs: Sequences,
        tokens: Tensor,
        at: Sequence[int],
        real: Sequence[int],
        parents: Tensor | None,
    ) -> Tensor:
        known, cache = self._known(tokens), self.target.cache
        output = self._passes(known, at, cache, seqs.slots, real, parents, True, None)
        assert output.logits is not None
        return output.logits[..., : self.vocab]

    def _known(self, tokens: Tensor) -> Tensor:
        tokens = tokens.to(self.model.device, non_blocking=True)
        return tokens.clamp(max=self.model.vocab_size - 1)  # as the target reads them
