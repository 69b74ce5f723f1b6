"""Closed forms for a planned pair: what must hold whatever the pair."""

from __future__ import annotations

import json
import math
import random

import pytest

from paceline.advise.roofline import Size
from paceline.advise.what_if import Costs, Request, costs_of, needed_alpha, work_out
from paceline.errors import PacelineError


def worlds(count: int) -> list[tuple[float, Costs]]:
    """Seeded (α, costs) with an r that never falls, in steps."""
    rng, made = random.Random(6), []
    for _ in range(count):
        r = [1.0]
        for _ in range(17):
            r.append(r[-1] + rng.choice((0.0, 0.0, 0.1, 1.0)) * rng.random())
        made.append((rng.random(), Costs(rng.random() ** 3, tuple(r), rng.random() ** 4)))
    return made


def test_the_curve_of_the_readme() -> None:
    curve = work_out(Request(alpha=0.8, c=0.05))
    assert [point.k for point in curve.points] == list(range(1, 17))
    assert (curve.best.k, round(curve.best.speedup, 2)) == (8, 3.09)
    assert curve.bound == pytest.approx(5)
    assert curve.sentence.startswith("use K=8, 3.09x")


def test_speedup_is_tokens_over_costs() -> None:
    """E[tokens] / (r(K+1) + K c + o), each r that of K + 1 tokens."""
    request = Request(
        alpha=0.7,
        k="2:12",
        gpu="cpu",
        target=Size(1.5, 8),
        draft=Size(0.1, 8),
        overhead=0.02,
        context=0,
    )
    roofline = request.roofline
    assert roofline is not None
    for point in work_out(request).points:
        tokens = sum(0.7**i for i in range(point.k + 1))
        r = roofline.r(point.k + 1)
        assert point.speedup == pytest.approx(tokens / (r + point.k / 15 + 0.02))
        assert (point.tokens, point.r) == (pytest.approx(tokens), r)


def test_a_given_c_counts_before_the_rooflines() -> None:
    sizes = {"gpu": "a100", "target": Size(7), "draft": Size(3)}
    assert costs_of(Request(alpha=0.5, c=0.2, **sizes)).c == 0.2
    assert costs_of(Request(alpha=0.5, **sizes)).c == pytest.approx(3 / 7, rel=0.02)


def test_one_window_breaks_even_where_it_says() -> None:
    for _, costs in worlds(200):
        even = costs.break_even
        assert even == pytest.approx(costs.r[1] + costs.c + costs.overhead - 1)
        if even < 0.98:
            assert costs.speedup(even + 0.01, 1) > 1 > costs.speedup(max(0.0, even - 0.01), 1)
        else:
            assert costs.speedup(min(1.0, even - 0.01), 1) < 1


def test_no_window_beats_the_bound() -> None:
    for alpha, costs in worlds(200):
        assert all(costs.speedup(alpha, k) <= 1 / (1 - alpha) for k in range(1, 17))


def test_the_best_window_is_no_worse_than_any() -> None:
    for alpha, costs in worlds(200):
        best = costs.best(alpha, range(1, 17))
        fast = [costs.speedup(alpha, k) for k in range(1, 17)]
        assert costs.speedup(alpha, best) == max(fast)
        assert best == 1 + fast.index(max(fast))  # the smallest of equals


def test_needed_alpha_is_the_smallest_that_suffices() -> None:
    windows, reached = range(1, 17), 0
    for _, costs in worlds(200):
        for gain in (1.0, 1.5, 2.8):
            found = needed_alpha(gain, costs, windows)
            if found is None:
                assert max(costs.speedup(1.0, k) for k in windows) < gain
                continue
            alpha, k = found
            reached += 1
            assert costs.speedup(alpha, k) == pytest.approx(gain)
            below = max(0.0, alpha - 1e-6)
            assert max(costs.speedup(below, k) for k in windows) < gain
    assert reached > 100


def test_needed_alpha_inverts_the_best_speedup() -> None:
    costs = Costs(0.05, (1.0,) * 17)
    found = needed_alpha(work_out(Request(alpha=0.8, c=0.05)).best.speedup, costs, range(1, 17))
    assert found == (pytest.approx(0.8), 8)


def test_nothing_is_needed_for_no_gain_at_no_cost() -> None:
    assert needed_alpha(1.0, Costs(0.0, (1.0, 1.0)), [1]) == (0.0, 1)


def test_advice_against_speculation() -> None:
    curve = work_out(Request(alpha=0.3, c=0.5))
    assert not curve.pays
    assert curve.sentence.startswith("do not speculate, at best 0.87x")
    assert curve.sentence.endswith("K=1 pays above α 0.50")
    assert "K=1 pays at no α" in work_out(Request(alpha=0.9, c=1.0)).sentence
    assert work_out(Request(alpha=0.5, c=0.5)).pays is False  # a tie: drafts for nothing


def test_a_window_that_does_not_pay_says_nothing_of_others() -> None:
    assert work_out(Request(alpha=0.6, c=0.2, k="16")).sentence.startswith("not with K=16, at best")
    assert work_out(Request(alpha=0.6, c=0.2)).pays


def test_json_has_the_same_figures() -> None:
    curve = work_out(Request(alpha=1.0, gpu="h200", target=Size(54), draft=Size(8, 4), batch=2))
    found = json.loads(json.dumps(curve.to_dict(), allow_nan=False))
    assert found["best"] == found["curve"][-1]
    assert found["best"]["speedup"] == curve.best.speedup
    assert found["bound"] is None  # 1 / (1 - α) without end
    assert found["machine"]["draft"] == {"params_b": 8, "bits": 4}
    assert found["c"] == curve.costs.c


@pytest.mark.parametrize(
    ("request_", "fix"),
    [
        ({"alpha": 1.1, "c": 0.1}, "--alpha must be from 0 to 1"),
        ({"alpha": -0.1, "c": 0.1}, "--alpha must be from 0 to 1"),
        ({"alpha": math.nan, "c": 0.1}, "--alpha must be from 0 to 1"),
        ({"c": -0.1}, "--c must be at least 0"),
        ({"c": math.inf}, "--c must be at least 0"),
        ({"c": 0.1, "overhead": -1.0}, "--overhead must be at least 0"),
        ({"c": 0.1, "overhead": math.nan}, "--overhead must be at least 0"),
        ({"c": 0.1, "batch": 0}, "--batch must be at least 1"),
        ({"c": 0.1, "context": -1}, "--context must be at least 0"),
        ({"c": 0.1, "k": "0"}, "give windows from 1 to 64"),
        ({"c": 0.1, "k": "5:2"}, "the smaller one first"),
        ({"c": 0.1, "k": "1:65"}, "give windows from 1 to 64"),
        ({"c": 0.1, "k": "x"}, "write one window"),
        ({"c": 0.1, "k": "1:"}, "write one window"),
        ({"c": 0.1, "k": ""}, "write one window"),
        ({}, "add --c"),
        ({"c": 0.1, "batch": 2}, "add --gpu"),
        ({"target": Size(7), "draft": Size(1)}, "add --gpu, one of h100"),
        ({"gpu": "h10", "c": 0.1, "target": Size(7)}, "give one of h100, h200, a100"),
        ({"gpu": "h100", "c": 0.1}, "add --target"),
        ({"gpu": "h100", "target": Size(7)}, "add --draft-size"),
    ],
)
def test_bad_input_names_the_fix(request_: dict, fix: str) -> None:
    with pytest.raises(PacelineError, match=fix):
        Request(**{"alpha": 0.5, **request_})
