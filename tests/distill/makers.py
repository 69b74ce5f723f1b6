"""A tiny target, answers that nobody had to sample, and the smallest thing that can be trained."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.distill.data import Answer
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Batch, Export, Needs, Step
from paceline.models.packed import PackedWeights
from paceline.models.transformer import Transformer
from paceline.models.weights import HfCheckpoint

CPU = torch.device("cpu")


def target(folder: Path) -> Transformer:
    """The model of a folder in float32."""
    with PackedWeights(HfCheckpoint(folder), "fp32", CPU) as weights:
        return Transformer(weights)


def teacher(folder: Path) -> Teacher:
    return Teacher("tiny", folder, HfCheckpoint(folder), None, CPU)


def answers(count: int, vocab: int, seed: int = 0) -> list[Answer]:
    """`count` answers of random tokens, to as many prompts."""
    rng = random.Random(seed)
    made = []
    for i in range(count):
        prompt, completion = (
            [rng.randrange(vocab) for _ in range(rng.randint(2, most))] for most in (6, 14)
        )
        made.append(Answer(f"prompt {i}", 0.7 * (i % 2), prompt, completion, i + 1))
    return made


class Linear:
    """A `Trainee`: one matrix from the state at t to that at t + 1 + j, whatever j is."""

    kind = "linear"

    def __init__(self, teacher: Teacher, vocab: int, nan_at: int | None = None) -> None:
        self.settings: dict[str, Any] = {"size": teacher.config.hidden}
        self.needs = Needs(taps=(teacher.config.layers,))
        self.weight = torch.eye(teacher.config.hidden).requires_grad_(True)
        self.offset = torch.zeros(teacher.config.hidden)
        self.head = teacher.head(torch.arange(vocab))
        self.nan_at, self.calls = nan_at, 0

    def parameters(self) -> list[Tensor]:
        return [self.weight]

    @property
    def wants(self) -> int:
        return 1

    def absorb(self, batch: Batch) -> None:
        self.offset += batch.hidden[:, :, 0].mean((0, 1)) * 0.01

    def settle(self) -> None:
        self.offset *= 2

    def loss(self, batch: Batch, steps: int) -> Step:
        self.calls += torch.is_grad_enabled()
        states = batch.hidden[:, :, 0]
        guess = states
        losses, agree, overlap = [], [], []
        for j in range(steps):
            guess = guess @ self.weight + self.offset
            mask = batch.mask(j)
            aims = F.pad(states, (0, 0, 0, j + 1))[:, j + 1 :]
            tops = F.pad(batch.top, (0, j + 1), value=-1)[:, j + 1 :]
            q, p = ((x @ self.head.T).log_softmax(-1) for x in (guess, aims))
            losses.append(F.kl_div(q[mask], p[mask], reduction="sum", log_target=True))
            agree.append(q.argmax(-1) == tops)
            overlap.append(torch.minimum(p, q).exp().sum(-1).detach())
        loss = torch.stack(losses).sum() / max(1, batch.count)
        if self.calls == self.nan_at:
            loss = loss * float("nan")
        return Step(loss, agree, overlap)

    def state(self) -> dict[str, Tensor]:
        return {"weight": self.weight.detach(), "offset": self.offset}

    def load(self, state: dict[str, Tensor]) -> None:
        self.weight.data.copy_(state["weight"])
        self.offset.copy_(state["offset"])

    def export(self) -> Export:
        return Export(self.state(), {"kind": self.kind})
