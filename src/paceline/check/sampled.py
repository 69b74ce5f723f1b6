"""Thousands of rounds through the production verifier, held against p.

At each context drafts are drawn from the drafter's own q with fresh noise, verified against the
target's own p, and what comes out is counted: the first token over the whole vocabulary, and at
some contexts the first two, where a wrong bonus token or a rule over several positions would show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paceline.check.chisquare import Fit, detectable, fit, holm
from paceline.check.contexts import One, Two
from paceline.check.verdicts import to_one
from paceline.core.noise import DRAFT, LAST, Noise, draw, uniforms
from paceline.core.protocols import Verifier
from paceline.core.target import Target
from paceline.core.types import Draft

ALPHA = 1e-3  # a run without any fault fails with this probability at most
_CELLS = 1 << 21  # numbers of p in one call: what it makes of them stays in the caches
_ROWS = 256  # rows of trees in one call
_PLAIN = 1 << 40  # committed tokens of another request: noise that the round does not see
FORMS = ("chain", "two candidates", "tree, drawn")


@dataclass(frozen=True)
class Sampled:
    """One test. `tokens`: of how many the joint law was looked at; `form`: how the candidates were
    drawn. `adjusted`: the p-value after Holm's correction over all tests of the run. `detectable`:
    a total variation that this test sees with probability 0.9, whatever its shape."""

    where: str
    tokens: int
    form: str
    rounds: int
    fit: Fit
    adjusted: float
    detectable: float

    @property
    def ok(self) -> bool:
        """Whether the counts can be p's."""
        return self.adjusted >= ALPHA


