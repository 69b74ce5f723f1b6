"""Would it have been seen? The same tests, on verifiers that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from paceline.check.breakages import Breakage, Chain, breakages
from paceline.check.contexts import One, Two
from paceline.check.exact import Exact, enumerate_laws
from paceline.check.kinds import PLAIN
from paceline.check.sampled import Sampled, check_sampled


@dataclass(frozen=True)
class Power:
    """What the tests said of one breakage. `error`: of the law of three tokens, by enumeration;
    `one` and `two`: the smallest p-values, after Holm's correction, of the tests of one token and
    of two (None: not made). `detectable`: a total variation that each of these sees with
    probability 0.9. `sound`: nothing was broken."""

    breakage: str
    caught_by: list[str]
    error: float
    one: float | None
    two: float | None
    detectable: float
    sound: bool = False

    @property
    def ok(self) -> bool:
        """Whether it was caught, or passed if nothing is broken."""
        return bool(self.caught_by) != self.sound


def check_power(
    ones: Sequence[One],
    twos: Sequence[Two],
    rounds: int,
    seed: int = 0,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> list[Power]:
    """Each breakage, and first the rule that they break, which has to pass."""
    todo = [Breakage("nothing", Chain()), *breakages()]
    found: list[Power] = []
    for i, each in enumerate(todo):
        progress(i, len(todo), "breaking")
        found.append(_try(each, ones, twos, rounds, seed))
    progress(len(todo), len(todo), "breaking")
    return [replace(found[0], sound=True), *found[1:]]


def _try(
    breakage: Breakage, ones: Sequence[One], twos: Sequence[Two], rounds: int, seed: int
) -> Power:
    exact: Exact = enumerate_laws(breakage.verifier, "", breakage.draft, (PLAIN,))[0]
    if breakage.form != "chain":
        ones = ()
    tests = check_sampled(breakage.verifier, ones, twos, rounds, seed, (breakage.form,))
    caught = [] if exact.ok else ["exact"]
    for tokens, name in ((1, "one token"), (2, "two tokens")):
        if not all(test.ok for test in tests if test.tokens == tokens):
            caught.append(name)
    smallest = [_smallest([t for t in tests if t.tokens == tokens]) for tokens in (1, 2)]
    seen = max(test.detectable for test in tests)
    return Power(breakage.what, caught, exact.error, smallest[0], smallest[1], seen)


def _smallest(tests: Sequence[Sampled]) -> float | None:
    return min((test.adjusted for test in tests), default=None)
