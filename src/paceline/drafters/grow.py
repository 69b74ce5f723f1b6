"""Trees that grow where the drafter is sure, and only as far as they pay.

EAGLE-2 (Li et al. 2024, sections 4.1 and 4.2): a drafter's own probability of a token is close to
the chance that it is accepted, so the product of them along a path, its confidence, is close to the
chance that the whole path is. The tree grows level by level, at the surest nodes of each, and is
then cut to its surest ones: no token is surer than the one it follows, so what is left is a tree.

How many are left, and how far it grows, is given, or follows from what they cost. With r(n) for
scoring n tokens and d for drafting, both in units of T(1), the N surest tokens promise

    (1 + Σ_{i<=N} confidence_i) / (r(N + 1) + d)

tokens in the time of one plain step. A chain is the tree that is left where branches do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.core.sequences import Sequences
from paceline.core.shape import distribution
from paceline.core.types import Draft
from paceline.drafters.sampling import MOST, Grows, heat, padded

WIDTH = 8


@dataclass(frozen=True)
class Costs:
    """What passes cost, in units of T(1), one of the target over one token. `target[n - 1]`: one
    over n tokens, r(n). `draft[w - 1]`: one of the draft over w. What is not in them is out of
    reach."""

    target: Sequence[float]
    draft: Sequence[float]


@dataclass(frozen=True)
class TreeSize:
    """How large a tree may grow. `nodes`: so many tokens are left of it, or as many as pay at these
    costs. `width`: so many nodes of a level are looked behind, at so many tokens each."""

    nodes: int | Costs
    width: int = WIDTH


def pays(r: Sequence[float], sure: Sequence[float], spent: float = 0.0) -> int:
    """How many of the candidates, of confidence `sure` (descending), to have verified: the N in
    0..len(r) - 1 that promises most (see above); the smallest on a tie. `spent`: on drafting."""
    return _best(r, sure, spent)[1]


def widest(
    costs: Costs, sure: Sequence[float], level: Sequence[float], depth: int, more: int, spent: float
) -> int:
    """How many of a level's nodes, of confidence `level` (descending), to look behind; 0: it does
    not pay. `sure`: of all candidates, those among them, descending; `depth`: how many tokens stand
    on the path to such a node; `more`: so many may follow. A node is expected to go on as it came
    to be: each further token is as sure as those on its path were in the geometric mean."""
    now, _ = _best(costs.target, sure, spent)
    chosen = 0
    for width in range(1, min(len(level), len(costs.draft)) + 1):
        further: list[float] = []
        paid = spent
        for step in range(1, more + 1):
            further += [x ** (1 + step / depth) for x in level[:width]]
            paid += costs.draft[width - 1]
            promised, _ = _best(costs.target, sorted([*sure, *further], reverse=True), paid)
            if promised > now:
                now, chosen = promised, width
    return chosen


def _best(r: Sequence[float], sure: Sequence[float], spent: float) -> tuple[float, int]:
    """What the best N promises, and that N."""
    gained = 1.0
    best, chosen = gained / (r[0] + spent), 0
    for n, (more, cost) in enumerate(zip(sure, r[1:], strict=False), 1):
        gained += more
        if gained / (cost + spent) > best:
            best, chosen = gained / (cost + spent), n
    return best, chosen


class Growth:
    """Drafts a tree from what `reads` scores, for each row a deterministic one: q is None.

    Confidence is of the distribution that a `Chain` would draw from: at each row's own temperature
    and truncation, or at `temperature`; the plain softmax where that is 0. `ids` [V'] int64: the
    target's id of each logit (None: the same), of which `vocab` are known.
    """

    def __init__(
        self,
        reads: Grows,
        size: TreeSize,
        temperature: float | None = None,
        ids: Tensor | None = None,
        vocab: int | None = None,
    ) -> None:
        self._reads = reads
        self._size = size
        self._temperature = temperature
        self._ids = None if ids is None else ids.cpu()
        self._vocab = vocab

    def propose(self, seqs: Sequences, lengths: Sequence[int]) -> Draft:
        """Paths of at most `lengths[b]` tokens for row b."""
        return _cut(self._grow(seqs, lengths))

    def _grow(self, seqs: Sequences, lengths: Sequence[int]) -> list[_Tree]:
        trees = [_Tree(self._size, n) for n in lengths]
        sets: list[list[int]] = [[-1] if n else [] for n in lengths]
        read: list[list[int]] = [[] for _ in trees]  # parents of the nodes that were read
        logits = self._reads.read(seqs)[:, None]
        while True:
            for b, (tree, nodes) in enumerate(zip(trees, sets, strict=True)):
                if nodes:
                    tree.add(nodes, self._likeliest(seqs, b, logits[b, : len(nodes)]))
            before = len(read[0])
            sets = [tree.front() for tree in trees]
            width = max(len(nodes) for nodes in sets)
            if not width:
                return trees
            if before + width > MOST:  # by padding: each alone has room
                return [self._alone(seqs, b, n) for b, n in enumerate(lengths)]
            tokens = padded([[trees[b].tokens[i] for i in x] for b, x in enumerate(sets)], 0)
            for tree, nodes, parents in zip(trees, sets, read, strict=True):
                places = tree.read(nodes, before)
                parents += places + [-1] * (width - len(places))
            logits = self._reads.level(seqs, tokens, torch.tensor(read))

    def _alone(self, seqs: Sequences, row: int, length: int) -> _Tree:
        """The tree of one row, which must not depend on its neighbours."""
        lengths = [length if b == row else 0 for b in range(seqs.batch)]
        return self._grow(seqs.only([row]), lengths)[row] if length else _Tree(self._size, 0)

    def _likeliest(
        self, seqs: Sequences, row: int, logits: Tensor
    ) -> list[list[tuple[float, int]]]:
        """The likeliest tokens behind each of `logits` [n, V']: how likely, and the target's id."""
        if self._ids is None:
            logits = logits[:, : self._vocab]
        hot = heat(seqs, row, self._temperature)
        width = min(self._size.width, logits.shape[-1])
        if hot > 0:
            shares, index = distribution(logits, seqs.params[row], hot).topk(width, -1)
        else:
            top, index = logits.topk(width, -1)
            shares = (top - logits.logsumexp(-1, keepdim=True)).exp()
        tokens = index if self._ids is None else self._ids.to(index.device)[index]
        if self._ids is not None and self._vocab is not None:
            shares = torch.where(tokens < self._vocab, shares, 0.0)
        both: list[tuple[list[float], list[int]]]
        both = list(zip(shares.tolist(), tokens.tolist(), strict=True))  # pyright: ignore
        return [list(zip(*line, strict=True)) for line in both]


class _Tree:
    """One row's candidates, in the order in which they were found: parents first."""

    def __init__(self, size: TreeSize, depth: int) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.sure: list[float] = []
        self._size = size
        self._left = depth  # levels that may follow
        self._depth = 0
        self._level = range(0)  # those found last
        self._place: dict[int, int] = {-1: -1}  # among the nodes that were read
        self._spent = 0.0

    def add(self, nodes: Sequence[int], found: Sequence[Sequence[tuple[float, int]]]) -> None:
        """One more level: what is likeliest behind each of `nodes`, and how likely."""
        start = len(self.tokens)
        for node, likely in zip(nodes, found, strict=True):
            above = self.sure[node] if node >= 0 else 1.0
            for share, token in likely:
                if share > 0:  # neither NaN nor out of the question
                    self.tokens.append(token)
                    self.parents.append(node)
                    self.sure.append(above * min(1.0, share))
        self._level = range(start, len(self.tokens))
        self._left -= 1
        self._depth += 1
        if isinstance(self._size.nodes, Costs):
            draft = self._size.nodes.draft
            self._spent += draft[min(len(nodes), len(draft)) - 1]

    def front(self) -> list[int]:
        """The nodes of the last level to look behind, as many as a cache has room for; none where
        all is done."""
        room = MOST + 1 - len(self._place)  # -1 is not a node
        best = self._surest(self._level)[: min(self._size.width, room)]
        self._level = range(0)
        if not self._left or not best:
            return []
        nodes = self._size.nodes
        if isinstance(nodes, Costs):
            level = [self.sure[i] for i in best]
            among = sorted(self.sure, reverse=True)[: len(nodes.target)]
            return best[: widest(nodes, among, level, self._depth, self._left, self._spent)]
        # what follows the last that is kept now, or a less sure one, would be cut
        kept = sorted(self.sure, reverse=True)[:nodes]
        return [i for i in best if len(kept) < nodes or self.sure[i] > kept[-1]]

    def read(self, nodes: Sequence[int], before: int) -> list[int]:
        """`nodes` are read next, behind `before` others: the places of their parents."""
        self._place.update((node, before + i) for i, node in enumerate(nodes))
        return [self._place[self.parents[node]] for node in nodes]

    def kept(self) -> list[int]:
        """The nodes that are left, in order."""
        among = self._surest(range(len(self.tokens)))
        nodes = self._size.nodes
        if isinstance(nodes, Costs):
            count = pays(nodes.target, [self.sure[i] for i in among], self._spent)
        else:
            count = nodes
        return sorted(among[: min(MOST, count)])

    def _surest(self, among: Sequence[int]) -> list[int]:
        """Surest first; of equals the first found, which no other one's child is."""
        return sorted(among, key=lambda i: -self.sure[i])


def _cut(trees: Sequence[_Tree]) -> Draft:
    """What is left of each; a chain where that is one in every row."""
    tokens: list[list[int]] = []
    parents: list[list[int]] = []
    for tree in trees:
        kept = tree.kept()
        place = {-1: -1} | {node: i for i, node in enumerate(kept)}
        tokens.append([tree.tokens[node] for node in kept])
        parents.append([place[tree.parents[node]] for node in kept])
    lengths = [len(row) for row in tokens]
    chains = all(row == list(range(-1, len(row) - 1)) for row in parents)
    return Draft(padded(tokens, 0), lengths, None, None if chains else padded(parents, -1))
