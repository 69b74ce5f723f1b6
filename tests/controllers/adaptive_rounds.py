"""Rounds that are told to an adaptive window."""

from __future__ import annotations

from typing import Any

import torch

from paceline.controllers.adaptive import Adaptive
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Emitted, Round, Seconds


def a_round(controller: Adaptive, seqs: Sequences, lengths: list[int], accepted: list[int],
            by: list[int] | None = None, sure: Any = None) -> None:  # fmt: skip
    """Observes a round: drafts of `lengths` were made, and so many of their tokens passed."""
    emitted = []
    for b, (n, good) in enumerate(zip(lengths, accepted, strict=True)):
        emitted.append(Emitted([0] * (good + 1), n, good) if seqs.running[b] else None)
        seqs.lengths[b] += good + 1
    draft = Draft(torch.zeros(len(lengths), max(lengths), dtype=torch.int64), lengths,
                  sure=sure, by=by)  # fmt: skip
    nothing: Any = None
    n, batch = draft.tokens.shape[1], len(lengths)
    target = controller.book.curve(batch, 1, False).values[n]
    controller.observe(Round(draft, nothing, nothing, emitted, Seconds(0.0, target, 0.0)))


def rows_of(count: int, **params: Any) -> Sequences:
    seqs = Sequences(count, 4096)
    for b in range(count):
        seqs.admit(b, [1, 2], SamplingParams(max_tokens=4000, **params))
    return seqs
