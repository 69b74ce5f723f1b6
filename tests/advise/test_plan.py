"""How the time is shared out."""

from __future__ import annotations

from paceline.advise.plan import LONGEST, Plan, Survey, shared, stretches


def test_answers_get_a_share_within_bounds() -> None:
    assert Plan(1000, 2).answer == 150
    assert Plan(100, 3).answer == 24
    assert Plan(1e9, 1).answer == LONGEST


def test_races_share_what_is_left_among_all_who_run_three_times() -> None:
    assert Plan(1800, 3).race(2) == 40
    assert Plan(10, 3).race(2) == 16
    assert Plan(1e9, 3).race(0) == 128


def test_a_cheap_drafter_is_asked_for_all_everywhere_and_a_dear_one_for_less() -> None:
    """A budget of 24 plain tokens an answer: 24 places at a plain token each."""
    plan = Plan(480, 1)
    assert plan.survey(100, 8, lambda n: 0.01 * n) == Survey(100, 8)
    assert plan.survey(100, 8, lambda n: 0.125 * n) == Survey(24, 8)
    assert plan.survey(100, 8, lambda n: 0.25 * n) == Survey(24, 4)
    assert plan.survey(100, 8, lambda n: 2.0 * n) == Survey(16, 1)
    assert plan.survey(12, 8, lambda n: 0.5 * n) == Survey(12, 4)
    assert plan.survey(100, 8, lambda n: 0.25) == Survey(96, 8)  # it ends its drafts by itself


def test_long_answers_have_two_stretches() -> None:
    assert stretches(60) == [range(60)]
    assert stretches(111) == [range(111)]
    assert stretches(112) == [range(100), range(100, 112)]


def test_places_are_the_first_of_each_stretch() -> None:
    assert shared(80, [range(100), range(100, 160)]) == [range(50), range(100, 130)]
    assert shared(16, [range(100), range(100, 120)]) == [range(13), range(100, 108)]
    assert shared(400, [range(60)]) == [range(60)]
