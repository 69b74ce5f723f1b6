"""Worlds without a clock or a model, in which windows are held against what an oracle would choose:
whether each token would be accepted is drawn beforehand, and so is what passes cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from paceline.controllers.adaptive import Adaptive
from paceline.controllers.cost import CostBook
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Pace, Paces
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Emitted, Round, Seconds

T1 = 0.05
FLAT = [1.0, 1.06, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4]
CPU = [1.0, 1.25, 1.3, 1.4, 1.5, 1.65, 1.8, 1.9, 2.0]
STEEP = [float(n) for n in range(1, 10)]


@dataclass(frozen=True)
class World:
    """`good[t]`: the drafter's token at place t of the text would be accepted; `sure[t]`: how sure
    it is there. `r[n - 1]`: T(n) / T(1); `c`: a draft step. `found[t]`: it drafts at once and for
    nothing, so many tokens at most there (None: token by token, as many as one likes)."""

    good: Sequence[bool]
    sure: Sequence[float]
    r: Sequence[float]
    c: float
    found: Sequence[int] | None = None


@dataclass
class Spent:
    """What a run took: time in units of T(1), `at` each token, too; rounds; drafted tokens."""

    time: float
    rounds: int
    drafted: int
    at: list[float]


def texts(path: Any, seed: int, informed: float = 0.0) -> tuple[list[bool], list[float]]:
    """Tokens that are accepted with chances `path`, and how sure the drafter is of each.
    `informed`: how much tokens differ, of which it knows (0: not at all: its confidence says
    nothing)."""
    rng = np.random.default_rng(seed)
    chance = np.asarray(path, dtype=float)
    if informed:  # the chances of single tokens are spread around the path's
        weight = 1 / informed - 1 + 1e-3
        a, b = (np.maximum(share * weight, 1e-3) for share in (chance, 1 - chance))
        chance = rng.beta(a, b)
    good = rng.random(len(chance)) < chance
    sure = np.clip(chance, 0.01, 0.99) if informed else rng.random(len(chance))
    return good.tolist(), sure.tolist()


def any_world(seed: int, tokens: int) -> World:
    """One of all sorts: costs, and a path of α that stays, jumps or wanders."""
    rng = np.random.default_rng(seed)
    base, slope = rng.uniform(0, 0.4), rng.uniform(0.02, 0.3)
    r = [1.0, *(1 + base + slope * n for n in range(1, 9))]
    size = tokens + 40  # drafts reach behind the end
    kind = rng.integers(3)
    if kind == 0:
        path = np.full(size, rng.uniform(0, 1))
    elif kind == 1:
        cuts = np.sort(rng.integers(0, tokens, rng.integers(2, 6)))
        levels = rng.uniform(0, 1, len(cuts) + 1)
        path = levels[np.searchsorted(cuts, np.arange(size), side="right")]
    else:
        path = 1 / (1 + np.exp(-np.cumsum(rng.normal(0, 0.05, size)) - rng.uniform(-2, 2)))
    good, sure = texts(path, seed, float(rng.choice([0.0, 0.3, 0.6])))
    return World(good, sure, r, float(rng.choice([0.02, 0.06, 0.15, 0.3])))


def adaptive(world: World, k: int = 8) -> Adaptive:
    """The adaptive window, which has timed what that world costs."""
    return Adaptive(k, CostBook({1: [T1 * r for r in world.r]}, {1: [world.c]}))


def fixed(world: World, windows: Callable[[int], int], tokens: int) -> float:
    """The time of a text with drafts of `windows(t)` tokens at place t."""
    time, t = 0.0, 0
    while t < tokens:
        k = min(windows(t), tokens - t - 1)
        k = k if world.found is None else min(k, world.found[t])
        time += world.r[k] + (world.c * k if world.found is None else 0)
        t += _accepted(world, t, k) + 1
    return time


def best_fixed(world: World, tokens: int, most: int = 8) -> float:
    """The time of the best window in hindsight."""
    return min(fixed(world, lambda t, k=k: k, tokens) for k in range(most + 1))


def request(tokens: int) -> Sequences:
    """One, for so many tokens."""
    seqs = Sequences(1, tokens + 2)
    seqs.admit(0, [1], SamplingParams(max_tokens=tokens))
    return seqs


def run(
    controller: Controller,
    world: World,
    tokens: int,
    slower: Callable[[int], float] | None = None,
    noise: float = 0.0,
) -> Spent:
    """A text under `controller`; at place t everything takes `slower(t)` times as long. `noise`: by
    how much, as a share, what rounds are measured to take is off."""
    rng = np.random.default_rng(0)
    seqs = request(tokens)
    pace = None
    if isinstance(controller, Paces):
        pace = controller.pace(0, 0.0 if world.found is None else None)
    spent = Spent(0.0, 0, 0, [])
    while seqs.running[0]:
        t = seqs.lengths[0] - 1
        draft, steps = _draft(world, pace, t, controller.window(seqs)[0])
        drafted = draft.lengths[0]
        accepted = _accepted(world, t, drafted)
        factor = 1.0 if slower is None else slower(t)
        drafting, target = factor * world.c * steps, factor * world.r[drafted]
        spent.time += drafting + target
        spent.rounds += 1
        spent.drafted += drafted
        spent.at += [spent.time] * (accepted + 1)
        seqs.lengths[0] += accepted + 1
        seqs.running[0] = seqs.lengths[0] < seqs.limits[0]
        emitted = Emitted([0] * (accepted + 1), drafted, accepted)
        nothing: Any = None
        shaken = T1 * np.exp(noise * rng.standard_normal(2)) if noise else (T1, T1)
        seconds = Seconds(float(drafting * shaken[0]), float(target * shaken[1]), 0.0)
        controller.observe(Round(draft, nothing, nothing, [emitted], seconds))
    return spent


def _accepted(world: World, t: int, k: int) -> int:
    return next((i for i in range(k) if not world.good[t + i]), k)


def _draft(world: World, pace: Pace | None, t: int, k: int) -> tuple[Draft, int]:
    """A draft as drafters make it, and how many draft steps that took."""
    n = k if pace is None else pace.limits([k])[0]
    by = [0 if n else -1]
    if world.found is not None:
        n = min(n, world.found[t])
        sure = [list(world.sure[t : t + n])]
        if pace is not None and n:
            n = pace.lengths([0], sure, [n])[0]
        return Draft(torch.zeros(1, n, dtype=torch.int64), [n], sure=sure, by=by), 0
    sure = [[]]
    for j in range(n):
        if pace is not None and not pace.further([0], j, sure):
            n = j
            break
        sure[0].append(world.sure[t + j])
        if pace is not None and not pace.further([0], j, sure):
            n = j
            break
    return Draft(torch.zeros(1, n, dtype=torch.int64), [n], sure=sure, by=by), len(sure[0])
