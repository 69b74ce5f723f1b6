"""Noise is uniform, addressed and independent; draws follow their weights."""

from __future__ import annotations

import pytest
import torch

from checks import randomness
from exact import chi_square, midpoints
from paceline.core.noise import ACCEPT, DRAFT, LAST, Noise, draw, uniforms

SLICES = {
    "over seeds": lambda n: uniforms(range(n), [17] * n, ACCEPT, range(1))[:, 0],
    "over large seeds": lambda n: uniforms(
        [seed * 2**48 - 2**63 for seed in range(n)], [0] * n, ACCEPT, range(1)
    )[:, 0],
    "over lengths": lambda n: uniforms([7] * n, range(n), LAST, range(1))[:, 0],
    "over offsets": lambda n: uniforms([7], [3], DRAFT, range(n))[0],
    "over a request": lambda n: uniforms([7] * (n // 8), range(n // 8), LAST, range(8)).flatten(),
}


@pytest.mark.parametrize("name", SLICES)
def test_noise_is_uniform(name: str) -> None:
    u = SLICES[name](32_000)
    assert u.dtype == torch.float64
    assert float(u.min()) >= 0
    assert float(u.max()) < 1
    assert len(u.unique()) == len(u)
    cells = torch.bincount((u * 64).long(), minlength=64).tolist()
    low_bits = torch.bincount((u * 2**53).long() % 64, minlength=64).tolist()
    for counts in (cells, low_bits):
        statistic, edge = chi_square(counts, [len(u) / 64] * 64)
        assert statistic < edge


@pytest.mark.parametrize("name", SLICES)
def test_neighbouring_pairs_fill_the_square(name: str) -> None:
    u = SLICES[name](32_000)
    pairs = (u[0::2] * 8).long() * 8 + (u[1::2] * 8).long()
    counts = torch.bincount(pairs, minlength=64).tolist()
    statistic, edge = chi_square(counts, [len(pairs) / 64] * 64)
    assert statistic < edge


def test_purposes_are_independent() -> None:
    randomness.purposes_are_independent()


def test_rounds_are_independent() -> None:
    randomness.rounds_are_independent()


def test_no_address_is_used_twice_in_a_request() -> None:
    """Rounds that advance by at least one token never meet the same number again."""
    numbers = [
        u
        for base in range(1, 200)
        for noise in [Noise.at([5], [base], 4)]
        for u in (*noise.accept[0].tolist(), *noise.last[0].tolist())
    ]
    assert len(set(numbers)) == 199 * 9


def test_a_number_depends_on_its_address_alone() -> None:
    wide = uniforms([1, 2, 3], [4, 5, 6], ACCEPT, range(8))
    assert torch.equal(wide[1:2, :3], uniforms([2], [5], ACCEPT, range(3)))
    assert torch.equal(wide[:, 3:5], uniforms([1, 2, 3], [4, 5, 6], ACCEPT, range(3, 5)))
    assert torch.equal(
        uniforms([-1], [4], LAST, range(2)), uniforms([2**64 - 1], [4], LAST, range(2))
    )
    assert uniforms([1, 2], [4, 5], ACCEPT, range(0)).shape == (2, 0)


def test_draws_at_the_edges() -> None:
    randomness.draws_at_the_edges()


def test_draws_follow_their_weights_exactly() -> None:
    weights = torch.tensor([0.0, 3.0, 0.0, 1.0, 0.0, 4.0])
    tokens = draw(weights.expand(80, 6), midpoints(80))
    assert torch.bincount(tokens, minlength=6).tolist() == [0, 30, 0, 10, 0, 40]


def test_draws_over_a_large_vocabulary_are_not_shifted_by_rounding() -> None:
    """150,000 equal weights: token i is drawn at u just above i / n, to the last one."""
    n = 150_000
    weights = torch.full((1, n), 1 / n)
    at = torch.tensor([0, 1, 777, 74_999, 149_998, 149_999])
    tokens = draw(weights.expand(len(at), n), (at + 0.5).double() / n)
    assert torch.equal(tokens, at)
