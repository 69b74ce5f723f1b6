"""From logits to a distribution: temperature, top-k, top-p, min-p. Used for p and for q alike."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.core.params import SamplingParams

Floats = npt.NDArray[np.float32]


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
    for row in probs.numpy():  # a view; NumPy finds and sorts a few among many much faster
        _cut(row, params)
    return probs


def largest(logits: Tensor) -> Tensor:
    """The largest probability [B] of each row of `logits` [B, V], at temperature 1."""
    return torch.softmax(logits, -1).amax(-1)


def _cut(probs: Floats, params: SamplingParams) -> None:
    """Cut `probs` [V] in place; sorts only tokens that may be kept."""
    size, total = len(probs), float(probs.sum())
    if not math.isfinite(total):
        return  # no distribution: none of the comparisons below would hold
    floor = params.min_p * float(probs.max())
    if by_rank := 0 < params.top_k < size:
        least = float(np.partition(probs, size - params.top_k)[size - params.top_k])
    else:
        # what is less likely holds less, all together, than lies outside the nucleus; rounded down
        least = max(floor, 0.99 * total * (1 - params.top_p) / size)
    where = np.flatnonzero(probs >= least)
    values = probs[where]
    if params.top_p < 1:
        total = float(values.sum()) if by_rank else total
        floor = max(floor, _nucleus_floor(values, params.top_p * total))
    kept = values >= floor
    values = values[kept]
    probs.fill(0)
    probs[where[kept]] = values / values.sum()


def _nucleus_floor(weights: Floats, enough: float) -> float:
    """The largest weights of which the fewest that reach `enough` are at least this."""
    ranked = np.sort(weights)[::-1]
    sums = ranked.cumsum(dtype=np.float64)
    if sums[-1] < enough:
        return 0.0  # by rounding, all of them do not reach it: then all stay
    return float(ranked[np.searchsorted(sums, enough)])


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
