"""Typical acceptance (Cai et al. 2024, Medusa, arXiv 2401.10774, section 2.3.1). NOT lossless.

Accept a drafted token x if p(x) > min(ε, δ exp(-H(p))), H the entropy of p in nats: where p is flat
the bar is low. Of a tree the longest accepted path counts, among several the likeliest. The token
behind it is drawn from p. What was drafted is taken for good as long as it is plausible, so likely
tokens come more often than p says, and unlikely ones less often.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.core.noise import Noise, draw
from paceline.core.target import Target
from paceline.core.tree import ancestry, parents_of
from paceline.core.types import Draft, Verdict
from paceline.verifiers.paths import verdict


class Typical:
    """For chains and trees; greedy rows take the greedy rule, and are what the target would say.

    `epsilon` ε: no bar is above it; `delta` δ: the bar where p is certain, were it not for that.
    """

    lossless = False

    def __init__(self, epsilon: float = 0.09, delta: float = 0.3) -> None:
        self.epsilon = epsilon
        self.delta = delta

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """`noise.last` decides the draw behind the accepted tokens; the rest is not looked at."""
        x = draft.tokens.to(p.top.device)
        behind = torch.arange(x.shape[1]).expand(x.shape)
        if draft.parents is not None:
            behind = draft.parents + 1
        behind = behind.to(x.device, non_blocking=True)  # the index of each token's p
        passes = x == p.top.gather(1, behind)
        score = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        if p.dense is not None:
            rows = torch.tensor(p.sampled).to(x.device, non_blocking=True)
            at = torch.arange(len(rows), device=x.device)[:, None]
            px = p.dense[at, behind[rows], x[rows]].double()
            passes[rows] = px > self._bar(p.dense).gather(1, behind[rows])
            score[rows] = px.log()
        yes: list[list[bool]] = passes.tolist()  # pyright: ignore
        likely: list[list[float]] = score.tolist()  # pyright: ignore
        paths = [
            _longest(parents_of(draft, b), yes[b], likely[b]) for b in range(len(draft.lengths))
        ]
        return verdict(draft, paths, self._last(p, noise, paths), x.device)

    def _bar(self, p: Tensor) -> Tensor:
        """[..., V] -> [...], float64."""
        entropy = -torch.xlogy(p, p).sum(-1, dtype=torch.float64)
        return (self.delta * torch.exp(-entropy)).clamp(max=self.epsilon)

    def _last(self, p: Target, noise: Noise, paths: Sequence[Sequence[int]]) -> list[int]:
        at = [path[-1] + 1 if path else 0 for path in paths]
        tokens = p.top[torch.arange(len(at)), at]
        if p.dense is not None:
            rows, n = list(p.sampled), [len(paths[b]) for b in p.sampled]
            law = p.dense[torch.arange(len(rows)), [at[b] for b in rows]]
            tokens[rows] = draw(law, noise.last[rows, n])
        found: list[int] = tokens.tolist()  # pyright: ignore
        return found


def _longest(parents: Sequence[int], passes: Sequence[bool], score: Sequence[float]) -> list[int]:
    """The path of most tokens that all pass; among several the one of the largest sum of scores."""
    reached = {-1: (0, 0.0)}
    best = -1
    for node, parent in enumerate(parents):
        if passes[node] and parent in reached:
            n, total = reached[parent]
            reached[node] = n + 1, total + score[node]
            if reached[node] > reached[best]:
                best = node
    return ancestry(parents, best)
