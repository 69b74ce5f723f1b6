"""Counts and rates."""

from __future__ import annotations

import pytest

from checks import output
from paceline.core.stats import Stats
from paceline.core.types import Emitted, Seconds

NOW = Seconds(0.0, 0.0, 0.0)


def counted(*rows: Emitted) -> Stats:
    stats = Stats()
    for row in rows:
        stats.add(row, NOW)
    return stats


def test_three_rounds_that_are_known() -> None:
    output.counters_are_right()


def test_nothing_counted_has_no_rates() -> None:
    assert (Stats().alpha, Stats().tau, Stats().alpha_at) == (None, None, [])


def test_plain_rounds_test_nothing() -> None:
    stats = counted(Emitted([5], 0, 0), Emitted([6], 0, 0))
    assert (stats.rounds, stats.emitted, stats.tau, stats.alpha) == (2, 2, 1.0, None)


@pytest.mark.parametrize(
    ("row", "tested", "passed"),
    [
        (Emitted([1, 2, 3, 4, 5], 4, 4), [1, 1, 1, 1], [1, 1, 1, 1]),  # all, and the bonus
        (Emitted([1, 2, 3], 4, 2), [1, 1, 1], [1, 1, 0]),  # the third was refused
        (Emitted([1], 4, 0), [1], [0]),
        (Emitted([1, 2], 4, 2, "stop"), [1, 1], [1, 1]),  # cut: the third was never looked at
        (Emitted([1, 2, 3], 4, 2, "length"), [1, 1, 1], [1, 1, 0]),
        (Emitted([1, 2], 2, 2, "length"), [1, 1], [1, 1]),
        (Emitted([], 4, 0, "error"), [], []),  # no distribution: no test either
        (Emitted([1, 2], 4, 2, "error"), [1, 1], [1, 1]),
    ],
)
def test_what_was_tested_and_passed(row: Emitted, tested: list[int], passed: list[int]) -> None:
    stats = counted(row)
    assert (stats.tested, stats.passed) == (tested, passed)
    assert stats.accepted == sum(passed)
    assert stats.emitted == len(row.tokens)


@pytest.mark.parametrize(
    ("row", "origins"),
    [
        (Emitted([1], 0, 0), ["plain"]),
        (Emitted([1, 2, 3], 2, 2), ["accepted", "accepted", "bonus"]),
        (Emitted([1, 2], 3, 1), ["accepted", "recovered"]),
        (Emitted([1, 2], 3, 2, "stop"), ["accepted", "accepted"]),
        (Emitted([], 3, 0, "error"), []),
    ],
)
def test_origins(row: Emitted, origins: list[str]) -> None:
    assert row.origins() == origins


def test_alpha_weighs_every_test_alike() -> None:
    stats = counted(Emitted([1, 2, 3, 4, 5], 4, 4), Emitted([1], 4, 0), Emitted([1, 2], 1, 1))
    assert stats.alpha == pytest.approx(5 / 6)
    assert stats.alpha_at == [pytest.approx(2 / 3), 1, 1, 1]
    assert stats.tau == pytest.approx(8 / 3)
