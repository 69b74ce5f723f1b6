"""What the records say, as values: by category, by position in the draft, by part of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.bench.estimates import Estimate, estimate, ratio
from paceline.bench.recorded import Pair, Peer, Recorded

ALL = "all prompts"

_TESTS = 8  # of a position at least, for α to mean anything


@dataclass(frozen=True)
class Group:
    """Prompts of one kind, at least one."""

    name: str
    pairs: Sequence[Pair]

    @property
    def speedup(self) -> Estimate:
        """The geometric mean over prompts."""
        found = ratio([pair.speedup for pair in self.pairs])
        assert found is not None
        return found

    @property
    def whole(self) -> Estimate | None:
        """The same with the reading of the prompt; None if some prompt has no such times."""
        ratios = [pair.whole for pair in self.pairs]
        return ratio([each for each in ratios if each]) if all(ratios) else None

    @property
    def tau(self) -> Estimate | None:
        """τ: tokens over rounds, of all prompts together."""
        return estimate([pair for pair in self.pairs if pair.drafted.rounds], _tau)

    @property
    def alpha(self) -> float | None:
        """α: accepted over tested tokens, of all prompts together."""
        tests = [_tests(pair) for pair in self.pairs]
        tested = sum(sum(each) for each, _ in tests)
        return sum(sum(each) for _, each in tests) / tested if tested else None

    @property
    def window(self) -> float | None:
        """K: drafted tokens a round."""
        rounds = sum(pair.drafted.rounds for pair in self.pairs)
        return sum(pair.drafted.drafted for pair in self.pairs) / rounds if rounds else None


def groups(recorded: Recorded) -> list[Group]:
    """Each category; and all prompts together, where there is more than one."""
    found = [Group(name, recorded.of(name)) for name in recorded.categories]
    return [*found, Group(ALL, recorded.pairs)] if len(found) > 1 else found


@dataclass(frozen=True)
class Position:
    """Place `at` in a draft, from 1 on: α among the `tested` tokens there, and the share of rounds
    in which a token was accepted there. These shares and 1 add up to τ, but for answers that
    end amid a round."""

    at: int
    alpha: Estimate
    tested: int
    share: float


def positions(pairs: Sequence[Pair]) -> list[Position]:
    """As far as enough tokens were tested; of prompts whose rounds were written down."""
    kept = [(pair, _tests(pair)) for pair in pairs if pair.drafted.log]
    rounds = sum(len(pair.drafted.log) for pair, _ in kept)
    counts = [tests for _, tests in kept]
    found: list[Position] = []
    for i in range(max((len(tested) for tested, _ in counts), default=0)):
        here = [(t[i], p[i]) for t, p in counts if i < len(t)]
        tested = sum(t for t, _ in here)
        if tested < _TESTS:
            break
        alpha = estimate(here, _passed)
        assert alpha is not None
        found.append(Position(i + 1, alpha, tested, sum(p for _, p in here) / rounds))
    return found


@dataclass(frozen=True)
class Times:
    """Milliseconds of a token by part, in the order of PARTS."""

    name: str
    plain: Sequence[float]
    drafted: Sequence[float]


PARTS = ("target", "draft", "overhead")


def times(groups: Sequence[Group]) -> list[Times]:
    """Of each group all seconds of a part over all tokens; without the reading of prompts."""
    found: list[Times] = []
    for group in groups:
        sides = [[pair.plain for pair in group.pairs], [pair.drafted for pair in group.pairs]]
        plain, drafted = (
            [
                1e3 * sum(side.parts[part] for side in each) / sum(side.tokens for side in each)
                for part in PARTS
            ]
            for each in sides
        )
        if sum(plain) and sum(drafted):
            found.append(Times(group.name, plain, drafted))
    return found


@dataclass(frozen=True)
class Rival:
    """Another engine in one of its modes, on the prompts of a category. `rates`: its tokens/s;
    `ratios`: ours over its, of prompts that both answered, with their names; `differing`: of
    `known` answers those that are not ours."""

    engine: str
    mode: str
    category: str
    rates: Sequence[float]
    ratios: Sequence[tuple[str, float]]
    differing: int
    known: int
    settings: Sequence[str]

    @property
    def ratio(self) -> Estimate | None:
        return ratio([value for _, value in self.ratios])


def rivals(recorded: Recorded, together: bool = False) -> list[Rival]:
    """By engine, mode and category; `together`: over all categories."""
    ours = {(pair.category, pair.prompt): pair.drafted.rate for pair in recorded.pairs}
    sorted_out: dict[tuple[str, str, str], list[Peer]] = {}
    for peer in recorded.peers:
        category = ALL if together else peer.category
        sorted_out.setdefault((peer.engine, peer.mode, category), []).append(peer)
    found: list[Rival] = []
    for (engine, mode, category), peers in sorted_out.items():
        shared = [peer for peer in peers if (peer.category, peer.prompt) in ours]
        ratios = [(peer.prompt, ours[peer.category, peer.prompt] / peer.rate) for peer in shared]
        known = [peer.same for peer in peers if peer.same is not None]
        settings = list(dict.fromkeys(peer.settings for peer in peers if peer.settings))
        rates = [peer.rate for peer in peers]
        found.append(
            Rival(engine, mode, category, rates, ratios, known.count(False), len(known), settings)
        )
    return found


def _tau(pairs: Sequence[Pair]) -> float:
    return sum(pair.drafted.tokens for pair in pairs) / sum(pair.drafted.rounds for pair in pairs)


def _tests(pair: Pair) -> tuple[list[int], list[int]]:
    """How often each position of the draft was tested, and passed. A token behind a rejection was
    never tested, nor one behind the end of the answer."""
    tested: list[int] = []
    passed: list[int] = []
    for drafted, accepted, emitted, _ in pair.drafted.log:
        reached = min(drafted, accepted + 1) if emitted > accepted else accepted
        more = [0] * (reached - len(tested))
        tested += more
        passed += more
        for i in range(reached):
            tested[i] += 1
            passed[i] += i < accepted
    return tested, passed


def _passed(counts: Sequence[tuple[int, int]]) -> float | None:
    tested = sum(t for t, _ in counts)
    return sum(p for _, p in counts) / tested if tested else None
