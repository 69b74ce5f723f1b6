"""The noise is uniform, and independent wherever two numbers meet."""

from __future__ import annotations

import torch
from torch import Tensor

from fakes import sequences
from paceline.core.noise import ACCEPT, DRAFT, LAST, Noise, draw, uniforms
from paceline.core.params import SamplingParams
from paceline.core.types import Draft


def unrelated(a: Tensor, b: Tensor) -> None:
    """Neither they nor their distances from the middle are correlated (5 standard errors)."""
    for x, y in ((a, b), ((a - 0.5).abs(), (b - 0.5).abs())):
        assert abs(float(torch.corrcoef(torch.stack([x, y]))[0, 1])) < 5 / len(a) ** 0.5


def purposes_are_independent(n: int = 20_000) -> None:
    """At one address the accept test, the last draw and the drafter's draw are three numbers."""
    seeds, bases = range(n), [5] * n
    noise = Noise.at(seeds, bases, 2)
    drawn = uniforms(seeds, bases, DRAFT, range(2))
    for i in range(2):
        unrelated(noise.accept[:, i], noise.last[:, i])
        unrelated(noise.accept[:, i], drawn[:, i])
        unrelated(noise.last[:, i], drawn[:, i])
        unrelated(noise.accept[:, 0], noise.last[:, 1 + i])
    # the loop's own addresses
    params = [SamplingParams(temperature=1, seed=seed) for seed in range(2000)]
    seqs = sequences([[0]] * 2000, params, length=8)
    used = seqs.noise(Draft(torch.zeros(2000, 1, dtype=torch.int64), [1] * 2000))
    unrelated(used.accept[:, 0], seqs.draft_noise(1)[:, 0])
    unrelated(used.last[:, 0], seqs.draft_noise(1)[:, 0])
    assert torch.equal(used.accept, uniforms(range(2000), [1] * 2000, ACCEPT, range(1)))
    assert torch.equal(used.last, uniforms(range(2000), [1] * 2000, LAST, range(2)))


def rounds_are_independent(n: int = 20_000) -> None:
    """Rounds, offsets and requests: no two share their numbers."""
    here = uniforms(range(n), [5] * n, ACCEPT, range(3))
    later = uniforms(range(n), [6] * n, ACCEPT, range(3))
    unrelated(here[:, 0], later[:, 0])
    unrelated(here[:, 1], later[:, 0])  # the same place in the text, seen from two rounds
    unrelated(here[:, 0], here[:, 1])
    unrelated(here[:-1, 0], here[1:, 0])  # neighbouring seeds
    one = uniforms([3] * n, range(n), LAST, range(1))[:, 0]
    unrelated(one[:-1], one[1:])  # one request through its rounds


def draws_at_the_edges() -> None:
    """No noise reaches a token of weight zero; a sum that is no number draws nothing."""
    below_one = 1 - 2.0**-53
    cases = [
        ([0.0, 0.25, 0.75, 0.0], 0.0, 1),
        ([0.0, 0.25, 0.75, 0.0], below_one, 2),
        ([0.0, 0.25, 0.75, 0.0], 0.25, 2),  # a threshold belongs to the token behind it
        ([0.0, 0.25, 0.75, 0.0], 0.25 - 2.0**-53, 1),
        ([0.25, 0.0, 0.75, 0.0], 0.25, 2),
        ([1.0, 0.0, 1.0, 2.0], 0.5, 3),  # weights need no sum of one
        ([0.0, 0.0, 3e-39, 0.0], 0.7, 2),
        ([0.0, 0.0, 0.0, 0.0], 0.3, -1),
        ([0.2, float("nan"), 0.2, 0.2], 0.1, -1),
        ([0.2, float("inf"), 0.2, 0.2], 0.1, -1),
    ]
    weights = torch.tensor([w for w, _, _ in cases])
    u = torch.tensor([u for _, u, _ in cases], dtype=torch.float64)
    assert draw(weights, u).tolist() == [token for _, _, token in cases]
