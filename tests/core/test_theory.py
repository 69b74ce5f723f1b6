"""The closed forms against published tables (Leviathan et al. 2023, arXiv 2211.17192)."""

from __future__ import annotations

import random

import pytest

from paceline.core.theory import best_window, expected_tokens, speedup
from papers import OPTIMAL, TABLE_1, TABLE_4

BEST = {c: row for c, row in OPTIMAL.items() if c < 0.5}  # beyond, windows tie with none


@pytest.mark.parametrize(("alpha", "k", "_", "speed"), TABLE_1)
def test_table_1(alpha: float, k: int, _: float, speed: float) -> None:
    assert speedup(alpha, k, c=0) == pytest.approx(speed, abs=0.006)


@pytest.mark.parametrize(("k", "alpha", "c", "expected", "mine"), [row[3:] for row in TABLE_4])
def test_table_2(k: int, alpha: float, c: float, expected: float, mine: float) -> None:
    assert speedup(alpha, k, c) == pytest.approx(mine, abs=0.0006)
    assert speedup(alpha, k, c) == pytest.approx(expected, abs=0.07)  # α is printed to two digits


@pytest.mark.parametrize(
    ("alpha", "k", "tokens"),
    [(0.5, 8, 1.996), (0.8, 4, 3.362), (0.9, 8, 6.126), (1.0, 4, 5), (0.0, 4, 1), (0.7, 0, 1)],
)
def test_expected_tokens(alpha: float, k: int, tokens: float) -> None:
    assert expected_tokens(alpha, k) == pytest.approx(tokens, abs=0.0005)


def test_expected_tokens_is_the_mean_of_independent_accepts() -> None:
    rng, n = random.Random(0), 40_000
    total = 0
    for _ in range(n):
        accepted = 0
        while accepted < 4 and rng.random() < 0.6:
            accepted += 1
        total += accepted + 1
    assert total / n == pytest.approx(expected_tokens(0.6, 4), abs=0.03)


@pytest.mark.parametrize("c", BEST)
def test_best_window(c: float) -> None:
    for alpha, (k, speed) in zip((0.5, 0.6, 0.7, 0.8, 0.9), BEST[c], strict=True):
        assert best_window(alpha, c) == k
        assert speedup(alpha, k, c) == pytest.approx(speed, abs=0.006)


def test_a_window_is_opened_only_where_it_pays() -> None:
    for alpha in (0.1, 0.3, 0.5, 0.7):
        assert best_window(alpha, alpha + 0.01) == 0  # Corollary 3.9: it needs α > c
        assert best_window(alpha, alpha - 0.01) >= 1
        assert speedup(alpha, 1, alpha - 0.01) == pytest.approx((1 + alpha) / (0.99 + alpha))
    assert best_window(1.0, 0.1, limit=12) == 12
    assert best_window(0.5, 0.5) == 0  # a tie at 1.0: the smaller window


def test_scoring_and_overhead_are_costs() -> None:
    assert speedup(0.8, 4, 0.1, r=1.5, overhead=0.1) == pytest.approx(3.3616 / 2.0)
