"""From logits to a distribution: temperature, top-k, top-p, min-p. Used for p and for q alike."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.core.params import SamplingParams

_BLOCK = 64  # likely tokens are looked for in those of so many that hold one
_HEADS = (1024, 16384)  # a nucleus is nearly always among so many; sorting 150,000 takes 10 ms


def distribution(logits: Tensor, params: SamplingParams, temperature: float) -> Tensor:
    """`logits` [T, V] -> probabilities [T, V] float32; `temperature` > 0 replaces that of `params`.

    top-k keeps the k largest logits (all that tie with the k-th); top-p keeps the fewest likeliest
    tokens whose probabilities reach it (Holtzman et al. 2020), computed after top-k; min-p keeps
    those with at least that share of the likeliest one's probability.
    """
    if temperature != 1:
        # the largest logit becomes 0 before the division: a tiny temperature cannot overflow,
        # unless it is 0 in float32
        temperature = max(temperature, torch.finfo(torch.float32).tiny)
        logits = (logits - logits.amax(-1, keepdim=True)).div_(temperature)
    probs = torch.softmax(logits, -1, dtype=torch.float32)
    if not (0 < params.top_k < probs.shape[-1] or params.top_p < 1 or params.min_p > 0):
        return probs
    if probs.is_cuda:
        return _on_gpu(probs, params)
    for row in probs:
        _cut(row, params)
    return probs


def _cut(probs: Tensor, params: SamplingParams) -> None:
    """Cut `probs` [V] on a CPU in place; sorts only tokens that may be kept."""
    size, total = len(probs), float(probs.sum())
    if not math.isfinite(total):
        return  # no distribution: none of the comparisons below would hold
    blocks = probs[: size - size % _BLOCK].view(-1, _BLOCK).amax(-1)
    floor = params.min_p * float(probs.amax()) if params.min_p > 0 else 0.0
    if by_rank := 0 < params.top_k < size:
        least = _kth(probs, blocks, params.top_k)
    else:
        # what is less likely holds less, all together, than lies outside the nucleus; rounded down
        least = max(floor, 0.99 * total * (1 - params.top_p) / size)
    values, where = _at_least(probs, blocks, least)
    if params.top_p < 1:
        total = float(values.sum()) if by_rank else total
        floor = max(floor, _nucleus_floor(values, params.top_p * total))
    kept = values >= floor
    values = values[kept]
    probs.zero_().index_copy_(0, where[kept], values / values.sum())


def _at_least(weights: Tensor, blocks: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The `weights` that are at least `least`, and their indices; `blocks`: the largest of each
    _BLOCK of them."""
    whole = len(blocks) * _BLOCK
    number = (blocks >= least).nonzero()[:, 0]
    found = weights[:whole].view(-1, _BLOCK)[number]
    block, place = (found >= least).nonzero().unbind(-1)
    rest = weights[whole:]
    beyond = (rest >= least).nonzero()[:, 0]
    values = torch.cat([found[block, place], rest[beyond]])
    return values, torch.cat([number[block] * _BLOCK + place, beyond + whole])


def _kth(weights: Tensor, blocks: Tensor, k: int) -> float:
    """The k-th largest weight."""
    # k blocks hold k tokens that weigh at least as much as the lightest of these blocks' largest
    least = float(blocks.topk(k).values[-1]) if k <= len(blocks) else 0.0
    return float(_at_least(weights, blocks, least)[0].topk(k).values[-1])


def _nucleus_floor(weights: Tensor, enough: float) -> float:
    """The largest weights of which the fewest that reach `enough` are at least this."""
    for size in (*_HEADS, len(weights)):
        head = weights.topk(min(size, len(weights))).values
        sums = head.cumsum(-1, dtype=torch.float64)
        if float(sums[-1]) >= enough:
            return float(head[int(torch.searchsorted(sums, enough))])
    return 0.0  # by rounding, all of them do not: then all stay


def _on_gpu(probs: Tensor, params: SamplingParams) -> Tensor:
    """`probs` [T, V], cut; without asking what is in them, which would stall a GPU."""
    if 0 < params.top_k < probs.shape[-1]:
        kth = probs.topk(params.top_k, dim=-1).values[:, -1:]
        probs = torch.where(probs >= kth, probs, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    keep = probs.amax(-1, keepdim=True) * params.min_p
    if params.top_p < 1:
        head = probs.sort(dim=-1, descending=True).values
        enough = head.cumsum(-1, dtype=torch.float64) >= params.top_p
        last = torch.where(enough[:, -1], enough.to(torch.int8).argmax(-1), head.shape[-1] - 1)
        keep = torch.maximum(keep, head.gather(-1, last[:, None]))
    probs = torch.where(probs >= keep, probs, 0.0)
    return probs / probs.sum(-1, keepdim=True)
