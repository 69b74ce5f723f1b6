"""The closed forms against published tables (Leviathan et al. 2023, arXiv 2211.17192)."""

from __future__ import annotations

import random

import pytest

from paceline.core.theory import best_window, expected_tokens, speedup

TABLE_1 = [  # α, γ, speed at c = 0
    (0.6, 2, 1.96),
    (0.7, 3, 2.53),
    (0.8, 2, 2.44),
    (0.8, 5, 3.69),
    (0.9, 2, 2.71),
    (0.9, 10, 6.86),
]
TABLE_2 = [  # γ, α, c, the paper's expectation, Theorem 3.8 worked out to three digits
    (7, 0.75, 0.02, 3.2, 3.157),
    (7, 0.80, 0.04, 3.3, 3.251),
    (7, 0.82, 0.11, 2.5, 2.497),
    (7, 0.62, 0.02, 2.3, 2.258),
    (5, 0.68, 0.04, 2.4, 2.347),
    (3, 0.71, 0.11, 2.0, 1.934),
    (5, 0.65, 0.02, 2.4, 2.402),
    (5, 0.73, 0.04, 2.6, 2.619),
    (3, 0.74, 0.11, 2.0, 2.025),
    (5, 0.53, 0.02, 1.9, 1.891),
    (3, 0.55, 0.04, 1.8, 1.803),
    (3, 0.56, 0.11, 1.6, 1.541),
]
BEST = {  # c: (best K, its speedup) for α = .5, .6, .7, .8, .9
    0.01: [(5, 1.88), (7, 2.30), (9, 2.97), (14, 4.23), (24, 7.49)],
    0.02: [(4, 1.79), (6, 2.17), (8, 2.76), (11, 3.82), (19, 6.37)],
    0.05: [(3, 1.63), (4, 1.92), (6, 2.35), (8, 3.09), (13, 4.67)],
    0.10: [(2, 1.46), (3, 1.67), (4, 1.98), (6, 2.47), (10, 3.43)],
    0.20: [(1, 1.25), (2, 1.40), (3, 1.58), (4, 1.87), (7, 2.37)],
    0.30: [(1, 1.15), (1, 1.23), (2, 1.37), (3, 1.55), (5, 1.87)],
}


@pytest.mark.parametrize(("alpha", "k", "speed"), TABLE_1)
def test_table_1(alpha: float, k: int, speed: float) -> None:
    assert speedup(alpha, k, c=0) == pytest.approx(speed, abs=0.006)


@pytest.mark.parametrize(("k", "alpha", "c", "expected", "mine"), TABLE_2)
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
