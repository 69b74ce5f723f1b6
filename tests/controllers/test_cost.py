"""Costs that are kept true: of made-up machines, whose curves are known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from paceline.controllers.cost import CostBook, CostCurve, bucket

TIMED = [0.04, 0.044, 0.046, 0.05, 0.06, 0.062, 0.08, 0.082, 0.084]


def test_a_curve_starts_as_it_was_timed() -> None:
    assert CostCurve(TIMED).values == pytest.approx(TIMED)
    assert CostCurve([0.04]).values == pytest.approx([0.04])
    with pytest.raises(ValueError, match="no time"):
        CostCurve([0.04, 0.0])


@pytest.mark.parametrize("factor", [0.6, 1.5, 1.9])
def test_the_whole_curve_follows_rounds_of_one_size(factor: float) -> None:
    """What is not seen keeps its shape: it cannot tilt."""
    curve = CostCurve(TIMED)
    for _ in range(60):
        curve.add(1, factor * TIMED[0])
    assert curve.values == pytest.approx([factor * t for t in TIMED], rel=0.08)


def test_height_and_rise_are_found_apart() -> None:
    """A machine that has become slower, at computing above all."""
    curve, rng = CostCurve(TIMED), np.random.default_rng(0)
    true = [1.2 * t + 0.01 * n for n, t in enumerate(TIMED)]
    for n in rng.integers(1, 10, 80):
        curve.add(int(n), true[n - 1] * rng.uniform(0.95, 1.05))
    assert curve.values == pytest.approx(true, rel=0.08)


def test_a_slower_machine_is_noticed_within_ten_rounds_and_forgotten_as_fast() -> None:
    curve = CostCurve(TIMED)
    for _ in range(100):
        curve.add(3, TIMED[2])
    for _ in range(20):
        curve.add(3, 2 * TIMED[2])
    assert curve.values[2] > 1.6 * TIMED[2]
    for _ in range(20):
        curve.add(3, TIMED[2])
    assert curve.values[2] < 1.4 * TIMED[2]


def test_one_round_that_took_ages_moves_little() -> None:
    curve = CostCurve(TIMED)
    for _ in range(100):
        curve.add(1, TIMED[0])
    curve.add(1, 1000 * TIMED[0])
    assert curve.values == pytest.approx(TIMED, rel=0.06)


def test_noise_makes_no_curve_that_falls() -> None:
    curve = CostCurve(TIMED)
    for _ in range(50):
        curve.add(1, TIMED[0])
        curve.add(9, 0.5 * TIMED[0])
    assert curve.values == sorted(curve.values)
    assert min(curve.values) > 0


def test_contexts_are_kept_apart_and_start_from_the_nearest() -> None:
    assert [bucket(n) for n in (1, 1024, 1025, 4096, 5000, 16384, 20000)] == [0, 0, 1, 1, 2, 2, 3]
    book = CostBook({1: TIMED, 4: [2 * t for t in TIMED]}, {1: [0.1], 4: [0.2]})
    long = book.curve(1, 5000, False)
    assert long.values == pytest.approx(TIMED)
    for _ in range(60):
        long.add(1, 1.5 * TIMED[0])
    assert book.curve(1, 100, False).values == pytest.approx(TIMED)
    assert book.curve(1, 5000, False) is long
    assert book.curve(1, 5000, True).values == pytest.approx(long.values)  # drawn: nearest of all
    assert book.curve(5, 100, False).values == pytest.approx([2 * t for t in TIMED])
    assert book.steps(8) == [0.2]
    assert book.steps(1) == [0.1]


def test_a_draft_step_follows_what_steps_take() -> None:
    book = CostBook({1: TIMED}, {1: [0.1, 0.4]})
    for _ in range(80):
        book.stepped(1, 0, 0.15)
    assert book.steps(1) == pytest.approx([0.15, 0.4], rel=1e-2)
    book.stepped(1, 1, 50.0)  # a prompt was read
    assert book.steps(1)[1] <= 0.45


def test_a_book_comes_back_from_json() -> None:
    book = CostBook({1: TIMED}, {1: [0.1, 0.0]})
    book.include(2, [3 * t for t in TIMED], [0.05, 0.0])
    for _ in range(9):
        book.curve(1, 3000, True).add(4, 0.09)
    again = CostBook.from_dict(json.loads(json.dumps(book.to_dict())))
    assert again.batches == [1, 2]
    for key in ((1, 10, False), (2, 10, False), (1, 3000, True)):
        assert again.curve(*key).values == pytest.approx(book.curve(*key).values)
    assert again.steps(1) == [0.1, 0.0]


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {"curves": [], "steps": []},
        {"curves": [[1, 0, False, []]], "steps": [[1, [0.1]]]},
        {"curves": [[1, 0, False, [0.0, 1.0]]], "steps": [[1, [0.1]]]},
        {"curves": [[1, 0, False, [float("nan")]]], "steps": [[1, [0.1]]]},
        {"curves": [[1, 0, False, ["x"]]], "steps": [[1, [0.1]]]},
        {"curves": 3, "steps": 3},
    ],
)
def test_a_broken_book_is_refused(broken: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        CostBook.from_dict(broken)
