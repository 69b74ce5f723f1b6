"""From scripted rounds and passes to speedups with known values."""

from __future__ import annotations

import pytest

from paceline.advise.costs import Passes, Roof, fit, verdict
from paceline.advise.predict import (
    at_temperature,
    best,
    in_batch,
    seconds,
    speedup,
    tokens,
)
from paceline.advise.replay import Turn
from paceline.core.theory import expected_tokens
from paceline.core.types import Emitted

PASSES = Passes(1, 64, {1: 1.0, 2: 1.2, 5: 1.8, 9: 3.0}, {1: 0.0, 2: 0.1, 5: 0.1, 9: 0.1})


def turn(drafted: int, accepted: int, draft_s: float = 0.0) -> Turn:
    return Turn(Emitted([0] * (accepted + 1), drafted, accepted), draft_s)


def test_passes_lie_on_lines_between_the_sizes_that_were_timed() -> None:
    assert [PASSES.seconds(n) for n in (1, 2, 3, 4, 5)] == pytest.approx([1.0, 1.3, 1.5, 1.7, 1.9])
    assert PASSES.seconds(13) == pytest.approx(4.2 + 0.1)
    assert PASSES.r == {1: 1.0, 2: 1.2, 5: 1.8, 9: 3.0}
    assert Passes(1, 0, {1: 2.0}, {1: 0.5}).seconds(7) == 2.5


def test_a_speedup_is_tokens_over_plain_seconds() -> None:
    rounds = [[turn(4, 4, 0.2), turn(4, 1, 0.2)], [turn(1, 0, 0.05)]]
    assert tokens(rounds) == 5 + 2 + 1
    assert seconds(rounds, PASSES) == pytest.approx(2 * 1.9 + 1.3 + 0.45)
    assert speedup(rounds, PASSES) == pytest.approx(8 / 5.55)
    assert speedup([[turn(0, 0)] * 5], PASSES) == 1.0


def test_it_is_leviathans_formula_where_acceptance_is_what_that_assumes() -> None:
    """α = 1/2 for each of K = 2 tokens: of four rounds two accept none, one one, one both."""
    rounds = [[turn(2, n, 0.2) for n in (0, 0, 1, 2)]]
    flat = Passes(1, 0, {1: 1.0, 9: 1.0}, {1: 0.0, 9: 0.0})
    assert speedup(rounds, flat) == pytest.approx(expected_tokens(0.5, 2) / (1 + 2 * 0.1))


def test_the_best_window_is_the_smallest_of_nearly_equals() -> None:
    assert best({1: 1.1, 2: 1.297, 4: 1.3, 8: 0.9}) == 2
    assert best({1: 1.1, 2: 1.28, 4: 1.3, 8: 0.9}) == 4


def test_in_a_batch_the_longest_draft_of_a_round_is_paid_by_all() -> None:
    """Two rows, one a round behind: the longer draft of each pair costs, both rows' tokens count.
    Of one row it is the speedup."""
    rounds = [[turn(4, 4, 0.5), turn(0, 0, 0.1)]]
    two = Passes(2, 0, {1: 1.0, 5: 3.0}, {1: 0.0, 5: 0.0})
    assert in_batch(rounds, two, 2.0) == pytest.approx(6 * 1.0 / (2 * (3.0 + 2 * 0.5)))
    one = Passes(1, 0, {1: 1.0, 5: 3.0}, {1: 0.0, 5: 0.0})
    assert in_batch(rounds, one, 1.0) == pytest.approx(speedup(rounds, one))


def test_a_temperature_scales_each_test_and_nothing_else() -> None:
    rounds = [[turn(2, n, 0.2) for n in (0, 0, 1, 2)]]
    assert at_temperature(rounds, PASSES, 1.0) == pytest.approx(speedup(rounds, PASSES))
    # P(n >= 1) = 1/2 and P(n >= 2) = 1/4 become 0.4 and 0.16
    taken = PASSES.seconds(3) + 3 * 0.2
    assert at_temperature(rounds, PASSES, 0.8, draft=3.0) == pytest.approx(1.56 / taken)
    # a chance is never more than 1, nor more than that of coming so far
    assert at_temperature(rounds, PASSES, 9.0) == pytest.approx(3.0 / (PASSES.seconds(3) + 0.2))


@pytest.mark.parametrize("roof", [Roof(1.0, 4.0, 0.5), Roof(1.0, 1.0, 0.2), Roof(1.1, 8.0, 1.0)])
def test_a_roofline_is_found_again(roof: Roof) -> None:
    found = fit({n: roof(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)})
    assert (found.flat, found.knee, found.slope) == pytest.approx(
        (roof.flat, roof.knee, roof.slope), abs=1e-6
    )


def test_flat_passes_have_no_slope() -> None:
    assert fit({1: 1.0, 2: 1.0, 5: 1.0}).slope == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("five", "said"), [(1.3, "memory-bound"), (2.4, "in between"), (4.9, "compute-bound")]
)
def test_what_limits_a_pass(five: float, said: str) -> None:
    assert verdict({1: 1.0, 5: five}) == said
