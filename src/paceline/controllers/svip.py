"""SVIP (Zhang et al. 2024, arXiv 2411.18462): drafts end behind a token that was drawn from a flat
distribution.

By Pinsker's inequality a drafted token is accepted with probability at least 1 - sqrt(KL(q, p) / 2)
= 1 - sqrt((H(q, p) - H(q)) / 2). The cross-entropy is found to be about the same multiple of H(q)
for most tokens, so the bound is 1 - sqrt(c H) with some c, and a draft goes on while sqrt(H) is no
more than h. The paper says h = 0.3 and leaves c out; the released program ends a draft where
sqrt(0.15 H) > 0.3, which is h = 0.775.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import inf, sqrt

from torch import Tensor

from paceline.controllers.rules import Rule, Ruled, entropy, within
from paceline.core.types import Emitted


class SVIP(Ruled):
    """Drafts of at most `k` tokens that end behind the first one with sqrt(H) > `h`, H the entropy
    in nats. Nothing is learned. Raises PacelineError if k or h is negative."""

    def __init__(self, k: int, h: float = 0.3) -> None:
        within("svip: h", h, 0, inf)
        super().__init__(k, partial(_Flat, h))


class _Flat(Rule):
    def __init__(self, h: float) -> None:
        super().__init__()
        self._h = h

    def measure(self, logits: Tensor) -> Tensor:
        """The entropy in nats."""
        return entropy(logits)

    def goes_on(self, row: int, drafted: int, sure: Sequence[float]) -> bool:
        return sqrt(sure[drafted - 1]) <= self._h

    def learn(self, row: int, emitted: Emitted, sure: Sequence[float]) -> None:
        """Nothing."""
