"""What papers and an article print, out of `--what-if`.

Leviathan et al. 2023 (arXiv 2211.17192) and Chen et al. 2023 (arXiv 2302.01318).
"""

from __future__ import annotations

import pytest

from paceline.advise.roofline import PRESETS, Size
from paceline.advise.what_if import Costs, Request, costs_of, needed_alpha, work_out
from paceline.core.theory import expected_tokens, operations
from papers import OPTIMAL, TABLE_1, TABLE_4

LENIENT = [
    (1.0, 0.75, 3.30),
    (0.5, 0.75, 3.30),
    (0.3, 0.80, 3.87),
    (0.1, 0.87, 4.91),
]  # l, α, speed
CHEN = {"XSum nucleus": 7.52, "XSum greedy": 7.00, "HumanEval": 5.73}  # ms a token, K = 4
PLAIN_MS, DRAFT_MS = 14.1, 1.8


def speed(alpha: float, c: float, k: int) -> float:
    return work_out(Request(alpha=alpha, c=c, k=str(k))).best.speedup


@pytest.mark.parametrize(("alpha", "k", "ops", "fast"), TABLE_1)
def test_leviathan_table_1(alpha: float, k: int, ops: float, fast: float) -> None:
    assert speed(alpha, 0, k) == pytest.approx(fast, abs=0.006)
    assert operations(alpha, k, 0) == pytest.approx(ops, abs=0.006)


def test_operations_are_those_of_both_models() -> None:
    """Theorem 3.11; no γ saves arithmetic: at α = 1 what is left is the draft's own."""
    assert operations(0.8, 5, 0.1) == pytest.approx(0.2 * (0.5 + 6) / (1 - 0.8**6))
    assert operations(1.0, 4, 0.1) == pytest.approx(1 + 0.4 / 5)


@pytest.mark.parametrize(("task", "draft", "t", "k", "alpha", "c", "printed", "mine"), TABLE_4)
def test_leviathan_table_4(
    task: str, draft: str, t: int, k: int, alpha: float, c: float, printed: float, mine: float
) -> None:
    assert speed(alpha, c, k) == pytest.approx(mine, abs=1e-3)
    assert speed(alpha, c, k) == pytest.approx(printed, abs=0.07)  # α is printed to two digits


@pytest.mark.parametrize("c", OPTIMAL)
def test_leviathan_optimal_window(c: float) -> None:
    for alpha, (k, fast) in zip((0.5, 0.6, 0.7, 0.8, 0.9), OPTIMAL[c], strict=True):
        best = work_out(Request(alpha=alpha, c=c, k="1:64")).best
        assert best.k == k
        assert best.speedup == pytest.approx(fast, abs=0.006)


@pytest.mark.parametrize(("lenience", "alpha", "fast"), LENIENT)
def test_leviathan_lenience(lenience: float, alpha: float, fast: float) -> None:
    """Table 5's T5-small at T = 0, γ = 8, c = .015: lenience only moves α."""
    assert speed(alpha, 0.015, 8) == pytest.approx(fast, abs=0.006)


def test_chen_a_draft_step() -> None:
    """Chinchilla 70B with a 4B draft of 8 layers. By bytes the draft would cost less than half of
    what it did: bytes are not all that a small draft costs."""
    assert pytest.approx(0.128, abs=5e-4) == DRAFT_MS / PLAIN_MS
    for gpu in PRESETS:
        costs = costs_of(Request(alpha=0.5, gpu=gpu, target=Size(70), draft=Size(4), context=0))
        assert costs.c == pytest.approx(4 / 70)


@pytest.mark.parametrize("benchmark", CHEN)
def test_chen_tokens_a_round(benchmark: str) -> None:
    """A measured time a token is a count of tokens a round; the α found must give that count."""
    c, ms = DRAFT_MS / PLAIN_MS, CHEN[benchmark]
    found = needed_alpha(PLAIN_MS / ms, Costs(c, (1.0,) * 5), [4])
    assert found is not None
    assert expected_tokens(found[0], 4) == pytest.approx((PLAIN_MS + 4 * DRAFT_MS) / ms)


def test_chen_xsum_is_fastest_near_3() -> None:
    c = DRAFT_MS / PLAIN_MS
    found = needed_alpha(PLAIN_MS / CHEN["XSum nucleus"], Costs(c, (1.0,) * 5), [4])
    assert found is not None
    curve = work_out(Request(alpha=found[0], c=c))
    assert curve.best.k in (3, 4)
    assert speed(found[0], c, 3) > 0.99 * curve.best.speedup


def claim(gain: float, gpu: str, target: float, draft: Size, batch: int = 1) -> float | None:
    """The α that a speedup needs with the target in 16 bits, K up to 16."""
    costs = costs_of(Request(alpha=1, gpu=gpu, target=Size(target), draft=draft, batch=batch))
    found = needed_alpha(gain, costs, range(1, 17))
    return found and found[0]


GPUS = [name for name in PRESETS if name != "cpu"]


@pytest.mark.parametrize("gpu", GPUS)
def test_7b_with_3b_is_2_to_2_8_times_as_fast_only_with_a_small_draft(gpu: str) -> None:
    assert claim(2.0, gpu, 7, Size(3)) == pytest.approx(0.991, abs=5e-4)
    assert claim(2.8, gpu, 7, Size(3)) is None  # α = 1 and any K: at most 1/c = 2.31
    assert claim(2.0, gpu, 7, Size(3, 4)) == pytest.approx(0.725, abs=1e-3)
    assert claim(2.8, gpu, 7, Size(3, 4)) == pytest.approx(0.861, abs=1e-3)
    assert claim(2.0, gpu, 7, Size(3), batch=32) is None


@pytest.mark.parametrize("gpu", GPUS)
def test_54b_with_8b_is_3_times_as_fast_with_high_acceptance(gpu: str) -> None:
    assert claim(3.0, gpu, 54, Size(8)) == pytest.approx(0.918, abs=1e-3)
    assert claim(3.0, gpu, 54, Size(8, 4)) == pytest.approx(0.769, abs=1e-3)


def test_on_two_cores_arithmetic_forbids_most_claims() -> None:
    assert claim(2.0, "cpu", 7, Size(3)) is None
    assert claim(2.0, "cpu", 7, Size(3, 4)) == pytest.approx(0.737, abs=1e-3)
    assert claim(3.0, "cpu", 54, Size(8)) == pytest.approx(0.991, abs=1e-3)
    assert claim(3.0, "cpu", 54, Size(8, 4), batch=32) is None
