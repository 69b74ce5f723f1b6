"""Laws by exact enumeration, and the threshold for those that have to be sampled.

One round is enumerated over the edges that its verifier compares noise with. Several are run on a
grid of midpoints: with p and q in multiples of 1/8 every edge is a fraction of a small whole
number, and where none lies inside a cell the share of points with an outcome is its probability.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.noise import Noise
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Verifier
from paceline.core.sequences import Sequences
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.verifiers.rejection import Rejection

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
Q2 = [[4, 4], [8, 0]]


def chain(law: Tree, tokens: Sequence[int], given: int = 0) -> float:
    """The probability of `tokens` behind the first `given` of them."""
    return math.prod(law[tuple(tokens[:i])][tokens[i]] for i in range(given, len(tokens)))


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
    p: Tree,
    q: Tree | None,
    k: int,
    lengths: Sequence[int] | None = None,
    beside: int = 0,
    verifier: Verifier | None = None,
    dtype: torch.dtype = torch.float32,
) -> RoundLaw:
    """The law of one round of `verifier` (None: `Rejection`) for drafts of `k` tokens from `q`
    (None: one fixed draft, a point mass), the last ones cut off so that `lengths` (default: k) are
    left, each equally often. `beside`: so many greedy rows come first in the batch; their p is
    one-hot at token 1 and they draft 1, 0, 0, … `dtype`: of p and q."""
    vocab, lengths = len(p[()]), [k] if lengths is None else lengths
    drafts = [tuple((i + 1) % vocab for i in range(k))]
    if q is not None:
        drafts = [x for x in product(range(len(q[()])), repeat=k) if chain(q, x)]
    cases = [(x, n) for x in drafts for n in lengths]
    played = Played(cases, p, q, beside, verifier or Rejection(), dtype)
    accepts, tokens = played.outcomes()
    law = dict.fromkeys(product(range(vocab), repeat=k + 1), 0.0)
    alpha = accepted = 0.0
    for (x, _), each, laws in zip(cases, accepts, tokens.tolist(), strict=True):
        weight = (1.0 if q is None else chain(q, x)) / len(lengths)
        for (n, share), behind in zip(each, laws, strict=True):
            alpha += weight * share * (n > 0)
            accepted += weight * share * n
            for t, part in enumerate(behind):
                emitted = (*x[:n], t)
                for rest in product(range(vocab), repeat=k - n):
                    much = weight * share * part
                    law[emitted + rest] += much * chain(p, emitted + rest, n + 1)
    return RoundLaw(law, alpha, accepted, played.front)


class Played:
    """One round for each of `cases`, a draft and its length, at any noise one asks for.

    A verifier compares each number of its noise with an edge. The edges are found by bisection, so
    that every outcome has its exact probability: no sampling, no tolerance. That nothing but those
    edges decides is itself looked at, at random noise.
    """

    def __init__(
        self,
        cases: Sequence[tuple[tuple[int, ...], int]],
        p: Tree,
        q: Tree | None,
        beside: int,
        verifier: Verifier,
        dtype: torch.dtype,
    ) -> None:
        self.k, self.vocab, self.beside = len(cases[0][0]), len(p[()]), beside
        self.verifier = verifier
        k, hot = self.k, [[0.0, 1.0] + [0.0] * (self.vocab - 2)]
        self.drafts = torch.tensor([[1] + [0] * (k - 1)] + [list(x) for x, _ in cases])
        self.lengths = torch.tensor([k, *(n for _, n in cases)])
        laws = [[p[x[:i]] for i in range(k + 1)] for x, _ in cases]
        self.p = torch.tensor([hot * (k + 1), *laws], dtype=dtype)
        self.q = None
        if q is not None:
            one_hot = [[1.0] + [0.0] * (len(q[()]) - 1)] * k
            scores = [[q[x[:i]] for i in range(k)] for x, _ in cases]
            self.q = torch.tensor([one_hot, *scores], dtype=dtype)
        self.front = Verdict(*[torch.empty(0)] * 2)

    def at(self, case: Tensor, accept: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """How many tokens are accepted of `case` [N], and the token behind them, where the noise is
        `accept` [N, K] and `last` [N]. The greedy rows' verdict becomes `front`."""
        rows = torch.cat([torch.zeros(self.beside, dtype=torch.int64), case + 1])
        greedy = torch.full((self.beside, self.k + 1), 0.5, dtype=torch.float64)
        u = torch.cat([greedy, torch.cat([accept, last[:, None]], 1)])
        target = Target(
            logits=self.p[rows].log(),
            top=torch.ones(len(rows), self.k + 1, dtype=torch.int64),
            sampled=range(self.beside, len(rows)),
            dense=self.p[rows[self.beside :]],
        )
        q = None if self.q is None else self.q[rows]
        draft = Draft(self.drafts[rows], self.lengths[rows].tolist(), q)
        noise = Noise(u[:, :-1], u[:, -1:].expand(-1, self.k + 1))
        verdict = self.verifier.verify(target, draft, noise)
        n = verdict.accepted[self.beside :]
        self.front = Verdict(verdict.tokens[: self.beside], verdict.accepted[: self.beside])
        return n, verdict.tokens[self.beside :].gather(1, n[:, None])[:, 0]

    def outcomes(self) -> tuple[list[list[tuple[int, float]]], Tensor]:
        """For each case and each way in which its accept tests can end: how many tokens are then
        accepted and how likely that way is; and the law [cases, ways, V] of the token behind."""
        k, count = self.k, len(self.drafts) - 1
        column = torch.arange(k)
        case, test = torch.cartesian_prod(torch.arange(count), column).T

        def accepts(u: Tensor, i: Tensor) -> Tensor:  # those before it passed, those behind failed
            mine = test[i, None]
            noise = torch.where(column > mine, FAILS, PASSES).scatter(1, mine, u[:, None])
            return self.at(case[i], noise, u)[0] > test[i]

        edges = edge(accepts, len(case)).reshape(count, 1, k)
        ways = torch.tensor(list(product([True, False], repeat=k)))
        shares = torch.where(ways, edges, 1 - edges).prod(-1)
        noise = torch.where(ways, PASSES, FAILS)
        case, way = torch.cartesian_prod(torch.arange(count), torch.arange(len(ways))).T
        n = self.at(case, noise[way], torch.full((len(case),), 0.5).double())[0]
        edges_each = self.vocab - 1  # between the tokens

        def comes_before(u: Tensor, i: Tensor) -> Tensor:
            here, below = i // edges_each, i % edges_each
            return self.at(case[here], noise[way[here]], u)[1] <= below

        upto = edge(comes_before, len(case) * edges_each).reshape(count, len(ways), -1)
        n = n.reshape(count, len(ways))
        self._nothing_else_decides(edges[:, 0], n, upto)
        ends = torch.ones(count, len(ways), 1).double()
        law = torch.cat([upto, ends], -1).diff(dim=-1, prepend=0 * ends)
        rows = zip(n.tolist(), shares.tolist(), strict=True)
        return [list(zip(a, b, strict=True)) for a, b in rows], law

    def _nothing_else_decides(self, edges: Tensor, n: Tensor, upto: Tensor, draws: int = 50):
        make = torch.Generator().manual_seed(0)
        case = torch.arange(len(edges)).repeat(draws)
        u = torch.rand(len(case), self.k + 1, generator=make, dtype=torch.float64)
        failed = (u[:, :-1] >= edges[case]).long()
        way = (failed * 2 ** torch.arange(self.k - 1, -1, -1)).sum(-1)
        accepted, token = self.at(case, u[:, :-1], u[:, -1])
        assert torch.equal(accepted, n[case, way])
        assert torch.equal(token, (u[:, -1:] >= upto[case, way]).sum(-1))


PASSES, FAILS = torch.zeros((), dtype=torch.float64), torch.tensor(1 - 2.0**-53).double()


def edge(holds: Callable[[Tensor, Tensor], Tensor], n: int) -> Tensor:
    """[n]: up to where in [0, 1) `holds(u, i)` is true for each i < n, by cutting in eighths."""
    low, width = torch.zeros(n, dtype=torch.float64), 1.0
    which = torch.arange(n).repeat(7)
    for _ in range(13):
        width /= 8
        points = low + width * torch.arange(1, 8)[:, None]
        low = low + width * holds(points.flatten(), which).reshape(7, n).sum(0)
    return low + width


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
    controller: Controller | None = None,
) -> Tensor:
    """The law [V, …] of the first `tokens` tokens behind the prompt [0], through the whole loop.
    `grid`: cells for the drafter's draws, the accept tests and the last draw. `controller`: of
    windows up to `k` (None: always k)."""
    seqs = Grid(k, tokens, *grid)
    for row in range(seqs.batch):
        seqs.admit(row, [0], params)
    target = CachedModel(model, seqs.batch, seqs.tokens.shape[1], vocab)
    loop = Loop(target, make_drafter(seqs), Rejection(), controller or Fixed(k))
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
