"""Chances that are learned: of made-up drafters, whose chances are known."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from paceline.controllers.acceptance import BINS, Mood, Taught, bin_of


def teach(chance: Any, tests: int = 4000, seed: int = 0) -> Taught:
    """Tests of first tokens with any confidence s, which pass with `chance(s)`."""
    taught, rng = Taught(4), np.random.default_rng(seed)
    for sure in rng.random(tests):
        taught.add(0, float(sure), bool(rng.random() < chance(sure)))
    return taught


def test_bins_cover_all_confidences_in_order() -> None:
    found = [bin_of(s) for s in np.linspace(0, 1, 1001)]
    assert found == sorted(found)
    assert set(found) == set(range(BINS))


def test_confidence_is_calibrated_to_what_is_accepted() -> None:
    """Of a drafter that is far too sure of itself."""
    found = teach(lambda s: s**3).of_bins()
    for sure in (0.05, 0.28, 0.58, 0.72, 0.85, 0.93):
        assert found[bin_of(sure)] == pytest.approx(sure**3, abs=0.12)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_confidence_that_says_nothing_is_seen_through(alpha: float) -> None:
    assert teach(lambda s: alpha).of_bins() == pytest.approx([alpha] * BINS, abs=0.13)


def test_bins_that_are_never_tested_are_like_their_neighbours() -> None:
    """Or a draft would always end where they come up, and they would stay untested."""
    taught = Taught(4)
    assert taught.of_bins()[3] == pytest.approx(0.42)
    for _ in range(300):
        taught.add(0, 0.99, True)
        taught.add(0, 0.7, True)
    assert taught.of_bins()[3] > 0.8


def test_places_are_shares_that_passed_where_all_before_did() -> None:
    taught, rng = Taught(6), np.random.default_rng(1)
    true = [0.9, 0.7, 0.4]
    for _ in range(3000):
        for place, chance in enumerate(true):
            passed = bool(rng.random() < chance)
            taught.add(place, None, passed)
            if not passed:
                break
    found = taught.of_places()
    assert found[:3] == pytest.approx(true, abs=0.08)
    assert found[3:] == pytest.approx([found[2]] * 3)  # as likely as the one before
    taught.add(17, None, True)  # behind all places: nothing to count


def test_old_tests_fade() -> None:
    taught = Taught(1)
    for passed in (False, True):
        for _ in range(1000):
            taught.add(0, 0.5, passed)
    assert taught.of_places()[0] > 0.95
    assert taught.of_bins()[bin_of(0.5)] > 0.95


def test_a_mood_follows_surprises_and_knows_no_bounds_of_sense() -> None:
    mood = Mood()
    assert mood.chance(0.3) == pytest.approx(0.3)
    for _ in range(6):
        mood.add(mood.chance(0.8), False)
    assert mood.chance(0.8) < 0.5
    before = mood.chance(0.5)
    mood.add(0.02, False)  # as expected: next to nothing
    assert mood.chance(0.5) == pytest.approx(before, abs=0.02)
    for _ in range(8):
        mood.add(mood.chance(0.8), True)
    assert mood.chance(0.8) > 0.7
    for passed in (True, False):
        for _ in range(1000):
            mood.add(float(not passed), passed)
        assert 0 < mood.chance(0.5) < 1
    assert Mood().chance(1.0) < 1  # no draft pays for ever
    assert Mood().chance(0.0) == 0


def test_what_was_hard_may_be_so_no_longer() -> None:
    mood = Mood()
    for _ in range(50):
        mood.add(0.9, False)
    mood.lift()
    assert mood.chance(0.6) == pytest.approx(0.6)
    for _ in range(50):
        mood.add(0.1, True)
    easy = mood.chance(0.6)
    mood.lift()
    assert mood.chance(0.6) == easy > 0.6


def test_what_was_taught_comes_back_from_json() -> None:
    taught = teach(lambda s: s, tests=200)
    taught.looked(0.7)
    again = Taught.from_dict(json.loads(json.dumps(taught.to_dict())), 4)
    assert again.of_bins() == taught.of_bins()
    assert again.of_places() == taught.of_places()
    assert again.first == taught.first
    with pytest.raises(ValueError, match="another window"):
        Taught.from_dict(taught.to_dict(), 5)


@pytest.mark.parametrize(
    "change",
    [
        {"bins": []},
        {"first": [0.0] * BINS},
        {"places": [[2, 1]] * 4},
        {"places": [[0, float("inf")]] * 4},
        {"bins": None},
    ],
)
def test_broken_lessons_are_refused(change: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Taught.from_dict({**Taught(4).to_dict(), **change}, 4)
