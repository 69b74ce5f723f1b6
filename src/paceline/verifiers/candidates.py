"""Several candidates for one position: which of them, if any, is the target's next token.

`one_by_one` is recursive rejection sampling: SpecInfer's multi-step rule for independent candidates
(Miao et al. 2024, arXiv 2305.09781), that of Sequoia (Chen et al. 2024, arXiv 2402.12374) and RSD
(Jeon et al. 2024, arXiv 2402.14160) for candidates without replacement, and that of EAGLE-2 (Li et
al. 2024, arXiv 2406.16858) for fixed ones. Accept X ~ q with probability min(1, p(X)/q(X)), else
go on with p <- norm(max(0, p - q)) and the next candidate; behind the last one draw from p.
Why it is lossless: by the argument of the chain's rule the output follows p if behind a refusal it
follows norm(max(0, p - q)). So it does, by induction, whichever X was refused, as long as q of each
candidate is its law given those before it.

`kseq` is K-SEQ (SpecTr: Sun et al. 2023, arXiv 2310.15141), for k independent candidates. Accept
the first X_i with u_i < p(X_i) / (r q(X_i)). With b = Σ min(p/r, q) each one is accepted with
probability b, one of the k with a = 1 - (1 - b)^k, and x comes out so with probability
min(p(x)/r, q(x)) a/b. The rest, p - min(p/r, q) a/b, is drawn from if all k are refused. It is
nowhere negative if a <= r b, and the output then follows p. r in [1, k] is the smallest such.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

# p [V], the candidates in the order of their draws, the tokens [K] of all nodes, their q [K, V']
# (None: point masses) and their uniforms [K] -> the accepted node (None: none), and the weights
# of a draw from the target in its place, not normalised
Rule = Callable[
    [Tensor, Sequence[int], Sequence[int], Tensor | None, Sequence[float]],
    "tuple[int | None, Tensor]",
]

_CLOSE = 1e-8  # how far r b may stay above a: it costs so much acceptance and nothing else


def one_by_one(
    p: Tensor,
    nodes: Sequence[int],
    tokens: Sequence[int],
    q: Tensor | None,
    u: Sequence[float],
) -> tuple[int | None, Tensor]:
    """Recursive rejection. `q[j]` is the law of node j given the candidates before it. A node may
    come several times. With one candidate it is `Rejection`, to the bit. Where a residual is zero
    everywhere (p equals q, or rounding) p stays. See `Rule`."""
    weights, mass = p, 1.0  # p is weights / mass from here on
    left: dict[int, float] = {}
    for node in nodes:
        x = tokens[node]
        row = None if q is None else q[node]
        offered = mass * (1.0 if row is None else float(row[x]))
        wanted, v = float(weights[x]), left.get(node, u[node])
        if v * offered < wanted:  # strict, as on a chain
            return node, weights
        left[node] = _left(v, wanted, offered)
        rest = weights.clone()
        if row is None:
            rest[x] = 0
        else:
            rest[: len(row)].sub_(row, alpha=mass).clamp_(min=0)
        total = float(rest.sum(dtype=torch.float64))
        if total > 0:
            weights, mass = rest.double(), total
    return None, weights


def kseq(
    p: Tensor,
    nodes: Sequence[int],
    tokens: Sequence[int],
    q: Tensor | None,
    u: Sequence[float],
) -> tuple[int | None, Tensor]:
    """K-SEQ. All candidates were drawn from one law, `q[nodes[0]]`; a node comes as often as it was
    drawn. With one candidate, or without a q, it is `one_by_one`. See `Rule`."""
    if q is None or len(nodes) < 2:
        return one_by_one(p, nodes, tokens, q, u)
    law = q[nodes[0]]
    ratio = divisor(p, law, len(nodes))
    left: dict[int, float] = {}
    for node in nodes:
        x = tokens[node]
        wanted, offered, v = float(p[x]), ratio * float(law[x]), left.get(node, u[node])
        if v * offered < wanted:
            return node, p
        left[node] = _left(v, wanted, offered)
    rest = p.to(torch.float64, copy=True)
    common = torch.minimum(rest[: len(law)] / ratio, law)
    each = float(common.sum())
    if each > 0:
        taken = _any_of(each, len(nodes)) / each
        rest[: len(law)].sub_(common, alpha=taken).clamp_(min=0)
    return None, rest if float(rest.sum()) > 0 else p


def _left(u: float, wanted: float, offered: float) -> float:
    """What is left of the uniform `u` after a refusal, for the same token's next test.

    A refusal says that u >= a = wanted/offered and nothing else, so u is uniform in [a, 1) and
    u' = (u - a)/(1 - a) in [0, 1): P(u' < t | u >= a) = P(a <= u < a + t(1 - a)) / (1 - a) = t.
    Its tests are thus independent of all others, as if it had a number of its own each time.
    """
    if not wanted < offered:
        return u  # only rounding or a NaN refuses here
    return (u * offered - wanted) / (offered - wanted)


def _any_of(each: float, k: int) -> float:
    """That one of k is accepted, where each is with probability `each`."""
    return 1 - (1 - min(each, 1.0)) ** k


def divisor(p: Tensor, q: Tensor, k: int) -> float:
    """K-SEQ's r for `k` candidates: the smallest in [1, k] with 1 - (1 - b)^k <= r b, where
    b = Σ min(p/r, q), from above.

    Right minus left rises from <= 0 at 1 to >= 0 at k: false position, where an end that stays
    twice counts half (the Illinois method). Only tokens with q < p < k q can change sides in min.
    """
    known, law = (t.cpu().numpy() for t in (p[: len(q)], q))
    more = known > law
    sure = known > (1.001 * k) * law  # not k itself: this is rounded

    def chosen(values: Any, mask: Any) -> Any:
        return values[np.flatnonzero(mask)].astype(np.float64)

    under_p, over_q = float(chosen(known, ~more).sum()), float(chosen(law, sure).sum())
    ps, qs = (chosen(values, more & ~sure) for values in (known, law))
    part = np.empty_like(ps)

    def slack(r: float) -> float:
        np.minimum(np.divide(ps, r, out=part), qs, out=part)
        each = under_p / r + over_q + float(part.sum())
        return r * each - _any_of(each, k)

    low, high = 1.0, float(k)
    below, above = slack(low), slack(high)
    if not below < 0:
        return low
    found = best = above
    while best > _CLOSE:
        r = high - (high - low) * above / (above - below)
        before, found = found, slack(r)
        if found < 0:
            low, below, above = r, found, above / (2 if before < 0 else 1)
        else:
            high, best, above, below = r, found, found, below / (2 if before >= 0 else 1)
    return high
