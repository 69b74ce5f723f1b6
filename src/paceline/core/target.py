"""p: the target's distribution at every position of a round, each from its own prefix."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paceline.core.params import SamplingParams
from paceline.core.protocols import Matcher
from paceline.core.shape import distribution
from paceline.core.tree import ancestry, depths


@dataclass(frozen=True)
class Target:
    """p for T positions of B rows: behind the committed tokens, and behind each drafted one.

    `logits` [B, T, V]: raw; None where nobody needed them. `top` [B, T] int64: the likeliest token
    after penalties, bias and masks, the lowest id on a tie; -1 where there is none (NaN, or
    everything masked): all that a greedy row needs, whose p is one-hot there; sampled rows have -1
    throughout. `sampled`: the rows with a temperature; `dense` [len(sampled), T, V] float32: their
    p, or None if there are none. Greedy rows never get a dense one. `adjusted[b]` [T, V]: the
    logits after penalties, bias and masks, of those greedy rows that ask for any. `verify[b]`: the
    verifier that a row asks for; empty: none does.
    """

    logits: Tensor | None
    top: Tensor
    sampled: Sequence[int] = ()
    dense: Tensor | None = None
    adjusted: Mapping[int, Tensor] = field(default_factory=dict[int, Tensor])
    verify: Sequence[str | None] = ()


@dataclass(frozen=True)
class Prefix:
    """What the penalties of one row need to know. `prompt` and `output`: committed ids. `draft`:
    proposed ids; `eos`: end tokens; `parents`: which proposed id each one follows (-1: the
    committed ones; None: the one before it); `matcher`: of the row's grammar. Position t + 1 of the
    round stands behind proposed id t and those on its path."""

    params: SamplingParams
    prompt: Tensor
    output: Tensor
    draft: Tensor
    eos: Collection[int]
    parents: Sequence[int] | None = None
    matcher: Matcher | None = None


def target(logits: Tensor, rows: Sequence[Prefix | None]) -> Target:
    """p from `logits` [B, T, V]; `rows[b]` is None for a row that is not running."""
    batch = range(len(rows))
    adjusted = {b: _adjust(logits[b], p) for b in batch if (p := rows[b]) and p.params.adjusts}
    sampled = [b for b in batch if (p := rows[b]) and not p.params.greedy]
    # of rows that are sampled nobody asks for the likeliest, which costs as much as a softmax
    top = torch.full(logits.shape[:2], -1, dtype=torch.int64, device=logits.device)
    for b in batch:
        if (p := rows[b]) and b not in sampled:
            real = len(p.draft) + 1  # what stands behind is padding
            top[b, :real] = _top(adjusted.get(b, logits[b])[:real])
    greedy = {b: scores for b, scores in adjusted.items() if b not in sampled}
    if not sampled:
        return Target(logits, top, adjusted=greedy)
    dense = torch.empty(len(sampled), *logits.shape[1:], device=logits.device)
    for i, b in enumerate(sampled):
        if p := rows[b]:
            real, scores = len(p.draft) + 1, adjusted.get(b, logits[b])
            dense[i, :real] = distribution(scores[:real], p.params, p.params.temperature)
            dense[i, real:] = 0.0
    return Target(logits, top, sampled, dense, greedy)


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
    parents = range(-1, len(draft) - 1) if row.parents is None else row.parents
    if params.repetition_penalty != 1 or params.frequency_penalty or params.presence_penalty:
        _penalise(scores, row, draft, parents)
    for token, bias in params.logit_bias.items():
        if token < vocabulary:
            scores[:, token] += bias
    early = params.min_tokens - len(row.output)  # positions that may not end yet
    if early > 0:
        ends = [token for token in row.eos if token < vocabulary]
        soon = [0, *(t for t, depth in enumerate(depths(parents), 1) if depth + 1 < early)]
        scores[torch.tensor(soon)[:, None], torch.tensor(ends, dtype=torch.int64)] = -torch.inf
    if row.matcher is not None:
        ids: list[int] = row.output.tolist()  # pyright: ignore
        proposed: list[int] = row.draft.tolist()  # pyright: ignore
        allowed = row.matcher.allowed(ids, proposed, parents)[:, :vocabulary].to(scores.device)
        real, known = allowed.shape
        scores[:real, :known].masked_fill_(~allowed, -torch.inf)
        scores[:real, known:] = -torch.inf
    return scores


def _penalise(scores: Tensor, row: Prefix, draft: Tensor, parents: Sequence[int]) -> None:
    """Apply the penalties to `scores` [T, V] in place."""
    params, vocabulary = row.params, scores.shape[-1]
    output = torch.bincount(row.output, minlength=vocabulary)[:vocabulary].to(scores.device)
    seen = output + torch.bincount(row.prompt, minlength=vocabulary)[:vocabulary].to(scores.device)
    path: list[int] = []  # the drafted tokens that `output` and `seen` count
    for t in range(len(draft) + 1):  # what stands behind is padding
        mine = ancestry(parents, t - 1)
        same = sum(1 for a, b in zip(path, mine, strict=False) if a == b)
        for nodes, sign in ((path[same:], -1), (mine[same:], 1)):
            for node in nodes:
                output[draft[node]] += sign
                seen[draft[node]] += sign
        path = mine
        line = scores[t]
        if params.repetition_penalty != 1:
            penalty = params.repetition_penalty
            harder = torch.where(line > 0, line / penalty, line * penalty)
            line.copy_(torch.where(seen > 0, harder, line))
        if params.frequency_penalty:
            line.sub_(params.frequency_penalty * output)
        if params.presence_penalty:
            line.sub_(params.presence_penalty * (output > 0))
