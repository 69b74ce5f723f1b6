"""The window that tunes itself, in worlds of which all is known."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from adaptive_rounds import a_round, rows_of
from worlds import (
    CPU,
    FLAT,
    STEEP,
    T1,
    World,
    adaptive,
    any_world,
    best_fixed,
    fixed,
    request,
    run,
    texts,
)  # fmt: skip

from paceline.controllers.adaptive import Adaptive
from paceline.controllers.cost import CostBook
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Emitted, Round, Seconds


def world(path: Any, tokens: int, seed: int = 0, informed: float = 0.0, r: Any = CPU,
          c: float = 0.065) -> World:  # fmt: skip
    full = np.full(tokens + 40, path) if isinstance(path, float) else path
    return World(*texts(full, seed, informed), r, c)


def share_of_best(case: World, tokens: int) -> float:
    """Of the speed of the best fixed window."""
    return best_fixed(case, tokens) / run(adaptive(case), case, tokens).time


@pytest.mark.parametrize("c", [0.065, 0.3, 0.7])
def test_a_random_drafter_costs_next_to_nothing(c: float) -> None:
    for seed in range(5):
        case = world(0.0001, 512, seed, c=c)
        assert run(adaptive(case), case, 512).time < 512 / 0.97


def test_of_a_perfect_drafter_nearly_all_is_had() -> None:
    for seed in range(5):
        assert share_of_best(world(1.0, 512, seed, informed=0.3), 512) > 0.97
    # also of one whose confidence says nothing, once that has been found out
    case = world(1.0, 2048)
    assert share_of_best(case, 2048) > 0.97


def test_where_tokens_cost_what_they_are_worth_nothing_is_drafted() -> None:
    """A loaded machine: a pass over n tokens takes n times as long (case C34)."""
    case = world(0.95, 1000, r=STEEP)
    spent = run(adaptive(case), case, 1000)
    assert spent.drafted < 60
    assert spent.time < 1.03 * 1000


@pytest.mark.parametrize("hard", [300, 3000])
def test_it_comes_back_when_the_text_turns_easy(hard: int) -> None:
    """Never stuck at 0."""
    path = np.concatenate([np.full(hard, 0.001), np.full(640, 0.9)])
    for seed in range(5):
        case = world(path, hard + 600, seed)
        at = run(adaptive(case), case, hard + 600).at
        late = at[hard + 500] - at[hard + 250]
        assert late < 250 * 0.6  # far from one token a pass
        assert at[hard] < 1.04 * hard


def test_it_leaves_when_the_text_turns_hard() -> None:
    path = np.concatenate([np.full(300, 0.95), np.full(540, 0.001)])
    for seed in range(5):
        case = world(path, 800, seed)
        at = run(adaptive(case), case, 800).at
        assert at[360] - at[300] < 60 + 12  # a few drafts fail
        assert at[790] - at[400] < 1.03 * 390


def test_text_that_alternates_is_followed() -> None:
    """Copied and unpredictable by turns; a drafter that has an idea of where it is."""
    tokens = 960
    path = np.where(np.arange(tokens + 40) // 60 % 2 == 0, 0.95, 0.05)
    shares = []
    for seed in range(5):
        case = world(path, tokens, seed, informed=0.5)
        windows = (lambda t, k=k: k if t // 60 % 2 == 0 else 0 for k in range(1, 9))
        oracle = min(fixed(case, each, tokens) for each in windows)
        took = run(adaptive(case), case, tokens).time
        shares.append(oracle / took)
        assert took < best_fixed(case, tokens)
    assert mean(shares) > 0.95


def test_a_busy_machine_changes_nothing_where_all_gets_slower_alike() -> None:
    case = world(0.7, 1200, informed=0.3)
    undisturbed = run(adaptive(case), case, 1200)
    spent = run(adaptive(case), case, 1200, lambda t: 2.0 if 400 <= t < 800 else 1.0)
    assert spent.drafted == pytest.approx(undisturbed.drafted, rel=0.05)


def test_costs_that_were_timed_wrongly_are_put_right() -> None:
    """Timed while the machine was free: it looked as if drafts paid."""
    case = world(0.5, 2000, r=STEEP)
    controller = Adaptive(8, CostBook({1: [T1 * r for r in FLAT]}, {1: [case.c]}))
    at = run(controller, case, 2000).at
    assert at[1990] - at[1000] < 1.03 * 990


def test_probes_cost_less_and_less() -> None:
    case = world(0.0001, 8000)
    controller = adaptive(case)
    first = run(controller, case, 2000)
    second = run(adaptive(case), case, 8000)
    assert second.drafted < 3 * first.drafted  # in four times the text
    again = run(controller, case, 2000)  # the pair is known by now
    assert again.drafted < first.drafted


def test_lookups_that_are_found_are_cut_to_what_pays() -> None:
    """Drafts that are there at once: long matches are right, short ones are not."""
    tokens = 600
    easy = np.arange(tokens + 40) // 100 % 2 == 0
    good = easy | (np.random.default_rng(0).random(tokens + 40) < 0.05)
    sure = np.where(easy, 0.88, 0.5)
    found = np.full(tokens + 40, 8)
    case = World(good.tolist(), sure.tolist(), CPU, 0.0, found.tolist())
    took = run(adaptive(case), case, tokens).time
    oracle = fixed(case, lambda t: 8 if easy[t] else 0, tokens)
    assert took < oracle / 0.93
    assert took < best_fixed(case, tokens)


@pytest.mark.parametrize(
    "count", [400, pytest.param(10_000, marks=pytest.mark.slow)], ids=["400", "10000"]
)
def test_regret_grows_slower_than_the_text(count: int) -> None:
    """Over all sorts of worlds, against the best fixed window in hindsight."""
    lengths = (64, 256, 1024) if count < 1000 else (64, 256)
    regret = {n: [] for n in lengths}
    for n in lengths:
        for seed in range(count if n < 1000 else count // 4):
            case = any_world(seed, n)
            plain = fixed(case, lambda t: 0, n)
            spent, best = run(adaptive(case), case, n), best_fixed(case, n)
            regret[n].append((spent.time - best) / n)
            if n >= 1000:
                assert spent.time < 1.03 * plain
    means = [mean(regret[n]) for n in lengths]
    assert means == sorted(means, reverse=True)
    assert means[-1] < 0.01
    worst = [float(np.quantile(regret[n], 0.95)) for n in lengths]
    assert worst == sorted(worst, reverse=True)


def test_what_is_drawn_from_a_seed_keeps_its_window() -> None:
    """Or what rounds took would change what comes out."""
    controller = Adaptive(6, CostBook({1: [T1 * r for r in STEEP]}, {1: [0.5]}))
    pace = controller.pace(0, 0.35)
    seeded, greedy = rows_of(1, seed=3, temperature=1.0), rows_of(1, seed=3)
    coupled = Sequences(1, 64, coupled=True)
    coupled.admit(0, [1, 2], SamplingParams(max_tokens=50, seed=3, temperature=1.0))
    for _ in range(5):
        assert pace.limits(controller.window(seeded)) == [6]
        assert pace.further([0], 1, [[0.9]]) == [0]
        assert pace.further([0], 1, [[0.6, 0.6]]) == [0]
        assert pace.further([0], 2, [[0.6, 0.6, 0.6]]) == []  # where the drafter ends by itself
        assert pace.lengths([0], [[0.1]], [1]) == [1]
        a_round(controller, seeded, [6], [0], by=[0], sure=[[0.5] * 6])
    for tuned in (greedy, coupled):
        assert pace.limits(controller.window(tuned))[0] <= 1


def test_what_is_known_comes_back_from_json() -> None:
    case = world(0.6, 400, informed=0.3)
    controller = adaptive(case)
    run(controller, case, 400)
    again = Adaptive.from_dict(json.loads(json.dumps(controller.to_dict())), 8)
    assert again.to_dict()["known"] == []  # until a drafter is there
    again.pace(0, 0.0)
    assert again.to_dict()["known"] == controller.to_dict()["known"]
    times = [each.book.curve(1, 1, False).values for each in (again, controller)]
    assert times[0] == pytest.approx(times[1])
    other = world(0.6, 400, seed=1, informed=0.3)
    fresh, known = run(adaptive(other), other, 400), run(again, other, 400)
    assert known.time < fresh.time + 1
    with pytest.raises(ValueError, match="another window"):
        Adaptive.from_dict(controller.to_dict(), 5)


def test_a_window_has_room_for_the_tokens_it_leads_to() -> None:
    controller = adaptive(world(1.0, 10))
    seqs = request(3)
    assert controller.window(seqs) == [2]
    seqs.finish(0)
    assert controller.window(seqs) == [0]


@pytest.mark.parametrize(("r", "pays"), [(FLAT, True), (STEEP, False)])
def test_a_tree_is_charged_for_all_of_its_tokens(r: list[float], pays: bool) -> None:
    """Of a drafter that says nothing of itself: four tokens for each level, one of them right."""
    time = [T1 * (r[8] + (n - 8) * (r[8] - r[7]) if n > 8 else r[n]) for n in range(40)]
    controller = Adaptive(8, CostBook({1: time}, {1: [0.05]}))
    pace, seqs = controller.pace(0), rows_of(1)
    asked = []
    for _ in range(60):
        (limit,) = pace.limits(controller.window(seqs))
        nodes, good = 4 * limit, min(limit, 3)
        emitted = Emitted([0] * (good + 1), limit, good)
        seqs.lengths[0] += good + 1
        draft = Draft(torch.zeros(1, nodes, dtype=torch.int64), [nodes], by=[0 if limit else -1])
        nothing: Any = None
        seconds = Seconds(0.05 * T1 * limit, time[nodes], 0.0)
        controller.observe(Round(draft, nothing, nothing, [emitted], seconds))
        asked.append(limit)
    # three levels of four: 4 tokens in 1.6 and a bit, or in 13
    assert (min(asked[20:]) >= 3) == pays
    assert pays or sum(asked[20:]) <= 8
    assert controller.book.steps(1)[0] == pytest.approx(0.05, rel=0.1)
