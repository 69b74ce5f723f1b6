"""From logits to a distribution: temperature, top-k, top-p, min-p. Used for p and for q alike."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.core.params import SamplingParams

_HEADS = (1024, 16384)  # a nucleus is nearly always among so many; sorting 150,000 takes 10 ms


def distribution(logits: Tensor, params: SamplingParams, temperature: float) -> Tensor:
    """`logits` [T, V] -> probabilities [T, V] float32; `temperature` > 0 replaces that of `params`.

    top-k keeps the k largest logits (all that tie with the k-th); top-p keeps the fewest likeliest
    tokens whose probabilities reach it (Holtzman et al. 2020), computed after top-k; min-p keeps
    those with at least that share of the likeliest one's probability.
    """
    # the largest logit becomes 0 before the division: a tiny temperature cannot overflow, unless it
    # is 0 in float32
    temperature = max(temperature, torch.finfo(torch.float32).tiny)
    logits = (logits - logits.amax(-1, keepdim=True)).div_(temperature)
    vocabulary = logits.shape[-1]
    if 0 < params.top_k < vocabulary:
        kth = logits.topk(params.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill_(logits < kth, -torch.inf)
    probs = torch.softmax(logits, -1, dtype=torch.float32)
    keep = torch.zeros_like(probs[:, :1])  # a token stays if its probability is at least this
    if params.top_p < 1:
        keep = _nucleus_floor(probs, params.top_p)
    if params.min_p > 0:
        keep = torch.maximum(keep, probs.amax(-1, keepdim=True) * params.min_p)
    if params.top_p < 1 or params.min_p > 0:
        probs = torch.where(probs >= keep, probs, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def _nucleus_floor(probs: Tensor, top_p: float) -> Tensor:
    """[T, 1]: the smallest probability inside the nucleus of each row of `probs` [T, V]."""
    vocabulary = probs.shape[-1]
    floor, reached = _floor_in_head(probs, top_p, vocabulary if probs.is_cuda else _HEADS[0])
    if probs.is_cuda:  # a sort is cheap there, and asking whether less would do stalls it
        return floor
    for size in (*_HEADS[1:], vocabulary):
        if bool(reached.all()):
            break
        rest = (~reached).nonzero()[:, 0]
        floor[rest], reached[rest] = _floor_in_head(probs[rest], top_p, size)
    return floor


def _floor_in_head(probs: Tensor, top_p: float, size: int) -> tuple[Tensor, Tensor]:
    """The floor as far as the `size` likeliest tokens show it [T, 1], and if they reach it [T]."""
    head = probs.topk(min(size, probs.shape[-1]), dim=-1).values
    enough = head.cumsum(-1, dtype=torch.float64) >= top_p
    # rounding may keep the sum of all tokens below top_p: then all stay
    first = torch.where(enough[:, -1], enough.to(torch.int8).argmax(-1), head.shape[-1] - 1)
    return head.gather(-1, first[:, None]), enough[:, -1]
