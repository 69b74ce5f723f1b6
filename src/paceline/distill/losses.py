"""How far a draft's distribution is from the target's: what training brings down."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.errors import PacelineError


def divergence(log_p: Tensor, log_q: Tensor, tv: float = 0.0) -> Tensor:
    """Σ over the rows of [N, V'] of (1 - tv) KL(p || q) + tv TV(p, q), a scalar.

    KL has a gradient wherever q is small, so it learns fast; the total variation is what an accept
    test loses, 1 - Σ min(p, q) (Leviathan et al. 2023, section 3.2), but is flat far from p.
    """
    kl = F.kl_div(log_q, log_p, reduction="sum", log_target=True)
    if not tv:
        return kl
    lost = len(log_p) - torch.minimum(log_p, log_q).exp().sum()
    return (1 - tv) * kl + tv * lost


def check_tv(tv: float) -> float:
    """`tv`, a share. Raises PacelineError for one that is none."""
    if not 0 <= tv <= 1:
        raise PacelineError(f"--set tv={tv}: the share of total variation must be from 0 to 1")
    return tv
