"""Laws of trees by exact enumeration.

The verifier's own code runs on `Uniform`s: numbers that know no more of themselves than which
interval they lie in. Every comparison that this leaves open splits the run in two, so each way that
the code can go is gone once, and its probability is the product of the intervals' lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import torch
from torch import Tensor

from exact import Tree, chain
from paceline.verifiers.candidates import Rule
from paceline.verifiers.tree import offers_of, walk

T = TypeVar("T")
Shape = tuple["Shape", ...]  # of a tree: the shapes behind each child
_NOTHING = 1e-13  # a part of an interval so small is rounding


class Run:
    """One way that the code can go: the first answers are given, open ones behind them are yes."""

    def __init__(self, answers: Sequence[bool]) -> None:
        self.answers, self.asked = list(answers), 0
        self.others: list[list[bool]] = []
        self.intervals: list[list[float]] = []

    def uniform(self) -> Uniform:
        self.intervals.append([0.0, 1.0])
        return Uniform(self, self.intervals[-1])

    def answer(self) -> bool:
        if self.asked == len(self.answers):
            self.others.append([*self.answers, False])
            self.answers.append(True)
        self.asked += 1
        return self.answers[self.asked - 1]

    @property
    def share(self) -> float:
        return math.prod(high - low for low, high in self.intervals)


class Uniform:
    """scale U + shift, for U uniform in an interval that comparisons make smaller."""

    def __init__(self, run: Run, interval: list[float], scale: float = 1, shift: float = 0) -> None:
        self.run, self.interval, self.scale, self.shift = run, interval, scale, shift

    def __mul__(self, c: float) -> Uniform:
        return Uniform(self.run, self.interval, self.scale * c, self.shift * c)

    def __sub__(self, c: float) -> Uniform:
        return Uniform(self.run, self.interval, self.scale, self.shift - c)

    def __truediv__(self, c: float) -> Uniform:
        return self * (1 / c)

    def __lt__(self, bound: float) -> bool:
        if not self.scale:
            return self.shift < bound
        edge = (bound - self.shift) / self.scale
        low, high = self.interval
        if edge >= high - _NOTHING:
            return True
        if not edge > low + _NOTHING:  # also NaN
            return False
        yes = self.run.answer()
        self.interval[yes] = edge
        return yes


def outcomes(experiment: Callable[[Run], T]) -> Iterator[tuple[float, T]]:
    """Everything that can come out, each time with its probability."""
    todo: list[list[bool]] = [[]]
    while todo:
        run = Run(todo.pop())
        result = experiment(run)
        todo += run.others
        yield run.share, result


@dataclass
class Drafted:
    """One draft and its probability. `draws`: the nodes of its continuations, if it has such."""

    share: float
    tokens: list[int]
    parents: list[int]
    q: list[list[float]] | None = None
    draws: Sequence[Sequence[int]] = ()

    def prefixes(self) -> list[tuple[int, ...]]:
        """[1 + n]: the tokens on the way to the root and to each node."""
        found: list[tuple[int, ...]] = [()]
        for token, parent in zip(self.tokens, self.parents, strict=True):
            found.append((*found[parent + 1], token))
        return found


def merged(paths: Iterable[Sequence[int]]) -> tuple[list[int], list[int], list[list[int]]]:
    """Tokens and parents of the tree of some paths of tokens, and the paths as nodes."""
    known: dict[tuple[int, ...], int] = {(): -1}
    tokens: list[int] = []
    parents: list[int] = []
    nodes: list[list[int]] = []
    for path in paths:
        nodes.append([])
        for i, token in enumerate(path):
            here = tuple(path[: i + 1])
            if here not in known:
                known[here] = len(tokens)
                tokens.append(token)
                parents.append(known[here[:-1]])
            nodes[-1].append(known[here])
    return tokens, parents, nodes


def independent(q: Tree, lengths: Sequence[int]) -> Iterator[Drafted]:
    """Every way to draw continuations of these lengths from q, merged."""
    width = range(len(q[()]))
    ways = [[x for x in product(width, repeat=n) if chain(q, x)] for n in lengths]
    for paths in product(*ways):
        tokens, parents, nodes = merged(paths)
        share = math.prod(chain(q, path) for path in paths)
        draft = Drafted(share, tokens, parents, None, nodes)
        before = draft.prefixes()
        draft.q = [q[before[parent + 1]] for parent in parents]
        yield draft


def without_replacement(q: Tree, shape: Shape) -> Iterator[Drafted]:
    """Every way to draw a tree of this shape, level by level; where q runs out of tokens, the rest
    of the siblings are left out."""
    yield from _expand(q, [(-1, (), shape)], Drafted(1.0, [], [], []))


def _expand(q: Tree, todo: list[tuple[int, tuple, Shape]], so_far: Drafted) -> Iterator[Drafted]:
    if not todo:
        yield so_far
        return
    (node, prefix, shape), *rest = todo
    yield from _siblings(q, node, prefix, shape, q.get(prefix, []), rest, so_far)


def _siblings(q, node, prefix, shapes, law, todo, so_far) -> Iterator[Drafted]:
    if not shapes or not any(law):
        yield from _expand(q, todo, so_far)
        return
    first, *others = shapes
    for token, chance in enumerate(law):
        if not chance:
            continue
        left = [0.0 if t == token else other for t, other in enumerate(law)]
        total = sum(left)
        new = (len(so_far.tokens), (*prefix, token), first)
        drafted = Drafted(
            so_far.share * chance,
            [*so_far.tokens, token],
            [*so_far.parents, node],
            [*(so_far.q or []), law],
        )
        left = [other / total for other in left] if total else left
        yield from _siblings(q, node, prefix, others, left, [*todo, new], drafted)


@dataclass
class TreeLaw:
    """Of one round: how far what comes first is from p, for any tokens; the probability that
    something is accepted, and how much on average."""

    error: float
    hit: float
    accepted: float


def tree_law(p: Tree, drafts: Iterable[Drafted], rule: Rule) -> TreeLaw:
    """The law of one round under `rule`, where the rest of the tokens follows p."""
    vocab, deep = len(p[()]), max(map(len, p)) + 1
    emitted: dict[tuple[int, ...], float] = {}
    hit = accepted = 0.0
    for draft in drafts:
        before = draft.prefixes()
        law = torch.tensor([p[x] for x in before], dtype=torch.float64)
        q = None if draft.q is None else torch.tensor(draft.q, dtype=torch.float64)
        offers = offers_of(draft.parents, draft.draws)

        def one(run: Run, draft=draft, law=law, q=q, offers=offers) -> tuple[list[int], Tensor]:
            u = [run.uniform() for _ in draft.tokens]
            return walk(law, offers, draft.tokens, q, u, rule)  # type: ignore[arg-type]

        for share, (path, weights) in outcomes(one):
            share *= draft.share
            hit += share * bool(path)
            accepted += share * len(path)
            start = before[path[-1] + 1] if path else ()
            for token, weight in enumerate((weights / weights.sum()).tolist()):
                x = (*start, token)
                emitted[x] = emitted.get(x, 0.0) + share * weight
    error = max(
        abs(chain(p, x) - sum(emitted.get(x[:n], 0.0) * chain(p, x, n) for n in range(1, deep + 1)))
        for x in product(range(vocab), repeat=deep)
    )
    return TreeLaw(error, hit, accepted)
