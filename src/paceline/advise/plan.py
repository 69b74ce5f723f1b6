"""How much of everything there is time for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

TURNS = 3  # of a race
SHORT = 100  # tokens of an answer that count as a short one
LONGEST = 160  # tokens of an answer, at most
_PLACES = 24  # of an answer
_ANSWERS, _SURVEYS, _RACES = 0.3, 0.05, 0.4  # shares of the time: of a survey, one drafter's


@dataclass(frozen=True)
class Plan:
    """`passes`: what one has time for, in plain tokens; `prompts`: how many are answered."""

    passes: float
    prompts: int

    @property
    def answer(self) -> int:
        """Tokens of each answer."""
        return _within(_ANSWERS * self.passes / self.prompts, 24, LONGEST)

    def survey(self, answer: int, k: int, cost: Callable[[int], float]) -> Survey:
        """How to ask a drafter along an answer of so many tokens. `k`: the largest K; `cost(n)`:
        what asking it for n tokens takes, over T(1). As far ahead as it can be asked at _PLACES."""
        budget = _SURVEYS * self.passes / self.prompts
        enough = min(_PLACES, answer)
        depth = next((n for n in range(k, 1, -1) if enough * cost(n) <= budget), 1)
        return Survey(_within(budget / cost(depth), 16, answer), depth)

    def race(self, drafters: int) -> int:
        """Tokens that each drafter is to bring in each turn of an answer."""
        return _within(_RACES * self.passes / (TURNS * self.prompts * max(1, drafters)), 16, 128)


@dataclass(frozen=True)
class Survey:
    """A drafter is asked at so many `places` of an answer, for `depth` tokens each."""

    places: int
    depth: int


def stretches(answer: int) -> list[range]:
    """The places of an answer of so many tokens: the first SHORT, and those behind them if they
    are enough to tell anything."""
    if answer < SHORT + SHORT // 8:
        return [range(answer)]
    return [range(SHORT), range(SHORT, answer)]


def shared(places: int, parts: Sequence[range]) -> list[range]:
    """So many places, the first ones of each stretch, by their lengths."""
    whole = sum(map(len, parts))
    return [part[: max(8, round(places * len(part) / whole))] for part in parts]


def _within(value: float, least: int, most: int) -> int:
    return min(most, max(least, int(value)))
