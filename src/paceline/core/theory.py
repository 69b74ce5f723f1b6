"""Closed forms of speculative decoding (Leviathan et al. 2023, arXiv 2211.17192)."""

from __future__ import annotations


def expected_tokens(alpha: float, k: int) -> float:
    """Equation 1: tokens a round, (1 - α^(K+1)) / (1 - α), for i.i.d. acceptance α in [0, 1]."""
    return float(k + 1) if alpha == 1 else (1 - alpha ** (k + 1)) / (1 - alpha)


def speedup(alpha: float, k: int, c: float, r: float = 1.0, overhead: float = 0.0) -> float:
    """Tokens a second over plain decoding: E[tokens] / (r(K+1) + K c + o), in units of T(1).

    Theorem 3.8 is the case r = 1, o = 0. `c`: one draft step; `r`: scoring K+1 tokens.
    """
    return expected_tokens(alpha, k) / (r + k * c + overhead)


def operations(alpha: float, k: int, c_hat: float) -> float:
    """Theorem 3.11: arithmetic a token over plain decoding's, (K ĉ + K + 1) / E[tokens].

    `c_hat`: operations a token of the drafter over the target's.
    """
    return (k * c_hat + k + 1) / expected_tokens(alpha, k)


def best_window(alpha: float, c: float, limit: int = 64) -> int:
    """The K in 0..limit with the largest `speedup` at r = 1, o = 0; the smallest one on a tie."""
    return max(range(limit + 1), key=lambda k: (speedup(alpha, k, c), -k))
