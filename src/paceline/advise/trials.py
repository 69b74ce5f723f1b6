"""Drafters run for real for a little while, plain decoding in between."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch

from paceline.advise import predict
from paceline.advise.costs import Passes
from paceline.advise.plan import TURNS
from paceline.advise.replay import Says, Turn, ask, replay
from paceline.advise.rows import Heat
from paceline.advise.stage import Lane, Ran
from paceline.advise.timing import timed
from paceline.core.params import SamplingParams
from paceline.core.protocols import Drafter
from paceline.core.shape import distribution
from paceline.core.types import Draft

_PLAIN = ("none",)
_PLAIN_TOKENS = 8  # at least
_BETWEEN = 3  # drafters that run between two plain runs
PLACES = 24  # of an answer, at which the effect of a temperature is looked at


@dataclass(frozen=True)
class Entrant:
    """A drafter in a race: its parts by name, and as they were asked along this answer, its K, and
    where it stops."""

    parts: Sequence[str]
    says: Sequence[Says]
    k: int
    stop: int


@dataclass(frozen=True)
class Raced:
    """The `tokens` that a drafter brought, the seconds that they took it and plain decoding, and
    whether they are plain decoding's. `rounds()`: as they are known from asking it, drafting at
    what it costs by then."""

    tokens: int
    drafted_s: float
    plain_s: float
    rounds: Callable[[], Sequence[Turn]]
    same: bool


def race(lane: Lane, start: int, entrants: Mapping[str, Entrant]) -> dict[str, Raced]:
    """Each entrant decodes on from place `start`, TURNS times the same tokens; plain ones come
    before and behind every _BETWEEN of them, whose mean each is held against. Of the turns the
    medians count, drafted and plain."""
    names = list(entrants)
    runs: dict[str, list[Ran]] = {name: [] for name in names}
    plain: dict[str, list[float]] = {name: [] for name in names}
    longest = max((each.stop - start for each in entrants.values()), default=0)
    few = max(_PLAIN_TOKENS, longest // 2)
    with lane.kept():
        before = _plain(lane, start, few)
        for turn in range(TURNS):
            order = names[::-1] if turn % 2 else names
            for first in range(0, len(order), _BETWEEN):
                group = order[first : first + _BETWEEN]
                for name in group:
                    each = entrants[name]
                    ran = lane.run(each.parts, each.k, start, each.stop - start)
                    runs[name].append(ran)
                after = _plain(lane, start, few)
                for name in group:
                    plain[name].append((before + after) / 2)
                before = after
    return {
        name: _raced(lane, start, entrants[name], runs[name], median(plain[name])) for name in names
    }


def _plain(lane: Lane, start: int, tokens: int) -> float:
    """Seconds of a plain token, of so many."""
    ran = lane.run(_PLAIN, 0, start, min(tokens, len(lane.answer) - start))
    return ran.seconds / len(ran.ids)


def _raced(lane: Lane, start: int, entrant: Entrant, runs: Sequence[Ran], plain: float) -> Raced:
    answer, stop = lane.answer, entrant.stop
    tokens = len(runs[0].ids)
    return Raced(
        tokens,
        median(ran.seconds for ran in runs),
        tokens * plain,
        lambda: replay(answer, entrant.says, entrant.k, start, stop, lane.limit),
        all(ran.ids == answer[start : start + len(ran.ids)] for ran in runs),
    )


@dataclass(frozen=True)
class Chances:
    """How likely the first drafted token is accepted, one number a place where there is one; and
    how much longer drafting it takes at the temperature."""

    greedy: list[float] = field(default_factory=list[float])
    sampled: list[float] = field(default_factory=list[float])
    slower: list[float] = field(default_factory=list[float])


def chances(
    lane: Lane, drafters: Mapping[str, Sequence[Drafter]], params: SamplingParams
) -> dict[str, Chances]:
    """For each drafter (its parts, in order), at PLACES places in the middle of the answer: whether
    its first token is the answer's, and E[Σ min(p, q)] of the token that it draws under `params`.
    """
    count = min(PLACES, len(lane.answer))
    first = (len(lane.answer) - count) // 2
    found = {name: Chances() for name in drafters}
    with lane.kept(), torch.no_grad():
        known = torch.tensor([lane.answer[first : first + count - 1]], dtype=torch.int64)
        logits = lane.cached.score(lane.at(first), Draft(known, [count - 1]))[0]
        p = distribution(logits.float().cpu(), params, params.temperature)
        for name, parts in drafters.items():
            with lane.kept():
                for place in reversed(range(first, first + count)):  # see `survey`
                    for part in parts:
                        said = ask(lane, part, place, 1)
                        if said.drafted:
                            overlap, taken = _overlap(lane, part, place, params, p[place - first])
                            found[name].greedy.append(said.agreeing)
                            found[name].sampled.append(overlap)
                            found[name].slower.append(taken / said.seconds)
                            break
    return found


def _overlap(
    lane: Lane, drafter: Drafter, place: int, params: SamplingParams, p: torch.Tensor
) -> tuple[float, float]:
    """Σ min(p, q): the chance that what the drafter draws is accepted; and the seconds of drawing.
    A point mass is accepted with the probability of its token."""
    seqs = lane.at(place, params)
    seconds, draft = timed(lane.cached.model.device, lambda: drafter.propose(seqs, [1]))
    if not draft.lengths[0]:
        return 0.0, seconds
    if draft.q is None:
        return float(p[draft.tokens[0, 0]]), seconds
    q = draft.q[0, 0].float().cpu()
    width = min(len(p), len(q))
    return float(torch.minimum(p[:width], q[:width]).sum()), seconds


def heat(
    each: Sequence[Chances], rounds: predict.Rounds, hot: Passes, temperature: float
) -> Heat | None:
    """The effect of a temperature from the chances in several answers; None where nothing was
    drafted, or never rightly."""
    greedy = [value for chance in each for value in chance.greedy]
    sampled = [value for chance in each for value in chance.sampled]
    if not greedy or not sum(greedy):
        return None
    alpha_greedy, alpha = sum(greedy) / len(greedy), sum(sampled) / len(sampled)
    slower = median(ratio for chance in each for ratio in chance.slower)
    predicted = predict.at_temperature(rounds, hot, alpha / alpha_greedy, slower)
    return Heat(temperature, alpha_greedy, alpha, predicted)
