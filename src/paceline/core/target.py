"""p: the target's distribution at every position of a round, each from its own prefix."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.core.params import SamplingParams
from paceline.core.shape import distribution


@dataclass(frozen=True)
class Target:
    """p for T positions of B rows.

    `logits` [B, T, V]: raw; None where nobody needed them. `top` [B, T] int64: the likeliest token
    after penalties, bias and masks, the lowest id on a tie; -1 where there is none (NaN, or
    everything masked): all that a greedy row needs, whose p is one-hot there. `sampled`: the rows
    with a temperature; `dense` [len(sampled), T, V] float32: their p, or None if there are none.
    Greedy rows never get a dense one.
    """

    logits: Tensor | None
    top: Tensor
    sampled: Sequence[int] = ()
    dense: Tensor | None = None


@dataclass(frozen=True)
class Prefix:
    """What the penalties of one row need to know. `prompt` and `output`: committed ids. `draft`:
    proposed ids; position t of the round stands behind the first t of them. `eos`: end tokens."""

    params: SamplingParams
    prompt: Tensor
    output: Tensor
    draft: Tensor
    eos: Collection[int]


def target(logits: Tensor, rows: Sequence[Prefix | None]) -> Target:
    """p from `logits` [B, T, V]; `rows[b]` is None for a row that is not running."""
    batch = range(len(rows))
    adjusted = {b: _adjust(logits[b], p) for b in batch if (p := rows[b]) and p.params.adjusts}
    top = _top(logits)
    for b, scores in adjusted.items():
        top[b] = _top(scores)
    sampled = [b for b in batch if (p := rows[b]) and not p.params.greedy]
    if not sampled:
        return Target(logits, top)
    dense = torch.stack(
        [
            distribution(adjusted.get(b, logits[b]), p.params, p.params.temperature)
            for b in sampled
            if (p := rows[b])
        ]
    )
    return Target(logits, top, sampled, dense)


def _top(logits: Tensor) -> Tensor:
    """[..., V] -> the index of the largest value (a NaN counts as it), -1 if it is not finite."""
    value, index = logits.max(-1)
    return torch.where(torch.isfinite(value), index, -1)


def _adjust(logits: Tensor, row: Prefix) -> Tensor:
    """A copy of one row's `logits` [T, V] with penalties, bias and masks, each position's counts
    taken from the prefix of that very position."""
    params, vocabulary = row.params, logits.shape[-1]
    scores = logits.clone()
    draft = row.draft.to(scores.device)
    output = torch.bincount(row.output, minlength=vocabulary)[:vocabulary].to(scores.device)
    seen = output + torch.bincount(row.prompt, minlength=vocabulary)[:vocabulary].to(scores.device)
    for t in range(scores.shape[0]):
        if 0 < t <= len(draft):  # only now: the draft's earlier tokens are part of this prefix
            output[draft[t - 1]] += 1
            seen[draft[t - 1]] += 1
        line = scores[t]
        if params.repetition_penalty != 1:
            penalty = params.repetition_penalty
            harder = torch.where(line > 0, line / penalty, line * penalty)
            line.copy_(torch.where(seen > 0, harder, line))
        if params.frequency_penalty:
            line.sub_(params.frequency_penalty * output)
        if params.presence_penalty:
            line.sub_(params.presence_penalty * (output > 0))
    for token, bias in params.logit_bias.items():
        if token < vocabulary:
            scores[:, token] += bias
    early = params.min_tokens - len(row.output)  # positions that may not end yet
    if early > 0:
        ends = [token for token in row.eos if token < vocabulary]
        scores[:early, ends] = -torch.inf
    return scores