def check_sampled(
    verifier: Verifier,
    ones: Sequence[One],
    twos: Sequence[Two],
    rounds: int,
    seed: int = 0,
    forms: Sequence[str] = FORMS,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[Sampled]:
    """`rounds` rounds at each context, and for each of `forms` where two tokens are looked at and a
    q to draw from is there."""
    jobs: list[tuple[One | Two, str]] = [(one, "chain") for one in ones]
    jobs += [(two, form) for two in twos for form in forms if form == "chain" or two.drawn]
    found: list[Sampled] = []
    for i, (context, form) in enumerate(jobs):
        progress(i, len(jobs), "sampling")
        own = seed + (i << 32)  # a request's seed: no two rounds of the run share one
        if isinstance(context, One):
            counts, p, tokens = count_one(verifier, context, rounds, own), context.p[0], 1
        else:
            counts, tokens = count_two(verifier, context, rounds, own, form), 2
            p = context.first.double()[:, None] * to_one(context.second)
        found.append(Sampled(context.where, tokens, form, rounds, fit(counts, p), 1.0, 0.0))
    progress(len(jobs), len(jobs), "sampling")
    adjusted = holm([each.fit.p_value for each in found])
    level = ALPHA / max(1, len(found))
    return [
        replace(each, adjusted=a, detectable=detectable(each.fit.freedom, rounds, level))
        for each, a in zip(found, adjusted, strict=True)
    ]


def count_one(verifier: Verifier, context: One, rounds: int, seed: int) -> Tensor:
    """How often each token [V] came first."""
    vocab = context.p.shape[1]
    counts = torch.zeros(vocab, dtype=torch.int64)
    size = max(1, _CELLS // (2 * vocab))
    k = int(context.x >= 0)
    for start in range(0, rounds, size):
        seeds = [seed + i for i in range(start, min(rounds, start + size))]
        n, bases = len(seeds), [0] * len(seeds)
        x = torch.full((n, k), context.x)
        if k and context.q is not None:
            x = _drawn(context.q, uniforms(seeds, bases, DRAFT, range(1))[:, 0])[:, None]
        q = None if context.q is None or not k else context.q.expand(n, 1, -1)
        dense = context.p[: k + 1].expand(n, -1, -1)
        verdict = verifier.verify(_target(dense), Draft(x, [k] * n, q), Noise.at(seeds, bases, k))
        counts += torch.bincount(verdict.tokens[:, 0], minlength=vocab)
    return counts


def _drawn(weights: Tensor, u: Tensor) -> Tensor:
    """Many tokens [N] from one law [V], as `draw` draws one."""
    sums = weights.double().cumsum(-1)
    most = int(torch.searchsorted(sums, sums[-1]))
    return torch.searchsorted(sums, u * sums[-1], right=True).clamp(max=most)


def _target(dense: Tensor) -> Target:
    """All rows sampled. A lenient verifier asks for logits, but uses them for greedy rows alone."""
    return Target(dense, torch.zeros(dense.shape[:2], dtype=torch.int64), range(len(dense)), dense)


def count_two(verifier: Verifier, context: Two, rounds: int, seed: int, form: str) -> Tensor:
    """How often each two tokens [V, V] came first. In every other round only one token is drafted,
    or of the second of two candidates nothing, so that the bonus token is looked at too."""
    vocab = len(context.first)
    counts = torch.zeros(vocab * vocab, dtype=torch.int64)
    size = min(_ROWS, rounds) if form != "chain" else max(1, _CELLS // (3 * vocab))
    for start in range(0, rounds, size):
        seeds = [seed + i for i in range(start, min(rounds, start + size))]
        bases = [0] * len(seeds)
        draft, dense = _FORMS[form](context, seeds)
        noise = Noise.at(seeds, bases, draft.tokens.shape[1])
        verdict = verifier.verify(_target(dense), draft, noise)
        first, second = verdict.tokens[:, 0], verdict.tokens[:, :2][:, -1]
        # where one token came out the next one is plain decoding's
        plain = draw(
            context.second[first], uniforms(seeds, [_PLAIN] * len(seeds), LAST, range(1))[:, 0]
        )
        second = torch.where(verdict.accepted > 0, second, plain)
        counts += torch.bincount(first * vocab + second, minlength=vocab * vocab)
    return counts.view(vocab, vocab)


def _draft_noise(seeds: Sequence[int]) -> Tensor:
    return uniforms(seeds, [0] * len(seeds), DRAFT, range(2))


def _chain(context: Two, seeds: Sequence[int]) -> tuple[Draft, Tensor]:
    u = _draft_noise(seeds)
    if not any(context.lengths):
        return Draft(torch.zeros(len(seeds), 0, dtype=torch.int64), [0] * len(seeds)), (
            context.first.expand(len(seeds), 1, -1)
        )
    x = _drawn(context.q_first, u[:, 0])
    q = torch.stack([context.q_first.expand(len(seeds), -1), context.q_second[x]], 1)
    y = draw(q[:, 1], u[:, 1]).clamp(min=0)
    lengths = [min(context.lengths[token], 1 + i % 2) for i, token in enumerate(x.tolist())]
    p = torch.stack([context.first.expand(len(seeds), -1), context.second[x], context.second[y]], 1)
    return Draft(torch.stack([x, y], 1), lengths, q if context.drawn else None), p


def _candidates(context: Two, seeds: Sequence[int]) -> tuple[Draft, Tensor]:
    """Two independent first tokens; where they agree they are one node."""
    u = _draft_noise(seeds)
    x, y = _drawn(context.q_first, u[:, 0]), _drawn(context.q_first, u[:, 1])
    same = x == y
    lengths = [1 if one else 2 for one in same.tolist()]
    draws = torch.zeros(len(seeds), 2, 1, dtype=torch.int64)
    draws[:, 1, 0] = (~same).to(torch.int64)
    return _siblings(context, x, y, context.q_first.expand(len(seeds), -1), lengths, draws)


def _tree(context: Two, seeds: Sequence[int]) -> tuple[Draft, Tensor]:
    """Two first tokens, the second from what the first one left."""
    u = _draft_noise(seeds)
    x = _drawn(context.q_first, u[:, 0])
    left = context.q_first.repeat(len(seeds), 1)
    left[torch.arange(len(x)), x] = 0
    some = left.sum(-1) > 0
    left = torch.where(some[:, None], left / left.sum(-1, keepdim=True), context.q_first)
    y = draw(left, u[:, 1])
    lengths = [2 if more else 1 for more in some.tolist()]
    return _siblings(context, x, y, left, lengths, None)


def _siblings(
    context: Two, x: Tensor, y: Tensor, q: Tensor, lengths: list[int], draws: Tensor | None
) -> tuple[Draft, Tensor]:
    rows = len(x)
    tokens = torch.stack([x, y], 1)
    laws = torch.stack([context.q_first.expand(rows, -1), q], 1)
    p = torch.stack([context.first.expand(rows, -1), context.second[x], context.second[y]], 1)
    parents = torch.full((rows, 2), -1)
    return Draft(tokens, lengths, laws, parents, draws), p


_FORMS: dict[str, Callable[[Two, Sequence[int]], tuple[Draft, Tensor]]] = {
    "chain": _chain,
    "two candidates": _candidates,
    "tree, drawn": _tree,
}
