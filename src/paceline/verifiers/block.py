"""Block verification (Sun et al. 2024, arXiv 2403.10444, Algorithm 2): the draft as a whole.

p_0 = 1, p_i = min(1, p_{i-1} p(x_i)/q(x_i)). Behind token i of a draft of γ let
S_i = Σ_x max(0, p_i p(x) - q(x)), and past the end q = 0, so S_γ = p_γ. Accept the first τ tokens,
τ the largest i with u_i < h_i = S_i / (S_i + 1 - p_i), then one drawn from norm(max(0, p_τ p - q)).
Every i is tried. 0/0 decides nothing: p is q there, p_{i+1} = 1, and so on to an i with h_i = 1.

Why it is lossless: given x_1..x_i, the chance of τ >= i is p_i (from the last i down: that of
τ >= i + 1 is Σ min(q, p_i p) = p_i - S_i, and h_i + (1 - h_i)(p_i - S_i) = p_i). So x is kept
behind them with probability min(q(x), p_i p(x)); and τ = i, with probability S_i, adds
max(0, p_i p(x) - q(x)): together p_i p(x), so what follows the kept tokens is distributed as p.
E[τ] = Σ_i E[p_i]; `Rejection` has Π min(1, p/q) for p_i, which is never more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.core.noise import Noise
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.verifiers.greedy import Greedy
from paceline.verifiers.rejection import of_drafted, with_last, with_sampled

_BLOCK = 64


class Block:
    """Exact for sampled rows, and accepts at least as many tokens as `Rejection` on average; greedy
    rows of the same batch take the greedy rule. Of a draft of one token the verdict is the same."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """`noise.accept` decides the tests, `noise.last` the draw behind them."""
        return with_sampled(Greedy().verify(p, draft, noise), p, draft, noise, _verify)


def _verify(
    p: Tensor, x: Tensor, q: Tensor | None, lengths: list[int], u: Tensor, u_last: Tensor
) -> tuple[Tensor, Tensor]:
    px, qx = of_drafted(p, x, q)
    size = torch.tensor(lengths).to(p.device, non_blocking=True)
    share = torch.ones(len(p), dtype=torch.float64, device=p.device)  # p_i
    kept, n = share, torch.zeros_like(size)  # p_τ, τ
    for i in range(1, x.shape[1] + 1):
        have, want = share * px[:, i - 1], qx[:, i - 1]
        # p(x) = q(x) = 0 is a refusal, and so is a NaN of either model
        share = torch.where(have < want, have / want, ((have > 0) & (have >= want)).double())
        passes = u[:, i - 1] * want < have  # u < p_i without the division
        if i < x.shape[1]:
            lack = _lack(share, p[:, i], x[:, i], None if q is None else q[:, i])
            inner = u[:, i - 1] * (lack + (1 - share)) < lack
            # where p is NaN behind token i, or q, the draft can only end there
            passes = torch.where((size > i) & ~lack.isnan(), inner, passes)
        passes &= size >= i
        n = torch.where(passes, i, n)
        kept = torch.where(passes, share, kept)
    return with_last(p, x, q, n, lengths, u_last, kept), n


def _lack(share: Tensor, p: Tensor, x: Tensor, q: Tensor | None) -> Tensor:
    """S [R] = Σ max(0, share p - q) for p [R, V] and q [R, V' <= V] (None: all of it at x [R])."""
    if q is None:
        return share * (1 - p.gather(-1, x[:, None])[:, 0].double()).clamp(min=0)
    width = q.shape[-1]
    scaled = share.to(p.dtype)[:, None]
    if p.is_cuda:
        within = (p[:, :width] * scaled).sub_(q).clamp_(min=0).sum(-1, dtype=torch.float64)
    else:
        within = torch.stack([_excess(*row) for row in zip(p[:, :width], scaled, q, strict=True)])
    return within + share * p[:, width:].sum(-1, dtype=torch.float64)


def _excess(p: Tensor, share: Tensor, q: Tensor) -> Tensor:
    """Σ max(0, share p - q) of one row [V']. After top-k or top-p most of p is zero, and so is all
    of most blocks of it, which then need not be looked at."""
    whole = len(p) - len(p) % _BLOCK
    blocks, others = p[:whole].view(-1, _BLOCK), q[:whole].view(-1, _BLOCK)
    some = (blocks.amax(-1) != 0).nonzero()[:, 0]  # NaN is not 0 either
    if 4 * len(some) < len(blocks):
        blocks, others = blocks[some], others[some]
    inside = (blocks * share).sub_(others).clamp_(min=0).sum(dtype=torch.float64)
    beyond = (p[whole:] * share).sub_(q[whole:]).clamp_(min=0).sum(dtype=torch.float64)
    return inside + beyond
