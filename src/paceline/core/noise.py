"""Uniform random numbers that are addressed, not drawn in turn.

Each number is a hash of (request seed, committed length when the round began, purpose, offset in
the round). A request's randomness therefore depends on nothing but its own seed and its own
rounds: not on its neighbours in a batch, not on earlier requests. A round commits at least one
token, so no address is used twice by a request; what a rejected draft looked at stays independent
of everything that follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

ACCEPT, LAST, DRAFT = 1, 2, 3  # purposes: accept test, the target's own token, the drafter's draws

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection that avalanches."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def uniforms(seeds: Sequence[int], bases: Sequence[int], purpose: int, offsets: range) -> Tensor:
    """[B, len(offsets)] float64 in [0, 1), one address each; on the CPU."""
    state = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
    state = _mix(state + _GOLDEN)
    state = _mix(state + np.array(bases, dtype=np.uint64) * _GOLDEN)
    column = np.arange(offsets.start, offsets.stop, dtype=np.uint64) * np.uint64(4)
    state = _mix(state[:, None] + (column[None, :] + np.uint64(purpose)) * _GOLDEN)
    return torch.tensor((state >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@dataclass(frozen=True)
class Noise:
    """The randomness of one verification. `accept` [B, K] and `last` [B, K+1], float64 in [0, 1):
    the accept test of draft token i, and the draw of the target's own token at index n."""

    accept: Tensor
    last: Tensor

    @classmethod
    def at(cls, seeds: Sequence[int], bases: Sequence[int], k: int) -> Noise:
        """Noise for drafts of at most `k` tokens behind `bases` committed ones."""
        return cls(
            uniforms(seeds, bases, ACCEPT, range(k)), uniforms(seeds, bases, LAST, range(k + 1))
        )

    @classmethod
    def none(cls, batch: int) -> Noise:
        """For a round in which nothing is drawn: no numbers at all."""
        empty = torch.empty(batch, 0, dtype=torch.float64)
        return cls(empty, empty)


def draw(weights: Tensor, u: Tensor) -> Tensor:
    """Tokens [R] drawn from `weights` [R, V] (>= 0, any positive sum) by inverting the cumulative
    sum at `u` [R] in [0, 1). -1 where the sum is zero, infinite or NaN.

    The sum runs in float64: in float32 it is off by 1e-4 over a vocabulary of 150,000, and a token
    of weight zero could be hit by rounding.
    """
    cumulative = weights.cumsum(-1, dtype=torch.float64)
    total = cumulative[:, -1:].contiguous()
    point = u.to(total)[:, None] * total
    index = torch.searchsorted(cumulative, point, right=True)
    # u * total can round up to total itself; the last token with any weight is then the answer
    last = torch.searchsorted(cumulative, total)
    valid = torch.isfinite(total) & (total > 0)
    return torch.where(valid, torch.minimum(index, last), -1)[:, 0]
