"""A smaller model of the same vocabulary guesses, token by token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.core.cached import CachedModel
from paceline.core.noise import draw
from paceline.core.sequences import Sequences
from paceline.core.shape import distribution
from paceline.core.types import Draft


class ModelDrafter:
    """Drafts from `cached`, at each row's own temperature and truncation, or at `temperature`.

    Rows without a temperature are drafted greedily unless `temperature` says otherwise; 0 drafts
    greedily for all. q is exactly what a token was drawn from: the truncated distribution, or a
    point mass for a greedy draft.
    """

    def __init__(self, cached: CachedModel, temperature: float | None = None) -> None:
        self.cached = cached
        self.temperature = temperature

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Exactly `k[b]` tokens for each running row."""
        lengths = [n if run else 0 for n, run in zip(k, seqs.running, strict=True)]
        width = max(lengths)
        if not width:
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), lengths)
        # a drawn token of a greedy row needs no q: its verifier does not look at one
        sampled = [b for b in range(seqs.batch) if lengths[b] and self._temperature(seqs, b) > 0]
        u = seqs.draft_noise(width) if sampled else None
        logits = self.cached.read(seqs)
        tokens: list[Tensor] = []
        q: list[Tensor] = []
        for j in range(width):
            if j:
                logits = self.cached.extend(seqs, tokens[-1], j - 1)
            token = logits.argmax(-1)
            if u is not None:
                token, q_j = self._sample(seqs, logits, token, sampled, u[:, j])
                q.append(q_j)
            tokens.append(token)
        return Draft(torch.stack(tokens, 1), lengths, torch.stack(q, 1) if q else None)

    def _temperature(self, seqs: Sequences, row: int) -> float:
        return seqs.params[row].temperature if self.temperature is None else self.temperature

    def _sample(
        self, seqs: Sequences, logits: Tensor, top: Tensor, sampled: list[int], u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Tokens [B] and their q [B, V]; one-hot at `top` for the rows that are not sampled."""
        q = torch.zeros_like(logits).scatter_(-1, top[:, None], 1.0)
        for b in sampled:
            q[b] = distribution(logits[b : b + 1], seqs.params[b], self._temperature(seqs, b))[0]
        token = draw(q, u.to(q.device, non_blocking=True))
        # where the draft model gave no distribution (NaN): token 0 as a point mass, still lossless
        point = torch.zeros_like(q)
        point[:, 0] = 1
        return token.clamp(min=0), torch.where((token < 0)[:, None], point, q)
