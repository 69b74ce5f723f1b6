"""What the published rules share: a window of K tokens, and in it drafts that go on as long as what
is measured of each token says so."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import inf
from typing import Generic, TypeVar

import torch
from torch import Tensor

from paceline.controllers.fixed import room
from paceline.core.protocols import Pace
from paceline.core.sequences import Sequences
from paceline.core.types import Emitted, Round
from paceline.errors import PacelineError

T = TypeVar("T")


class PerRequest(Generic[T]):
    """What is known of the request in each row; of a new one, what `fresh()` makes."""

    def __init__(self, fresh: Callable[[], T]) -> None:
        self._fresh = fresh
        self._known: dict[object, T] = {}
        self._requests: list[object] = []

    def begin(self, seqs: Sequences) -> None:
        """A round begins, and rows may have been given to other requests."""
        known, self._requests = self._known, list(seqs.requests)
        self._known = {each: known[each] for each in self._requests if each in known}
        for request in self._requests:
            if request not in known:
                self._known[request] = self._fresh()

    def __getitem__(self, row: int) -> T:
        return self._known[self._requests[row]]


class Rule(ABC):
    """The `Pace` of one drafter: ends its drafts by what it measures of each token, but drafts one
    token at least. Drafts that are not made token by token (lookups) have no distribution: it
    neither cuts them nor learns from them."""

    def __init__(self) -> None:
        self.asked: set[int] = set()  # rows of this round whose drafts it had a say in

    def begin(self, seqs: Sequences) -> None:
        """A round begins."""
        self.asked = set()

    def limits(self, k: Sequence[int]) -> Sequence[int]:
        """As many as were asked for."""
        return k

    @abstractmethod
    def measure(self, logits: Tensor) -> Tensor:
        """See `Pace`."""

    @abstractmethod
    def goes_on(self, row: int, drafted: int, sure: Sequence[float]) -> bool:
        """Whether the draft of `row`, of `drafted` > 0 tokens, goes on; `sure` as in
        `Pace.further`."""

    def further(
        self, rows: Sequence[int], drafted: int, sure: Sequence[Sequence[float]]
    ) -> Sequence[int]:
        """See `Pace`: each row for itself."""
        self.asked.update(rows)
        return [b for b in rows if not drafted or self.goes_on(b, drafted, sure[b])]

    def lengths(
        self, rows: Sequence[int], sure: Sequence[Sequence[float]], lengths: Sequence[int]
    ) -> Sequence[int]:
        """All of them."""
        return lengths

    @abstractmethod
    def learn(self, row: int, emitted: Emitted, sure: Sequence[float]) -> None:
        """The draft of `row`, in which it had a say, was verified; `sure` as in `Draft`."""


class Ruled:
    """A window of `k` tokens, and for each drafter a `rule()` that ends its drafts. Raises
    PacelineError if k is negative."""

    def __init__(self, k: int, rule: Callable[[], Rule]) -> None:
        self.k = int(within("K", k, 0, inf))
        self._rule = rule
        self._rules: list[Rule] = []

    def pace(self, index: int, confidence: float | None = None, draft: str | None = None) -> Pace:
        """See `Paces`. The rule takes the place of the drafter's own `confidence`."""
        while len(self._rules) <= index:
            self._rules.append(self._rule())
        return self._rules[index]

    def window(self, seqs: Sequences) -> Sequence[int]:
        """K of each row, or what there is room for."""
        for rule in self._rules:
            rule.begin(seqs)
        return room(seqs, self.k)

    def observe(self, round: Round) -> None:
        """Each draft to the rule that had a say in it. There is one at most, as of several drafters
        the next one is asked only where those before it drafted nothing."""
        sure = round.draft.sure
        for rule in self._rules:
            for b in rule.asked:
                emitted = round.emitted[b]
                if emitted is not None and sure is not None:
                    rule.learn(b, emitted, sure[b])


def within(name: str, value: float, low: float, high: float) -> float:
    """`value`; PacelineError if it is not a finite number from `low` to `high`."""
    if low <= value <= high and value < inf:
        return value
    bounds = f"at least {low:g}" if high == inf else f"from {low:g} to {high:g}"
    raise PacelineError(f"{name} must be {bounds}, not {value}")


def entropy(logits: Tensor) -> Tensor:
    """H [B] in nats of the distribution that `logits` [B, V'] stand for at temperature 1."""
    q = torch.softmax(logits, -1)
    return -torch.xlogy(q, q).sum(-1)
