"""A smaller model of the same vocabulary guesses, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.core.protocols import Pace, Syncs
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.grow import Growth, TreeSize
from paceline.drafters.sampling import Chain, Reads, growing


class ModelDrafter:
    """Drafts from `cached`, at each row's own temperature and truncation, or at `temperature` (see
    `Chain`), as far as `pace` says; with `tree` trees (see `Growth`). Raises ValueError where
    `cached` cannot read one."""

    def __init__(
        self,
        cached: Reads,
        temperature: float | None = None,
        tree: TreeSize | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.cached = cached
        if tree:
            self._drafts = Growth(growing(cached), tree, temperature)
        else:
            self._drafts = Chain(cached, temperature, pace=pace)

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `paceline.core.protocols.Syncs`."""
        return self.cached.sync(seqs, budget) if isinstance(self.cached, Syncs) else 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """`k[b]` tokens for each running row, fewer where the pace says so; of a tree, paths of at
        most so many."""
        lengths = [n if run else 0 for n, run in zip(k, seqs.running, strict=True)]
        if not max(lengths):
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), lengths)
        return self._drafts.propose(seqs, lengths)
