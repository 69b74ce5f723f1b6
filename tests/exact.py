"""Laws by exact enumeration, and the threshold for those that have to be sampled.

With p and q in multiples of 1/8 every threshold that a verifier compares noise with is a fraction
of a small whole number. On a grid of midpoints fine enough that no threshold lies inside a cell,
the share of grid points with an outcome is its probability: no sampling, no tolerance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product, zip_longest

import torch
from torch import Tensor

from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.noise import Noise
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.verifiers.rejection import Rejection

EIGHTHS = 8  # cells for a threshold p/q or a p in eighths, where q is 1, 2, 4 or 8 eighths
Tree = dict[tuple[int, ...], list[float]]  # the distribution behind each prefix of a draft


def midpoints(n: int) -> Tensor:
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n


def tree(seed: int, vocab: int, depth: int, shapes: Sequence[Sequence[int]] = ()) -> Tree:
    """Distributions in eighths behind every prefix of up to `depth` tokens: permutations of
    `shapes`, or any at all."""
    rng = random.Random(seed)

    def one() -> list[float]:
        if shapes:
            counts = list(rng.choice(shapes))
            rng.shuffle(counts)
        else:
            throws = [rng.randrange(vocab) for _ in range(8)]
            counts = [throws.count(token) for token in range(vocab)]
        return [count / 8 for count in counts]

    return {pre: one() for d in range(depth + 1) for pre in product(range(vocab), repeat=d)}


Q4 = [[4, 2, 1, 1], [4, 2, 2, 0], [4, 4, 0, 0], [2, 2, 2, 2], [8, 0, 0, 0]]  # in eighths
Q3 = [[4, 2, 2], [4, 4, 0], [8, 0, 0]]


def chain(law: Tree, tokens: Sequence[int], given: int = 0) -> float:
    """The probability of `tokens` behind the first `given` of them."""
    return math.prod(law[tuple(tokens[:i])][tokens[i]] for i in range(given, len(tokens)))


def _residual_cells(p: Tree, q: Tree | None, drafts: Sequence[tuple[int, ...]]) -> int:
    """Cells for the thresholds inside every residual: the sums of these, in eighths, divide it."""
    sums = [8]
    for x in drafts:
        for i, token in enumerate(x):
            point = [float(t == token) for t in range(len(p[()]))]
            pairs = zip_longest(p[x[:i]], q[x[:i]] if q else point, fillvalue=0.0)
            sums.append(round(8 * sum(max(0.0, a - b) for a, b in pairs)) or 1)
    return math.lcm(*sums)


@dataclass
class RoundLaw:
    """Everything that one round can do. `first[x]`: the probability that `x`, K+1 tokens, comes
    first: what the round emitted, then p. `alpha`: that the first drafted token is accepted.
    `accepted`: how many are, on average. `verdict`: of the greedy rows that stood beside."""

    first: dict[tuple[int, ...], float]
    alpha: float
    accepted: float
    verdict: Verdict


def round_law(
    p: Tree, q: Tree | None, k: int, lengths: Sequence[int] | None = None, beside: int = 0
) -> RoundLaw:
    """The law of one round of `Rejection` for drafts of `k` tokens from `q` (None: one fixed draft,
    a point mass), the last ones cut off so that `lengths` (default: k) are left, each equally
    often. `beside`: so many greedy rows come first in the batch; their p is one-hot at token 1
    and they draft 1, 0, 0, …"""
    vocab, lengths = len(p[()]), [k] if lengths is None else lengths
    drafts = [tuple((i + 1) % vocab for i in range(k))]
    if q is not None:
        drafts = [x for x in product(range(len(q[()])), repeat=k) if chain(q, x)]
    cases = [(x, n) for x in drafts for n in lengths]
    noise = torch.cartesian_prod(
        *[midpoints(EIGHTHS)] * k, midpoints(_residual_cells(p, q, drafts))
    )
    cells = len(noise)

    def rows(values: list, first: list) -> Tensor:
        table = torch.tensor(values).repeat_interleave(cells, 0)
        return torch.cat([torch.tensor(first).to(table).expand(beside, *table.shape[1:]), table])

    tokens = rows([x for x, _ in cases], [1] + [0] * (k - 1))
    scores = None
    if q is not None:
        one_hot = [1.0] + [0.0] * (len(q[()]) - 1)
        scores = rows([[q[x[:i]] for i in range(k)] for x, _ in cases], [one_hot])
    draft = Draft(tokens, [k] * beside + [n for _, n in cases for _ in range(cells)], scores)
    dense = torch.tensor([[p[x[:i]] for i in range(k + 1)] for x, _ in cases])
    target = Target(
        logits=torch.zeros(len(tokens), 1, 1),
        top=torch.ones(len(tokens), k + 1, dtype=torch.int64),
        sampled=range(beside, len(tokens)),
        dense=dense.repeat_interleave(cells, 0),
    )
    u = torch.cat([torch.full((beside, k + 1), 0.5).to(noise), noise.repeat(len(cases), 1)])
    verdict = Rejection().verify(target, draft, Noise(u[:, :k], u[:, k:].expand(-1, k + 1)))
    law = dict.fromkeys(product(range(vocab), repeat=k + 1), 0.0)
    alpha = accepted = 0.0
    n_all = verdict.accepted[beside:].reshape(len(cases), cells)
    last = verdict.tokens[beside:].reshape(len(cases), cells, k + 1).gather(-1, n_all[..., None])
    for c, (x, _) in enumerate(cases):
        weight = (1.0 if q is None else chain(q, x)) / len(lengths)
        outcomes, counts = torch.stack([n_all[c], last[c, :, 0]]).unique(dim=1, return_counts=True)
        for (n, t), count in zip(outcomes.T.tolist(), counts.tolist(), strict=True):
            share = weight * count / cells
            alpha += share * (n > 0)
            accepted += share * n
            emitted = (*x[:n], t)
            for rest in product(range(vocab), repeat=k - n):
                law[emitted + rest] += share * chain(p, emitted + rest, n + 1)
    front = Verdict(verdict.tokens[:beside], verdict.accepted[:beside])
    return RoundLaw(law, alpha, accepted, front)


class Grid(Sequences):
    """Sequences whose noise runs over a grid: row by row another point of it. Each token behind the
    prompt has dimensions of its own, as a round that starts there has."""

    def __init__(self, k: int, tokens: int, draft: int, accept: int, last: int) -> None:
        sizes = ([draft] * k + [accept] * k + [last]) * tokens
        self.k = k
        self.points = torch.cartesian_prod(*[midpoints(n) for n in sizes]).reshape(
            -1, tokens, 2 * k + 1
        )
        super().__init__(len(self.points), 8 + tokens + k)

    def _here(self) -> Tensor:
        most = self.points.shape[1] - 1
        behind = [min(n - g, most) for n, g in zip(self.lengths, self.prompts, strict=True)]
        return self.points[torch.arange(self.batch), torch.tensor(behind)]

    def draft_noise(self, k: int) -> Tensor:
        return self._here()[:, :k]

    def noise(self, draft: Draft) -> Noise:
        k, here = draft.tokens.shape[1], self._here()
        return Noise(here[:, self.k : self.k + k], here[:, -1:].expand(-1, k + 1))


def loop_law(
    model,
    make_drafter: Callable[[Sequences], object],
    params: SamplingParams,
    k: int,
    grid: tuple[int, int, int],
    tokens: int = 1,
    vocab: int | None = None,
) -> Tensor:
    """The law [V, …] of the first `tokens` tokens behind the prompt [0], through the whole loop.
    `grid`: cells for the drafter's draws, the accept tests and the last draw."""
    seqs = Grid(k, tokens, *grid)
    for row in range(seqs.batch):
        seqs.admit(row, [0], params)
    target = CachedModel(model, seqs.batch, seqs.tokens.shape[1], vocab)
    loop = Loop(target, make_drafter(seqs), Rejection(), Fixed(k))
    while any(seqs.running):
        loop.step(seqs)
        for row, length in enumerate(seqs.lengths):
            if length > tokens:
                seqs.finish(row)
    law = torch.zeros([target.vocab] * tokens, dtype=torch.float64)
    cells = tuple(seqs.tokens[:, 1 : 1 + tokens].T)
    return law.index_put_(cells, torch.tensor(1 / seqs.batch, dtype=law.dtype), accumulate=True)


def chi_square(counts: Sequence[int], expected: Sequence[float]) -> tuple[float, float]:
    """Pearson's statistic and the value that it exceeds once in 10^4 times (Wilson and Hilferty
    1931). Cells that expect fewer than 5 are pooled."""
    pairs = sorted(zip(expected, counts, strict=True))
    while len(pairs) > 2 and pairs[0][0] < 5:
        pairs[:2] = [(pairs[0][0] + pairs[1][0], pairs[0][1] + pairs[1][1])]
        pairs.sort()
    statistic = sum((seen - e) ** 2 / e for e, seen in pairs)
    freedom = len(pairs) - 1
    edge = freedom * (1 - 2 / (9 * freedom) + 3.719 * math.sqrt(2 / (9 * freedom))) ** 3
    return statistic, edge
