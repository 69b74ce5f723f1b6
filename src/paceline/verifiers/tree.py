"""Verification of drafts that are trees: a walk from the root, one position at a time.

At each node a rule (see candidates.py) picks one of the candidates that follow it, or none: the
walk then ends with a draw from what is left of p. Each rule's output follows p at the node, so
tokens follow p one upon another, by the chain rule of probability. What the walk looked at before,
it never looks at again: a candidate's descendants were drawn independently of its siblings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor

from paceline.core.noise import Noise, draw
from paceline.core.protocols import NeedsLogits, Verifier
from paceline.core.target import Target
from paceline.core.tree import children, parents_of
from paceline.core.types import Draft, Verdict
from paceline.verifiers.candidates import Rule, kseq, one_by_one
from paceline.verifiers.paths import follow, verdict


class Trees:
    """Verifies trees; chains go to `chain`, also those that stand beside trees in a batch, so that
    no row's verdict depends on its neighbours.

    Greedy rows follow the target's likeliest tokens. Sampled rows take `one_by_one`, and where the
    tree was drawn as independent continuations (`Draft.draws`) what `rule` says: "kseq", or
    "specinfer", which is `one_by_one` again. Trees are verified without loss: `lossless` is what
    `chain` says of itself.
    """

    def __init__(self, chain: Verifier, rule: Literal["kseq", "specinfer"] = "kseq") -> None:
        self.lossless = chain.lossless
        self.needs_logits = isinstance(chain, NeedsLogits) and chain.needs_logits
        self._chain = chain
        self._rule: Rule = kseq if rule == "kseq" else one_by_one

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """`noise.accept[b, j]` decides on node j, `noise.last[b, n]` is the draw behind n accepted
        ones. For a draft with `parents` the verdict is on the CPU."""
        if draft.parents is None:
            return self._chain.verify(p, draft, noise)
        batch = range(len(draft.lengths))
        parents = [parents_of(draft, b) for b in batch]
        drawn = [_continuations(draft, b) if b in p.sampled else [] for b in batch]
        offers = [offers_of(parents[b], drawn[b]) for b in batch]
        chains = [b for b in batch if _is_chain(offers[b])]
        tokens, top = _rows(draft.tokens), _rows(p.top)
        paths, last = self._verify_chains(p, draft, noise, chains)
        for b in batch:
            if b in chains:
                continue
            if b not in p.sampled:
                likeliest = partial(_behind, top[b])
                paths[b], last[b] = follow(parents[b], tokens[b], likeliest)
                continue
            assert p.dense is not None
            paths[b], weights = walk(
                p.dense[p.sampled.index(b)],
                offers[b],
                tokens[b],
                None if draft.q is None else draft.q[b].to(p.dense.device),
                _rows(noise.accept[b]),
                self._rule if drawn[b] else one_by_one,
            )
            n = len(paths[b])
            last[b] = int(draw(weights[None], noise.last[b, n : n + 1]))
        return verdict(draft, paths, last, torch.device("cpu"))

    def _verify_chains(
        self, p: Target, draft: Draft, noise: Noise, chains: list[int]
    ) -> tuple[list[list[int]], list[int]]:
        """Paths and last tokens of all rows, of which those in `chains` mean something. The others
        are shown to the chain's verifier as rows without a draft, which saves copies of p and q."""
        batch = range(len(draft.lengths))
        paths: list[list[int]] = [[] for _ in batch]
        last = [-1] * len(batch)
        if chains:
            lengths = [draft.lengths[b] if b in chains else 0 for b in batch]
            found = self._chain.verify(p, Draft(draft.tokens, lengths, draft.q), noise)
            accepted, said = _rows(found.accepted), _rows(found.tokens)
            for b in chains:
                paths[b], last[b] = list(range(accepted[b])), said[b][accepted[b]]
        return paths, last


def walk(
    p: Tensor,
    offers: Sequence[Sequence[int]],
    tokens: Sequence[int],
    q: Tensor | None,
    u: Sequence[float],
    rule: Rule,
) -> tuple[list[int], Tensor]:
    """The accepted path of a sampled row, and the weights [V] of the token behind it.

    `p` [1 + n, V] stands behind the root and behind each node; `offers` [1 + n]: the candidates
    there, in order; `tokens`, `q` and `u` belong to the nodes (see `Rule`).
    """
    path: list[int] = []
    here = 0
    while True:
        node, weights = rule(p[here], offers[here], tokens, q, u)
        if node is None:
            return path, weights
        path.append(node)
        here = node + 1


def _behind(top: Sequence[int], node: int, _: int) -> int:
    return top[node + 1]


def _continuations(draft: Draft, row: int) -> list[list[int]]:
    """The row's independent continuations, as nodes; none where it was not drawn so."""
    if draft.draws is None or draft.q is None:
        return []
    found = [[node for node in line if node >= 0] for line in _rows(draft.draws[row])]
    return [line for line in found if line]


def offers_of(parents: Sequence[int], drawn: Sequence[Sequence[int]] = ()) -> list[list[int]]:
    """[1 + n]: the candidates behind the root and behind each node, in order: its children, or what
    the continuations that pass there drew next, as often as they drew it."""
    if not drawn:
        return children(parents)
    found: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for line in drawn:
        here = 0
        for node in line:
            found[here].append(node)
            here = node + 1
    return found


def _is_chain(offers: Sequence[Sequence[int]]) -> bool:
    return not offers[-1] and all(list(one) == [i] for i, one in enumerate(offers[:-1]))


def _rows(table: Tensor) -> Any:
    return cast("Any", table.tolist())  # pyright: ignore[reportUnknownMemberType]
