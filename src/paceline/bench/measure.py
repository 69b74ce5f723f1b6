"""The stop watch: one answer, and many of them in turns.

Tokens are counted, never the pieces in which they come. The time to the first token is that of the
first round, reading the prompt included, and what the round brought is not counted again: tokens/s
are those behind it, over the time behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any, Protocol

from paceline.core.params import SamplingParams
from paceline.core.types import Emitted
from paceline.text.completion import Completion

Clock = Callable[[], float]


class Answer(Protocol):
    """One answer while it is made: `read` its prompt, then `step` until what was emitted has a
    `finish`. `completion` grows with each step."""

    completion: Completion

    def read(self) -> None: ...
    def step(self) -> Emitted: ...


class Engine(Protocol):
    """What answers. `start` prepares; nothing is read before `Answer.read`, and nothing is known
    of what was read before."""

    def start(self, ids: Sequence[int], params: SamplingParams) -> Answer: ...


class Spoilt(Exception):
    """A prompt that cannot be measured; the message says why, in one line."""


class Differs(Spoilt):
    """Answers that must be the same tokens are not."""


@dataclass(frozen=True)
class Run:
    """One answer. `rounds`: of each the drafted, accepted and emitted tokens and its seconds;
    `ttft_s`: seconds to the end of the first; `seconds`: all of it."""

    completion: Completion
    rounds: Sequence[tuple[int, int, int, float]]
    ttft_s: float
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first round over the time they took; over all of the time where the
        first round was the only one."""
        tokens = sum(emitted for _, _, emitted, _ in self.rounds)
        rest = tokens - self.rounds[0][2]
        return rest / (self.seconds - self.ttft_s) if rest else tokens / self.seconds

    @property
    def overhead_s(self) -> float:
        """The time of the rounds that is neither drafting nor the target's."""
        stats = self.completion.stats
        rounds = sum(seconds for *_, seconds in self.rounds)
        return max(0.0, rounds - stats.draft_s - stats.target_s)


def run(
    engine: Engine, ids: Sequence[int], params: SamplingParams, clock: Clock = perf_counter
) -> Run:
    """Time one answer. Raises Spoilt where the scores were not numbers."""
    answer = engine.start(ids, params)
    began = clock()
    answer.read()
    rounds: list[tuple[int, int, int, float]] = []
    ends: list[float] = []
    at, finish = clock(), None
    while finish is None:
        emitted = answer.step()
        now = clock()
        rounds.append((emitted.drafted, emitted.accepted, len(emitted.tokens), now - at))
        ends.append(now)
        at, finish = now, emitted.finish
    if finish == "error":
        raise Spoilt("the model's scores are not numbers (NaN)")
    return Run(answer.completion, rounds, ends[0] - began, ends[-1] - began)


def pair(
    plain: Engine,
    drafted: Engine,
    ids: Sequence[int],
    params: SamplingParams,
    *,
    repeats: int,
    turn: int = 0,
    exact: bool = True,
    clock: Clock = perf_counter,
) -> tuple[dict[str, Any], dict[str, Any], bool | None]:
    """Both sides of a prompt, `repeats` answers each, in turns, every other time the second one
    first (from `turn` on); and whether all answers were the same tokens (None: they are drawn, and
    no two need be). Raises Spoilt; `Differs` where they are not the same though `exact` says that
    they must."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    for repeat in range(repeats):
        own = params if params.greedy else replace(params, seed=repeat)
        for side in (0, 1) if (turn + repeat) % 2 == 0 else (1, 0):
            runs[side].append(run((plain, drafted)[side], ids, own, clock))
    same = None
    if params.greedy:
        truth = runs[0][0].completion.token_ids
        others = [other.completion.token_ids for each in runs for other in each]
        same = all(other == truth for other in others)
        if exact and not same:
            at = min(_differs(truth, other) for other in others if other != truth)
            raise Differs(f"speculative and plain answers differ from token {at + 1} on")
    return side_of(runs[0]), side_of(runs[1]), same


def side_of(runs: Sequence[Run]) -> dict[str, Any]:
    """One side as records have it: times of all repeats, tokens/s and the seconds of each part as
    medians, and what was counted in the first repeat."""
    first = runs[0].completion
    stats = first.stats
    rates = [run.tokens_per_second for run in runs]
    return {
        "tokens": len(first.tokens),
        "finish": first.finish_reason,
        "seconds": [run.seconds for run in runs],
        "ttft_s": [run.ttft_s for run in runs],
        "tpot_s": [1 / rate for rate in rates],
        "tokens_per_second": median(rates),
        "tau": stats.tau,
        "alpha": stats.alpha,
        "alpha_at": stats.alpha_at,
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "draft_s": median(run.completion.stats.draft_s for run in runs),
        "target_s": median(run.completion.stats.target_s for run in runs),
        "overhead_s": median(run.overhead_s for run in runs),
        "round_log": [list(round) for round in runs[0].rounds],
        "made": [[token.text, token.origin] for token in first.tokens],
    }


def _differs(one: Sequence[int], other: Sequence[int]) -> int:
    """The first place at which they do."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))
