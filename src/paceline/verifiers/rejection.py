"""Token-by-token rejection sampling (Leviathan et al. 2023, Algorithm 1; Chen et al. 2023).

Accept x ~ q with probability min(1, p(x)/q(x)); at the first refusal draw from the residual
norm(max(0, p - q)) instead, and drop what was drafted behind it. Past the end of the draft q = 0,
so the bonus token is the same formula.

Why it is lossless: x is emitted by acceptance with probability q(x) min(1, p(x)/q(x)) = min(p, q),
and by the residual with (1 - Σ min(p, q)) max(0, p - q) / Σ max(0, p - q) = max(0, p - q), because
both sums are 1 - Σ min(p, q). Together: min(p, q) + max(0, p - q) = p.
"""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.core.noise import Noise, draw
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.verifiers.greedy import Greedy, accepted_prefix


class Rejection:
    """Exact for sampled rows; greedy rows of the same batch take the greedy rule."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """`noise.accept` decides the tests, `noise.last` the draw behind them."""
        verdict = Greedy().verify(p, draft, noise)
        if p.dense is None:
            return verdict
        rows = torch.tensor(p.sampled).to(p.dense.device, non_blocking=True)
        q = None if draft.q is None else draft.q.to(p.dense.device)[rows]
        tokens, accepted = _verify(
            p.dense,
            draft.tokens.to(p.dense.device)[rows],
            q,
            [draft.lengths[b] for b in p.sampled],
            noise.accept.to(p.dense.device)[rows],
            noise.last.to(p.dense.device)[rows],
        )
        return Verdict(
            verdict.tokens.index_copy(0, rows, tokens),
            verdict.accepted.index_copy(0, rows, accepted),
        )


def _verify(
    p: Tensor, x: Tensor, q: Tensor | None, lengths: list[int], u: Tensor, u_last: Tensor
) -> tuple[Tensor, Tensor]:
    """p [R, K+1, V], drafts x [R, K] from q [R, K, V' <= V] (None = point mass) -> tokens, n."""
    px = p[:, :-1].gather(-1, x[..., None])[..., 0].double()
    qx = torch.ones_like(px) if q is None else q.gather(-1, x[..., None])[..., 0].double()
    # u < p/q without the division; strict, so that p(x) = 0 is refused even at u = 0
    n = accepted_prefix(u * qx < px, lengths)
    row = torch.arange(len(n), device=n.device)
    at_n = p[row, n]
    last = draw(residual(at_n, x, q, n, lengths), u_last[row, n])
    tokens = torch.cat([x, x.new_zeros(len(n), 1)], 1)
    tokens[row, n] = last
    return tokens, n


def residual(p: Tensor, x: Tensor, q: Tensor | None, n: Tensor, lengths: list[int]) -> Tensor:
    """Weights [R, V] of the token behind n accepted ones, not normalised: max(0, p - q) after a
    refusal, p past the draft's end, and p where the residual is zero everywhere (p equals q, or
    rounding: a refusal then has no other cause)."""
    size = torch.tensor(lengths).to(n.device, non_blocking=True)
    refused = n < size
    if not x.shape[1]:
        return p
    i = n.clamp(max=x.shape[1] - 1)  # q at the refused token; any index where there is none
    row = torch.arange(len(n), device=n.device)
    rest = p.clone()
    if q is None:
        rest[row, x[row, i]] = 0
    else:
        rest[:, : q.shape[-1]] -= q[row, i]
        rest.clamp_(min=0)
    use = refused & (rest.sum(-1) > 0)
    return torch.where(use[:, None], rest, p)
