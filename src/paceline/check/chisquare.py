"""Is a sample one of p? Pearson's test, Holm's correction, and what they can see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST = 5.0  # a bin of its own has to expect so many
POWER = 0.9


@dataclass(frozen=True)
class Fit:
    """How well counts fit p. `statistic`: Pearson's, with `freedom` degrees of freedom; `p_value`:
    how often a sample of p fits no better. `distance`: the total variation between the counts'
    shares and p over the bins, and `expected`: what a sample of p has on average, about."""

    statistic: float
    freedom: int
    p_value: float
    distance: float
    expected: float


def fit(counts: Tensor, p: Tensor) -> Fit:
    """Pearson's chi-square for `counts` [V] under `p` [V], which sums to 1.

    Bins that expect at least 5 stand alone and the others are put together (with the smallest of
    the first if they expect less than 5 even so). A count where p is 0 cannot be: the p-value is 0.
    """
    rounds = float(counts.sum())
    seen, share = counts.double().flatten(), p.double().flatten()
    share = share / share.sum()
    impossible = bool(seen[share == 0].any())
    alone = share * rounds >= LEAST
    rest = torch.stack([seen[~alone].sum(), share[~alone].sum()])
    seen, share = seen[alone], share[alone]
    if float(rest[1]) * rounds >= LEAST or not len(share):
        seen, share = torch.cat([seen, rest[:1]]), torch.cat([share, rest[1:]])
    else:
        smallest = int(share.argmin())
        seen[smallest] += rest[0]
        share[smallest] += rest[1]
    expected = share * rounds
    statistic = float(((seen - expected) ** 2 / expected).sum())
    freedom = len(share) - 1
    chance = tail(statistic, freedom) if freedom else 1.0
    apart = float((seen / rounds - share).abs().sum()) / 2
    variance = (share * (1 - share)).clamp(min=0) / rounds
    usual = float((2 * variance / torch.pi).sqrt().sum()) / 2
    return Fit(statistic, freedom, 0.0 if impossible else chance, apart, usual)


def tail(statistic: float, freedom: float) -> float:
    """How often a chi-square variable of so many degrees of freedom is larger."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) p-values for several tests at once: to reject those below α is wrong about any
    true hypothesis at all with a probability of at most α, whatever hangs together."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for i, at in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - i) * p_values[at]))
        adjusted[at] = largest
    return adjusted


def detectable(freedom: int, rounds: int, alpha: float) -> float:
    """A total variation from p, over the bins, that a test at level `alpha` sees with probability
    0.9 at least, whatever its shape.

    Under a law p + δ the statistic is about a noncentral chi-square variable with
    λ = rounds Σ δ²/p. By Cauchy and Schwarz Σ δ²/p >= (Σ |δ|)² = 4 TV², with equality where δ is
    spread evenly over p: all else is seen more easily. So TV = sqrt(λ / rounds) / 2 for the λ that
    exceeds the critical value with probability 0.9. What cancels within a bin is not seen.
    """
    if not freedom:
        return 1.0
    critical = _falling(lambda x: tail(x, freedom), alpha)
    needed = _falling(lambda x: 1 - noncentral_tail(critical, freedom, x), 1 - POWER)
    return min(1.0, (needed / rounds) ** 0.5 / 2)


def noncentral_tail(x: float, freedom: float, shift: float) -> float:
    """How often a noncentral chi-square variable with λ = `shift` is larger than x: a mixture of
    central ones, with a Poisson number of pairs of degrees of freedom more."""
    middle = shift / 2
    wide = 12 * (middle + 1) ** 0.5 + 30
    terms = torch.arange(int(max(0.0, middle - wide)), int(middle + wide), dtype=torch.float64)
    log_weight = (
        torch.xlogy(terms, torch.tensor(middle).double()) - middle - torch.lgamma(terms + 1)
    )
    half = torch.tensor(x / 2, dtype=torch.float64).expand_as(terms)
    return float((log_weight.exp() * torch.special.gammaincc(freedom / 2 + terms, half)).sum())


def _falling(function: Callable[[float], float], value: float) -> float:
    """Where a falling `function` on [0, ∞) passes `value`."""
    low, high = 0.0, 1.0
    while function(high) > value:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > value else (low, middle)
    return high
