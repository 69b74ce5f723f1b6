"""The rejection verifier's output law, enumerated exactly."""

from __future__ import annotations

from itertools import product, zip_longest

import pytest

from checks import laws
from exact import chain, round_law
from paceline.core.theory import expected_tokens


@pytest.mark.parametrize("draft", ["q", "point", "narrow"])
@pytest.mark.parametrize("seed", range(8))
def test_two_tokens(seed: int, draft: str) -> None:
    p, q, found = laws.round_is_lossless(100 + seed, 1, 4, draft)
    if q:
        pairs = zip_longest(p[()], q[()], fillvalue=0.0)
        assert found.alpha == pytest.approx(sum(map(min, pairs)), abs=1e-9)
    else:
        assert found.alpha == pytest.approx(p[()][1], abs=1e-9)  # the one drafted token's own p
    assert found.accepted == found.alpha


@pytest.mark.parametrize("draft", ["q", "point", "narrow"])
@pytest.mark.parametrize("seed", range(3))
def test_three_tokens(seed: int, draft: str) -> None:
    vocab = 4 if draft == "narrow" else 3
    p, q, found = laws.round_is_lossless(200 + seed, 2, vocab, draft)
    if q:  # E[n] = Σ_i E[Π_{j <= i} min(1, p/q)] over drafts
        first = {x: min(p[()][x], q[()][x]) for x in range(len(q[()]))}
        second = {x: sum(map(min, zip_longest(p[(x,)], q[(x,)], fillvalue=0.0))) for x in first}
        right = sum(first.values()) + sum(first[x] * second[x] for x in first)
        assert found.accepted == pytest.approx(right, abs=1e-9)
    else:
        assert found.accepted == pytest.approx(p[()][1] + chain(p, (1, 2)), abs=1e-9)


@pytest.mark.parametrize("lengths", [[0], [1], [0, 1, 2], [2, 0]])
@pytest.mark.parametrize("draft", ["q", "point"])
def test_ragged_drafts(draft: str, lengths: list[int]) -> None:
    """Rows that drafted less than their neighbours: padding is never accepted, nothing is lost."""
    *_, found = laws.round_is_lossless(300, 2, 3, draft, lengths)
    assert found.alpha <= sum(n > 0 for n in lengths) / len(lengths) + 1e-9


@pytest.mark.parametrize("draft", ["q", "point", "narrow"])
@pytest.mark.parametrize("k", [1, 2])
def test_greedy_rows_beside_sampled_ones(draft: str, k: int) -> None:
    """Greedy rows keep the greedy rule, sampled rows keep their law."""
    *_, found = laws.round_is_lossless(400, k, 4 if draft == "narrow" else 3, draft, beside=3)
    assert found.verdict.accepted.tolist() == [1, 1, 1]  # p says 1, 1, …; drafted were 1, 0
    assert found.verdict.tokens[:, :2].tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("k", [1, 2])
def test_independent_accepts(k: int) -> None:
    """Where every α is the same, the mean of n is the closed form's."""
    prefixes = [(), (0,), (1,), *product(range(2), repeat=2)]
    p, q = {x: [0.75, 0.25] for x in prefixes}, {x: [0.5, 0.5] for x in prefixes}
    found = round_law(p, q, k)
    assert found.alpha == pytest.approx(0.75, abs=1e-9)
    assert found.accepted + 1 == pytest.approx(expected_tokens(0.75, k), abs=1e-9)


def test_what_is_refused_for_a_reason() -> None:
    laws.rejected_only_for_a_reason(1_000_000)


def test_accepts_stop_at_the_first_refusal() -> None:
    laws.accepts_stop_at_the_first_refusal()


def test_impossible_tokens_are_refused() -> None:
    laws.impossible_tokens_are_refused()


def test_an_empty_residual_is_a_draw_from_p() -> None:
    laws.empty_residual_is_a_draw_from_p()
