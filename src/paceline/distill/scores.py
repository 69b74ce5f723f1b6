"""How good a drafter would be, from what it guesses on held-out answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from paceline.distill.trainee import Batch, Trainee

K = 4
"""Unrolled steps that τ is predicted for."""


@dataclass(frozen=True)
class Scores:
    """What one evaluation found, greedily.

    `loss`: its mean. `alpha_at[j]`: of the anchors whose guesses before step j were all right, the
    share where step j's is right too: acceptance by position. `agree_at[j]`: the share of all
    anchors where step j's guess is right. `overlap_at[j]`: the mean of Σ min(p, q), acceptance when
    sampling; empty if the trainee does not say. `anchors`: how many there were at step 0.
    """

    loss: float
    alpha_at: list[float]
    agree_at: list[float]
    overlap_at: list[float]
    anchors: int

    @property
    def tau(self) -> float:
        """Tokens a round at K = len(alpha_at): 1 + Σ_j Π_{i<=j} alpha_at[i]."""
        total, reach = 1.0, 1.0
        for alpha in self.alpha_at:
            reach *= alpha
            total += reach
        return total

    def to_dict(self) -> dict[str, Any]:
        """As JSON, for the log."""
        return {
            "held_out_loss": round(self.loss, 5),
            "tau": round(self.tau, 4),
            "alpha_at": [round(a, 4) for a in self.alpha_at],
            "agree_at": [round(a, 4) for a in self.agree_at],
            "overlap_at": [round(a, 4) for a in self.overlap_at],
            "anchors": self.anchors,
        }


@torch.no_grad()
def evaluate(trainee: Trainee, batches: Iterable[Batch], k: int = K) -> Scores:
    """`trainee` on held-out `batches`, `k` steps deep."""
    loss, anchors = 0.0, 0
    reached, accepted, agreed, counted = ([0] * k for _ in range(4))
    overlap = [0.0] * k
    overlaps = False
    for batch in batches:
        with autocast(batch.tokens.device):
            step = trainee.loss(batch, k)
        loss += float(step.loss) * batch.count
        anchors += batch.count
        chain = torch.ones_like(batch.mask(0))
        for j, agree in enumerate(step.agree):
            mask = batch.mask(j)
            chain = chain & mask  # a shorter answer leaves fewer anchors for deeper steps
            reached[j] += int(chain.sum())
            chain = chain & agree
            accepted[j] += int(chain.sum())
            counted[j] += int(mask.sum())
            agreed[j] += int((agree & mask).sum())
            if step.overlap:
                overlaps = True
                overlap[j] += float(step.overlap[j][mask].sum())
    return Scores(
        loss=loss / max(1, anchors),
        alpha_at=_shares(accepted, reached),
        agree_at=_shares(agreed, counted),
        overlap_at=_shares(overlap, counted) if overlaps else [],
        anchors=anchors,
    )


def summary(line: dict[str, Any]) -> str:
    """A line of the log, for people."""
    loss = "" if line["loss"] is None else f"loss {line['loss']:.3f}, "
    alphas = " ".join(f"{alpha:.2f}" for alpha in line["alpha_at"])
    return (
        f"{line['tokens']:,} tokens, {line['seconds']:.0f} s: {loss}"
        f"held out {line['held_out_loss']:.3f}, α by position {alphas}, τ {line['tau']:.2f}"
    )


def autocast(device: torch.device) -> torch.autocast:
    """bf16 on CUDA; float32 on a CPU, which has no faster way of its own."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


def _shares(part: list[int] | list[float], whole: list[int]) -> list[float]:
    return [p / w if w else 0.0 for p, w in zip(part, whole, strict=True)]
