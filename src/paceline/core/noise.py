"""Uniform random numbers that are addressed, not drawn in turn.

Each number is a hash of (request seed, committed length when the round began, purpose, offset in
the round); in a race, of (request seed, position, purpose, token). A request's randomness therefore
depends on nothing but its own seed and its own rounds: not on its neighbours in a batch, not on
earlier requests. A round commits at least one token, so no address is used twice by a request; what
a rejected draft looked at stays independent of everything that follows. Only a race that a drafter
ran is run again, by the target: see `race`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# purposes: a race's tokens, accept tests, the target's own token, the drafter's draws
RACE, ACCEPT, LAST, DRAFT = range(4)

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): a bijection that avalanches."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _hash(
    seeds: Sequence[int], bases: Sequence[int], purpose: int, offsets: np.ndarray
) -> np.ndarray:
    """[B, len(offsets)] uint64, one address each."""
    state = np.array([seed % 2**64 for seed in seeds], dtype=np.uint64)
    state = _mix(state + _GOLDEN)
    state = _mix(state + np.array(bases, dtype=np.uint64) * _GOLDEN)
    column = offsets.astype(np.uint64) * np.uint64(4)
    return _mix(state[:, None] + (column[None, :] + np.uint64(purpose)) * _GOLDEN)


def uniforms(seeds: Sequence[int], bases: Sequence[int], purpose: int, offsets: range) -> Tensor:
    """[B, len(offsets)] float64 in [0, 1), one address each; on the CPU."""
    state = _hash(seeds, bases, purpose, np.arange(offsets.start, offsets.stop))
    return torch.tensor((state >> np.uint64(11)).astype(np.float64) * 2.0**-53)


@dataclass(frozen=True)
class Noise:
    """The randomness of one verification. `accept` [B, K] and `last` [B, K+1], float64 in [0, 1):
    the accept test of draft token i, and the draw of the target's own token at index n. `seeds` [B]
    and `bases` [B] say where it comes from: each row's seed and how much of it is committed, which
    is the position of its next token."""

    accept: Tensor
    last: Tensor
    seeds: Sequence[int] = ()
    bases: Sequence[int] = ()

    @classmethod
    def at(cls, seeds: Sequence[int], bases: Sequence[int], k: int) -> Noise:
        """Noise for drafts of at most `k` tokens behind `bases` committed ones."""
        accept = uniforms(seeds, bases, ACCEPT, range(k))
        return cls(accept, uniforms(seeds, bases, LAST, range(k + 1)), list(seeds), list(bases))

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


def race(
    weights: Tensor, seeds: Sequence[int], positions: Sequence[int], ids: Tensor | None = None
) -> Tensor:
    """Tokens [R] drawn from `weights` [R, V] (>= 0, any positive sum) by an exponential race. -1
    where the sum is zero, infinite or NaN.

    Each token x has an arrival E / weight(x), where E ~ Exp(1) is fixed by the row's seed, the
    position and x alone; the first to arrive wins, which is x with probability weight(x) / sum. So
    whoever draws at one position with one seed has the same E: from the same weights they draw the
    same token, whatever drew before, and from p and q they agree with a probability of at least
    (1 - TV) / (1 + TV) (Daliri et al. 2024, arXiv 2408.07978). `ids` [V]: what x is called (None:
    its index), so that the columns of a smaller vocabulary meet those of the whole one.
    """
    names = None if ids is None else ids.cpu().numpy()
    lines = weights.cpu().numpy()
    rows = zip(lines, seeds, positions, strict=True)
    winners = [_winner(line, seed, position, names) for line, seed, position in rows]
    return torch.tensor(winners, dtype=torch.int64, device=weights.device)


def _winner(weights: np.ndarray, seed: int, position: int, names: np.ndarray | None) -> int:
    """In float64, and over the positive weights alone: after truncation these are few."""
    total = weights.sum(dtype=np.float64)
    if not (np.isfinite(total) and total > 0):
        return -1
    runners = np.flatnonzero(weights > 0)
    state = _hash([seed], [position], RACE, runners if names is None else names[runners])[0]
    u = np.minimum((state.astype(np.float64) + 0.5) * 2.0**-64, 1 - 2.0**-53)
    weight = weights[runners].astype(np.float64)
    # E = -log(1 - u) >= u: only who has u / weight before the arrival of one of them can win
    early = u / weight
    one = early.argmin()
    first = max(-np.log1p(-u[one]) / weight[one], early[one])
    near = np.flatnonzero(early <= first)
    arrivals = -np.log1p(-u[near]) / weight[near]
    return int(runners[near[arrivals.argmin()]])
