"""Token-by-token rejection sampling (Leviathan et al. 2023, Algorithm 1; Chen et al. 2023).

Accept x ~ q with probability min(1, p(x)/q(x)); at the first refusal draw from the residual
norm(max(0, p - q)) instead, and drop what was drafted behind it. Past the end of the draft q = 0,
so the bonus token is the same formula.

Why it is lossless: x is emitted by acceptance with probability q(x) min(1, p(x)/q(x)) = min(p, q),
and by the residual with (1 - Σ min(p, q)) max(0, p - q) / Σ max(0, p - q) = max(0, p - q), because
both sums are 1 - Σ min(p, q). Together: min(p, q) + max(0, p - q) = p.

Lenience l < 1 (Appendix A.5) accepts with min(1, p(x)/(l q(x))) instead: α = Σ min(p/l, q). x is
then emitted with probability min(q, p/l) + c max(0, p - q), c = (1 - α) / Σ max(0, p - q) <= 1.
Where p >= q that is at most q + (p - q) = p, elsewhere it is min(q, p/l): never more than p/l. The
residual stays p - q: it adds nothing where acceptance alone gives a token more than p, so that of
all residuals it leaves the law nearest to p.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from paceline.core.noise import Noise, draw
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.verifiers.greedy import Greedy, accepted_prefix

# p [R, K+1, V], drafts x [R, K] from q [R, K, V' <= V] (None = point mass), their lengths, the
# noise of the accept tests [R, K] and of the last draw [R, K+1] -> tokens [R, K+1], accepted [R]
Rule = Callable[[Tensor, Tensor, Tensor | None, list[int], Tensor, Tensor], tuple[Tensor, Tensor]]


class Rejection:
    """Exact for sampled rows; greedy rows of the same batch take the greedy rule.

    `lenience` l in (0, 1]: no token comes with a probability above p/l, and more are accepted; 1 is
    lossless. For greedy rows see `Greedy`. Raises PacelineError if it is anything else.
    """

    def __init__(self, lenience: float = 1.0) -> None:
        self.lenience = lenience
        self._greedy = Greedy(lenience)
        self.lossless = self._greedy.lossless
        self.needs_logits = self._greedy.needs_logits

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """`noise.accept` decides the tests, `noise.last` the draw behind them."""
        rule = partial(_verify, lenience=self.lenience)
        return with_sampled(self._greedy.verify(p, draft, noise), p, draft, noise, rule)


def with_sampled(verdict: Verdict, p: Target, draft: Draft, noise: Noise, rule: Rule) -> Verdict:
    """`verdict` with the sampled rows as `rule` has them; for chains."""
    if p.dense is None:
        return verdict
    device = p.dense.device
    rows = torch.tensor(p.sampled).to(device, non_blocking=True)
    all_of_them = len(p.sampled) == len(draft.lengths)

    def those(each: Tensor) -> Tensor:
        return each.to(device) if all_of_them else each.to(device)[rows]

    tokens, accepted = rule(
        p.dense,
        those(draft.tokens),
        None if draft.q is None else those(draft.q),
        [draft.lengths[b] for b in p.sampled],
        those(noise.accept),
        those(noise.last),
    )
    return Verdict(
        verdict.tokens.index_copy(0, rows, tokens),
        verdict.accepted.index_copy(0, rows, accepted),
    )


def _verify(
    p: Tensor,
    x: Tensor,
    q: Tensor | None,
    lengths: list[int],
    u: Tensor,
    u_last: Tensor,
    lenience: float = 1.0,
) -> tuple[Tensor, Tensor]:
    px, qx = of_drafted(p, x, q)
    qx = lenience * qx
    # u < p/q without the division; strict, so that p(x) = 0 is refused even at u = 0
    n = accepted_prefix(u * qx < px, lengths)
    return with_last(p, x, q, n, lengths, u_last), n


def of_drafted(p: Tensor, x: Tensor, q: Tensor | None) -> tuple[Tensor, Tensor]:
    """p and q of the drafted tokens, each [R, K] float64."""
    px = p[:, :-1].gather(-1, x[..., None])[..., 0].double()
    qx = torch.ones_like(px) if q is None else q.gather(-1, x[..., None])[..., 0].double()
    return px, qx


def with_last(
    p: Tensor,
    x: Tensor,
    q: Tensor | None,
    n: Tensor,
    lengths: list[int],
    u_last: Tensor,
    share: Tensor | None = None,
) -> Tensor:
    """Tokens [R, K+1]: the drafted ones, and at index n [R] one drawn from the residual there."""
    row = torch.arange(len(n), device=n.device)
    at_n = p[row, n]
    tokens = torch.cat([x, x.new_zeros(len(n), 1)], 1)
    tokens[row, n] = draw(residual(at_n, x, q, n, lengths, share), u_last[row, n])
    return tokens


def residual(
    p: Tensor,
    x: Tensor,
    q: Tensor | None,
    n: Tensor,
    lengths: list[int],
    share: Tensor | None = None,
) -> Tensor:
    """Weights [R, V] of the token behind n accepted ones, not normalised: max(0, share p - q) after
    a refusal (`share` [R] in (0, 1], None: 1), p past the draft's end, and p where the residual is
    zero everywhere (p equals q, or rounding: a refusal then has no other cause)."""
    size = torch.tensor(lengths).to(n.device, non_blocking=True)
    refused = n < size
    if not x.shape[1]:
        return p
    i = n.clamp(max=x.shape[1] - 1)  # q at the refused token; any index where there is none
    row = torch.arange(len(n), device=n.device)
    rest = p.clone() if share is None else p * share.to(p.dtype)[:, None]
    if q is None:
        rest[row, x[row, i]] = 0
    else:
        rest[:, : q.shape[-1]] -= q[row, i]
        rest.clamp_(min=0)
    use = refused & (rest.sum(-1) > 0)
    return torch.where(use[:, None], rest, p)
