"""The published rules, held against values worked out by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from statistics import mean

import pytest
from pacing import paced_drafter

from fakes import Accepts, Faulty, HashLM, Scripted, TableModel, sequences
from paceline.controllers.adaedl import AdaEDL
from paceline.controllers.confidence import Confidence, cheapest_threshold
from paceline.controllers.heuristic import Heuristic
from paceline.controllers.rules import Ruled
from paceline.controllers.svip import SVIP
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.types import Emitted
from paceline.errors import PacelineError

LONG = SamplingParams(max_tokens=120)


def heuristic_loop(k: int, script: Callable, *counts: int) -> Loop:
    target = CachedModel(HashLM(6), 2, 256)
    return Loop(target, Scripted(script), Accepts(*counts), Heuristic(k))


def test_heuristic_adds_two_after_a_whole_draft_and_takes_one_after_any_other() -> None:
    whole = 99
    counts = [whole, whole, whole, 0, whole, 0, 0, 2, *[0] * 9]
    loop = heuristic_loop(10, lambda ids, k: [0] * k, *counts)
    seqs = sequences([[1], [1]], LONG)
    seqs.finish(1)
    drafted = [loop.step(seqs).draft.lengths[0] for _ in counts]
    assert drafted == [5, 7, 9, 10, 9, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]


def test_heuristic_knows_requests_apart_and_passes_over_rounds_without_a_draft() -> None:
    loop = heuristic_loop(10, lambda ids, k: [0] * k if ids[0] else [], 99, 0)
    seqs = sequences([[1], [1]], LONG)
    drafted = [list(loop.step(seqs).draft.lengths) for _ in range(5)]
    assert drafted == [[5, 5], [7, 4], [6, 6], [8, 5], [7, 7]]
    seqs.admit(0, [0], LONG)  # of which nothing is drafted
    assert [loop.step(seqs).draft.lengths[1] for _ in range(2)] == [6, 8]
    assert list(loop.controller.window(seqs)) == [5, 7]


def draft_length(controller: Ruled, *rows: list[float], model=None) -> int:
    """How long a draft of up to 4 tokens becomes whose distributions are `rows`, place by place."""
    seqs = sequences([[0]], LONG)
    drafter = paced_drafter(model or TableModel.of_probs(*rows), controller)(seqs)
    return drafter.propose(seqs, controller.window(seqs)).lengths[0]


def two(p: float) -> list[float]:
    return [p, 1 - p] + [0.0] * 6


def flat(n: int) -> list[float]:
    return [1 / n] * n + [0.0] * (8 - n)


@pytest.mark.parametrize(
    ("threshold", "sure", "length"),
    [
        (0.4, [0.6, 0.41, 0.39, 0.9], 3),  # behind the third
        (0.4, [0.39, 0.9, 0.9, 0.9], 1),
        (0.4, [0.41, 0.41, 0.41, 0.41], 4),
        (0.7, [0.9, 0.69, 0.9, 0.9], 2),
        (0.0, [0.3, 0.3, 0.3, 0.3], 4),
    ],
)
def test_confidence_stops_behind_the_token_it_is_not_sure_of(
    threshold: float, sure: list[float], length: int
) -> None:
    rows = [[p, *[(1 - p) / 7] * 7] for p in sure]
    assert draft_length(Confidence(4, threshold), *rows) == length


@pytest.mark.parametrize(
    ("h", "sure", "length"),
    [  # sqrt(H): 0.2366 of .99, 0.3131 of .98, 0.7499 of .75, 0.7816 of .7
        (0.3, [0.99, 0.98, 0.99, 0.99], 2),
        (0.3, [0.98, 0.99, 0.99, 0.99], 1),
        (0.3, [0.99, 0.99, 0.99, 0.99], 4),
        (0.775, [0.75, 0.75, 0.7, 0.75], 3),  # the released program's sqrt(0.15 H) > 0.3
    ],
)
def test_svip_stops_behind_the_token_of_a_flat_distribution(
    h: float, sure: list[float], length: int
) -> None:
    assert draft_length(SVIP(4, h), *map(two, sure)) == length


@pytest.mark.parametrize(
    ("gamma", "bound", "widths", "length"),
    [  # 1 - sqrt(0.2 ln n): 0.531 of n = 3, 0.473 of 4; 1 - sqrt(0.1 ln n): 0.628 of 4, 0.544 of 8
        (0.2, 0.5, [3, 3, 4, 3], 2),  # before the third
        (0.2, 0.5, [3, 4, 3, 3], 1),
        (0.2, 0.5, [4, 3, 3, 4], 3),  # the first token is always drafted
        (0.2, 0.54, [1, 1, 1, 3], 3),
        (0.1, 0.5, [4, 4, 8, 8], 4),
        (0.1, 0.6, [4, 4, 8, 8], 2),
    ],
)
def test_adaedl_stops_before_the_token_whose_bound_is_too_low(
    gamma: float, bound: float, widths: list[int], length: int
) -> None:
    assert draft_length(AdaEDL(4, gamma, bound), *map(flat, widths)) == length


@pytest.mark.parametrize("rule", [Confidence, AdaEDL, SVIP])
def test_a_broken_draft_model_drafts_one_token(rule: Callable[[int], Ruled]) -> None:
    assert draft_length(rule(4), model=Faulty(HashLM(6))) == 1


def verified(drafted: int, accepted: int) -> Emitted:
    return Emitted([0] * (accepted + 1), drafted, accepted)


def begun(controller: Ruled, rows: int = 1):
    """The rule of its one drafter, in the first round of so many requests."""
    rule = controller.pace(0)
    controller.window(sequences([[1]] * rows, LONG))
    return rule


def test_adaedl_moves_its_bound_against_the_accepted_share() -> None:
    """λ + 0.001 where r < 0.9, λ - 0.001 elsewhere, but not behind K accepted tokens; row 1 is left
    alone."""
    rule = begun(AdaEDL(10), rows=2)
    bounds = []
    for drafted, accepted, ended in [
        (10, 10, False),  # r = 0.5
        (10, 10, False),  # 0.75
        (10, 10, False),  # 0.875
        (10, 10, False),  # 0.9375
        (2, 2, True),  # 0.969
        (10, 9, False),  # 0.934
        (4, 1, True),  # 0.592
    ]:
        sure = [0.1] * (drafted + ended)
        rule.learn(0, verified(drafted, accepted), sure)
        bounds.append(rule.history[0].bound)
    right = [0.501, 0.502, 0.503, 0.503, 0.502, 0.501, 0.502]
    assert bounds == pytest.approx(right, abs=1e-12)
    assert rule.history[0].share == pytest.approx(0.5 * (0.5 * (0.5 * 1.9375 + 0.9) + 0.25))
    assert (rule.history[1].bound, rule.history[1].share) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("most", "bounds", "share"),
    [(0.05, (0.88, 0.94), (0.86, 0.92)), (3.0, (0.99, 1.0), (0.4, 0.6))],
)
def test_adaedl_is_driven_to_its_share_from_both_sides(
    most: float, bounds: tuple[float, float], share: tuple[float, float]
) -> None:
    """Tokens of entropies up to `most`, accepted with the very chance that the bound names. In the
    first world nine in ten drafted tokens can be accepted; in the second the first token alone is
    refused so often that single tokens are all that is drafted."""
    for start in (0.0, 0.5, 1.0):
        rng, rule = random.Random(1), begun(AdaEDL(4, bound=start))
        seen = []
        for _ in range(4000):
            sure, drafted = [rng.uniform(0, most)], 1
            while drafted < 4:
                sure.append(rng.uniform(0, most))
                if not rule.goes_on(0, drafted, sure):
                    break
                drafted += 1
            passed = [rng.random() < 1 - math.sqrt(0.2 * h) for h in sure[:drafted]]
            accepted = [*passed, False].index(False)
            rule.learn(0, verified(drafted, accepted), sure)
            seen.append(accepted / drafted)
        assert bounds[0] <= rule.history[0].bound <= bounds[1]
        assert share[0] <= mean(seen[2000:]) <= share[1]


def cost(threshold: float, sure: list[float], matched: list[bool]) -> Fraction:
    """fpr + 3 fnr, in words."""
    accepted = [s for s, good in zip(sure, matched, strict=True) if good]
    refused = [s for s, good in zip(sure, matched, strict=True) if not good]
    fpr = Fraction(sum(s >= threshold for s in refused), len(refused))
    return fpr + 3 * Fraction(sum(s < threshold for s in accepted), len(accepted))


def test_the_cheapest_threshold_of_the_roc_curve() -> None:
    sure, matched = [0.9, 0.8, 0.7, 0.6, 0.5, 0.3], [True, True, False, True, False, False]
    costs = [cost(t, sure, matched) for t in sure]
    assert costs == [2, 1, Fraction(4, 3), Fraction(1, 3), Fraction(2, 3), 1]
    assert cheapest_threshold(sure, matched) == 0.6
    rng = random.Random(0)
    for _ in range(500):
        n = rng.randint(2, 9)
        sure = [rng.randint(1, 6) / 8 for _ in range(n)]  # many are equal
        matched = [True, False, *(rng.random() < 0.6 for _ in range(n - 2))]
        best = min(sorted({*sure}, reverse=True), key=lambda t: cost(t, sure, matched))
        assert cheapest_threshold(sure, matched) == best


def test_the_threshold_is_tuned_to_what_was_tested_once_that_is_enough() -> None:
    rule = begun(Confidence(8, tuned=True), rows=3)
    known = rule.known
    rule.learn(0, verified(5, 2), [0.9, 0.8, 0.7, 0.2, 0.1])  # the last two: not tested
    rule.learn(0, verified(2, 1), [0.6, 0.5])
    assert (known[0].sure, known[0].threshold) == ([0.9, 0.8, 0.7, 0.6, 0.5], 0.4)
    rule.learn(0, verified(1, 0), [0.3, 0.99])  # the second was only looked at
    assert known[0].matched == [True, True, False, True, False, False]
    assert known[0].threshold == 0.6
    rule.learn(1, verified(8, 8), [0.9] * 8)  # nothing was refused
    assert [known[b].threshold for b in (1, 2)] == [0.4, 0.4]
    fixed = begun(Confidence(8, 0.3))
    fixed.learn(0, verified(6, 5), [0.9] * 5 + [0.1])
    assert fixed.known[0].threshold == 0.3


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Heuristic(-1), "K must be at least 0, not -1"),
        (lambda: Heuristic(8, 0), "heuristic: the first window must be at least 1, not 0"),
        (lambda: Confidence(8, 1.2), "confidence: the threshold must be from 0 to 1, not 1.2"),
        (lambda: Confidence(8, math.nan), "confidence: the threshold must be from 0 to 1, not nan"),
        (lambda: AdaEDL(8, -0.1), "adaedl: γ must be at least 0, not -0.1"),
        (lambda: AdaEDL(8, bound=2), "adaedl: the first bound must be from 0 to 1, not 2"),
        (lambda: SVIP(8, math.inf), "svip: h must be at least 0, not inf"),
        (lambda: SVIP(-2), "K must be at least 0, not -2"),
    ],
)
def test_parameters_out_of_range_are_refused(make: Callable[[], object], says: str) -> None:
    with pytest.raises(PacelineError) as error:
        make()
    assert str(error.value) == says
