"""`distribution` against the same promise worked out token by token."""

from __future__ import annotations

import random

import pytest
import torch

from naive import probabilities
from paceline.core.params import SamplingParams
from paceline.core.shape import distribution


def shaped(logits, params: SamplingParams) -> torch.Tensor:
    return distribution(torch.tensor([logits], dtype=torch.float32), params, params.temperature)[0]


def agree(logits: list[float], params: SamplingParams) -> None:
    got, right = shaped(logits, params), torch.tensor(probabilities(logits, params))
    assert got.dtype == torch.float32
    assert torch.equal(got > 0, right > 0)
    assert float((got - right).abs().max()) < 2e-6
    assert float(got.sum()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("seed", range(60))
def test_random_logits(seed: int) -> None:
    rng = random.Random(seed)
    logits = [rng.gauss(0, 2) for _ in range(rng.choice([1, 2, 7, 40]))]
    agree(
        logits,
        SamplingParams(
            temperature=rng.choice([0.2, 0.7, 1.0, 2.5]),
            top_k=rng.choice([0, 0, 1, 3, 50]),
            top_p=rng.choice([1.0, 0.95, 0.6, 0.1]),
            min_p=rng.choice([0.0, 0.0, 0.05, 0.4]),
        ),
    )


def test_tokens_that_tie_with_the_last_one_stay() -> None:
    tied = [2.0, 1.0, 1.0, 1.0, 0.0]
    assert (shaped(tied, SamplingParams(temperature=1, top_k=2)) > 0).tolist() == [1, 1, 1, 1, 0]
    assert (shaped(tied, SamplingParams(temperature=1, top_p=0.6)) > 0).tolist() == [1, 1, 1, 1, 0]
    assert (shaped(tied, SamplingParams(temperature=1, top_p=0.4)) > 0).tolist() == [1, 0, 0, 0, 0]
    assert shaped([1.0] * 4, SamplingParams(temperature=1, top_k=1)).tolist() == [0.25] * 4


@pytest.mark.parametrize("top_p", [0.5, 0.7, 0.999])
@pytest.mark.parametrize("spread", [0.001, 1.0])
def test_a_nucleus_of_more_than_1024_tokens(top_p: float, spread: float) -> None:
    rng = random.Random(1)
    logits = [rng.gauss(0, spread) for _ in range(4000)]
    params = SamplingParams(temperature=1, top_p=top_p)
    got, right = shaped(logits, params), torch.tensor(probabilities(logits, params))
    assert int((got > 0).sum()) > 1024 or spread == 1.0
    assert abs(int((got > 0).sum()) - int((right > 0).sum())) <= 1  # the sum reaches p in float32
    assert float((got - right).abs().max()) < 1e-6


def test_one_row_with_a_wide_nucleus_does_not_change_the_others() -> None:
    make = torch.Generator().manual_seed(0)
    sharp, flat = torch.randn(1, 3000, generator=make) * 5, torch.randn(1, 3000, generator=make) / 9
    params = SamplingParams(temperature=1, top_p=0.9)
    both = distribution(torch.cat([sharp, flat]), params, 1.0)
    assert torch.equal(both[0], distribution(sharp, params, 1.0)[0])
    assert torch.equal(both[1], distribution(flat, params, 1.0)[0])


def test_min_p_near_one_leaves_the_likeliest() -> None:
    got = shaped([1.0, 3.0, 2.9], SamplingParams(temperature=1, min_p=0.99))
    assert got.tolist() == [0, 1, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-30, 1e-45, 1e-320])
def test_a_tiny_temperature_is_one_hot(temperature: float) -> None:
    got = shaped([3.0, -2e4, 3.1, 3e4], SamplingParams(temperature=temperature))
    assert got.tolist() == [0, 0, 0, 1]


def test_a_large_temperature_is_flat() -> None:
    got = shaped([3.0, -2e4, 3.1, 3e4], SamplingParams(temperature=1e30))
    assert got.tolist() == pytest.approx([0.25] * 4)


def test_banned_tokens_stay_banned() -> None:
    got = shaped([-torch.inf, 0.0, -torch.inf, 0.0], SamplingParams(temperature=2, top_k=3))
    assert got.tolist() == [0, 0.5, 0, 0.5]


@pytest.mark.parametrize(
    "row", [[0.0, torch.nan, 1.0], [torch.inf, 0.0, 1.0], [-torch.inf, -torch.inf, -torch.inf]]
)
def test_no_distribution_is_nan_and_stays_in_its_row(row: list[float]) -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0], row])
    for params in (
        SamplingParams(temperature=1),
        SamplingParams(temperature=1, top_k=2, top_p=0.5, min_p=0.1),
    ):
        got = distribution(logits, params, 1.0)
        assert torch.equal(got[0], distribution(logits[:1], params, 1.0)[0])
        assert bool(got[1].isnan().all())


def test_the_logits_are_left_as_they_were() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]])
    distribution(logits, SamplingParams(temperature=0.5, top_k=1, top_p=0.5), 0.5)
    assert logits.tolist() == [[1.0, 2.0, 3.0]]
