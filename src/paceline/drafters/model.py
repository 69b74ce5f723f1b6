"""A smaller model of the same vocabulary guesses, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.sampling import Chain, Reads


class ModelDrafter:
    """Drafts from `cached`, at each row's own temperature and truncation, or at `temperature` (see
    `Chain`)."""

    def __init__(self, cached: Reads, temperature: float | None = None) -> None:
        self.cached = cached
        self._chain = Chain(cached, temperature)

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Exactly `k[b]` tokens for each running row."""
        lengths = [n if run else 0 for n, run in zip(k, seqs.running, strict=True)]
        if not max(lengths):
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), lengths)
        return self._chain.propose(seqs, lengths)
