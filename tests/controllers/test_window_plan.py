"""What pays, held against closed forms and against trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from paceline.controllers.plan import asking_rate, best_window, goes_on, promised
from paceline.core import theory

R = [1.0, 1.2, 1.25, 1.6, 1.65, 2.4]  # with steps: one more token may cost little or much


def test_tokens_are_promised_by_equation_1() -> None:
    found = promised([0.8] * 6)
    assert found == pytest.approx([theory.expected_tokens(0.8, k) - 1 for k in range(7)])
    assert promised([0.5, 1.0, 0.2]) == pytest.approx([0, 0.5, 1.0, 1.1])
    assert promised([]) == [0.0]


@pytest.mark.parametrize("c", [0.01, 0.05, 0.1, 0.2, 0.3, 0.5])
@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.7, 0.8, 0.9])
def test_the_best_window_is_leviathans_where_passes_cost_the_same(alpha: float, c: float) -> None:
    rate, window = best_window([promised([alpha] * 64)], 0, [1.0] * 65, c)
    assert window == theory.best_window(alpha, c)
    assert rate == pytest.approx(theory.speedup(alpha, window, c))


def test_all_windows_are_looked_at_because_costs_have_steps() -> None:
    # no window of one token pays, and one of two does
    assert best_window([promised([0.5, 0.9])], 0, [1.0, 1.6, 1.6], 0.0) == (1.95 / 1.6, 2)
    assert best_window([promised([0.5])], 0, [1.0, 1.6], 0.0) == (1.0, 0)
    assert best_window([], 3, [0.5], 0.1) == (6.0, 0)


def test_rows_of_a_batch_pay_together() -> None:
    easy, hard = promised([0.9, 0.9]), promised([0.1, 0.1])
    time = [1.0, 1.5, 2.5]
    assert best_window([easy], 0, time, 0.0)[1] == 1
    # what one row wins, seven others pay for
    assert best_window([easy], 7, time, 0.0) == (8.0, 0)
    assert best_window([easy, *[hard] * 7], 0, time, 0.0) == (8.0, 0)
    rate, window = best_window([easy, *[easy] * 7], 0, time, 0.0)
    assert (rate, window) == (pytest.approx(8 * 1.9 / 1.5), 1)


def test_asking_is_worth_what_the_best_policy_makes_of_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(40):
        first, chances = rng.random(3), rng.random(3)
        behind = promised(rng.random(4).tolist())
        step = float(rng.choice([0.02, 0.1, 0.3]))
        best = 0.0
        for policy in product(range(6), repeat=3):
            tokens = sum(
                n * (1 + (a * (1 + behind[k - 1]) if k else 0))
                for n, a, k in zip(first, chances, policy, strict=True)
            )
            time = sum(n * (R[k] + max(1, k) * step) for n, k in zip(first, policy, strict=True))
            best = max(best, tokens / time)
        found = asking_rate(first.tolist(), chances.tolist(), behind, R, step)
        assert found == pytest.approx(best, rel=2e-3)


def test_a_draft_goes_on_if_some_number_of_further_tokens_pays() -> None:
    assert goes_on([0.2], [0.1], 1.9)
    assert not goes_on([0.2], [0.1], 2.1)
    assert goes_on([0.1, 0.6], [0.2, 0.25], 2.0)  # the second is nearly free
    assert not goes_on([], [], 1.0)
