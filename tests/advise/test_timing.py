"""Ratios of passes on a machine that changes its pace: scripted seconds, no clock."""

from __future__ import annotations

import pytest

from paceline.advise.timing import PassTimer, Yardstick, time_passes

T = {1: 1.0, 2: 1.25, 5: 2.0}


class Machine:
    """Passes of these seconds and a rest of a tenth of T(1), on a machine `slowness` times as slow
    as at first; `odd[i]`: pass number i takes so much longer, for once."""

    def __init__(self, seconds: dict[int, float], odd: dict[int, float] | None = None) -> None:
        self.seconds, self.odd = seconds, odd or {}
        self.slowness = 1.0
        self.asked: list[int] = []

    def of(self, n: int) -> tuple[float, float]:
        extra = self.odd.get(len(self.asked), 0.0)
        self.asked.append(n)
        return self.slowness * (self.seconds[n] + extra), self.slowness * 0.1


def test_a_turn_begins_and_ends_with_a_plain_pass_and_takes_the_others_in_another_order() -> None:
    machine = Machine(T)
    timer = PassTimer(machine, 1, 64, (1, 2, 5))  # type: ignore[arg-type]
    timer.turn()
    timer.turn()
    assert machine.asked == [1, 1, 2, 5, 1, 1, 5, 2, 1]


def test_the_pace_of_a_turn_cancels_out() -> None:
    machine = Machine(T)
    timer = PassTimer(machine, 1, 64, (1, 2, 5))  # type: ignore[arg-type]
    for slowness in (1.0, 3.0, 1.5, 1.0, 2.0):
        machine.slowness = slowness
        timer.turn()
    assert timer.t1 == 1.5
    passes = timer.passes(4.0)
    assert (passes.batch, passes.context) == (1, 64)
    assert passes.target == pytest.approx({n: 4.0 * t for n, t in T.items()})
    assert passes.rest == pytest.approx(dict.fromkeys(T, 0.4))


def test_a_pass_that_was_held_up_once_does_not_count() -> None:
    machine = Machine(T, odd={2: 9.0})  # the first pass of two tokens
    timer = PassTimer(machine, 1, 64, (1, 2, 5))  # type: ignore[arg-type]
    for _ in range(3):
        timer.turn()
    assert timer.passes(1.0).r == pytest.approx(T)


def test_other_passes_are_held_against_the_yardstick_of_their_time() -> None:
    """Four rows take twice as long as one; all was timed on a machine half as fast as at first."""
    alone, four = Machine(T), Machine({1: 2.0, 5: 6.0})
    stick = Yardstick(alone, t1=1.0)  # type: ignore[arg-type]
    alone.slowness = four.slowness = 2.0
    timer = PassTimer(four, 4, 32, (1, 5))  # type: ignore[arg-type]
    passes = time_passes(timer, 3, stick)
    assert passes.batch == 4
    assert passes.target == pytest.approx({1: 2.0, 5: 6.0})
