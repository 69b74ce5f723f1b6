"""Greedy verification: the one-hot limit of rejection sampling.

p is 1 at its largest logit, so a drafted token is accepted exactly if it is that token, and the
token behind the accepted ones is that token too. The output is what the target alone would say.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.core.noise import Noise
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict


def accepted_prefix(passes: Tensor, lengths: Sequence[int]) -> Tensor:
    """n [B] from accept tests [B, K]: those before the first failure, within each row's draft."""
    if not passes.shape[1]:
        return torch.zeros(len(passes), dtype=torch.int64, device=passes.device)
    size = torch.tensor(lengths).to(passes.device, non_blocking=True)
    inside = torch.arange(passes.shape[1], device=passes.device) < size[:, None]
    return (passes & inside).to(torch.int64).cumprod(-1).sum(-1)


class Greedy:
    """Accept while the draft says what the target would. For rows without a temperature."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """Uses `p.top` alone; the noise is not looked at."""
        accepted = accepted_prefix(draft.tokens.to(p.top.device) == p.top[:, :-1], draft.lengths)
        return Verdict(p.top, accepted)
