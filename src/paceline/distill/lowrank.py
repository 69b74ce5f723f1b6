"""Blocks of the target made trainable: whole, or by what a product of two thin matrices adds.

Hu et al. 2021 (LoRA): y = W x + B A x with A [rank, in] random and B [out, rank] zero at the start,
so that training begins at the target itself and moves few numbers.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LowRank(nn.Module):
    """A frozen linear plus what is trained."""

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        rows, cols = linear.weight.shape
        device = linear.weight.device
        self.register_buffer("weight", linear.weight.detach(), persistent=False)
        bias = None if linear.bias is None else linear.bias.detach()
        self.register_buffer("bias", bias, persistent=False)
        self.a = nn.Parameter(torch.randn(rank, cols, device=device) * cols**-0.5)
        self.b = nn.Parameter(torch.zeros(rows, rank, device=device))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias) + F.linear(F.linear(x, self.a), self.b)

    def merged(self) -> Tensor:
        """The matrix [out, in] that this is."""
        return (self.weight + self.b @ self.a).detach()


def adapt(block: nn.Module, rank: int) -> None:
    """Make the linears of `block` trainable, in place: with `rank` > 0 by low-rank additions, with
    -1 whole."""
    for parent in list(block.modules()):
        for name, part in list(parent.named_children()):
            if not isinstance(part, nn.Linear):
                continue
            if rank > 0:
                setattr(parent, name, LowRank(part, rank))
            else:
                part.requires_grad_(True)
