"""How to train: the budget and the rates."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """How to train: for `tokens` trained tokens or `seconds`, whichever is given.

    `lr`: the peak, after a linear warm-up over `warmup` of the budget; it falls to a tenth of
    itself along a cosine. `steps`: unrolled steps. `batch`: tokens of a batch, padding counted.
    `clip`: the gradient's largest norm. `averaging`: of the weights, a step. `evaluations`: how
    many over the budget, fewer where they take long; the run ends early after `patience` of them in
    which neither τ nor the loss got better. `every`: seconds between checkpoints.
    """

    tokens: int | None = None
    seconds: float | None = None
    lr: float = 3e-4
    steps: int = 4
    batch: int = 256
    seed: int = 0
    warmup: float = 0.05
    clip: float = 1.0
    averaging: float = 0.99
    evaluations: int = 16
    patience: int = 6
    every: float = 60.0

    def rate(self, share: float) -> float:
        """The learning rate when `share` of the budget is used."""
        if share < self.warmup:
            return self.lr * max(share, 0.02 * self.warmup) / self.warmup
        left = (1 - share) / (1 - self.warmup)
        return self.lr * (0.1 + 0.9 * 0.5 * (1 - math.cos(math.pi * min(1.0, max(0.0, left)))))
