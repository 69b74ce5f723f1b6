"""From rounds that were replayed and passes that were timed to a speedup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.advise.costs import Passes
from paceline.advise.replay import Turn

Rounds = Sequence[Sequence[Turn]]  # the rounds of several stretches of text


def tokens(rounds: Rounds) -> int:
    """How many tokens these rounds committed."""
    return sum(len(turn.emitted.tokens) for turns in rounds for turn in turns)


def seconds(rounds: Rounds, passes: Passes, draft: float = 1.0) -> float:
    """What these rounds take: Σ T(drafted + 1) + o(drafted + 1) + `draft` times their drafting."""
    return sum(
        passes.seconds(turn.emitted.drafted + 1) + draft * turn.draft_s
        for turns in rounds
        for turn in turns
    )


def speedup(rounds: Rounds, passes: Passes) -> float:
    """Tokens a second over plain decoding's, which takes T(1) + o(1) a token."""
    return tokens(rounds) * passes.seconds(1) / seconds(rounds, passes)


def best(curve: Mapping[int, float]) -> int:
    """The K with the largest speedup, or the smallest one that comes within a hundredth of it: what
    is drafted in vain costs most where the text is hard."""
    least = 0.99 * max(curve.values())
    return min(k for k, speedup in curve.items() if speedup >= least)


def in_batch(rounds: Rounds, passes: Passes, draft: float) -> float:
    """The speedup of a whole batch whose rows all read such text: each begins at another place of
    it. A round takes the pass of its longest draft, and `draft` times the longest drafting that
    one row alone would take."""
    turns = [turn for each in rounds for turn in each]
    rows = [turns[at:] + turns[:at] for at in _offsets(len(turns), passes.batch)]
    taken = sum(
        passes.seconds(max(turn.emitted.drafted for turn in side) + 1)
        + draft * max(turn.draft_s for turn in side)
        for side in zip(*rows, strict=True)
    )
    return tokens(rounds) * passes.seconds(1) / taken


def _offsets(count: int, batch: int) -> list[int]:
    return [row * count // batch for row in range(batch)]


def at_temperature(rounds: Rounds, hot: Passes, ratio: float, draft: float = 1.0) -> float:
    """The speedup where each drafted token is accepted `ratio` times as often as in `rounds`,
    passes cost what they do in `hot`, and drafting `draft` times what it does there.

    A round of n accepted tokens is a run of n tests that passed, so that P(n >= i) becomes
    P(n >= i) ratio^i, at most 1, and never more than P(n >= i - 1).
    """
    turns = [turn for each in rounds for turn in each]
    longest = max(turn.emitted.drafted for turn in turns)
    expected, before = 1.0, 1.0
    for i in range(1, longest + 1):
        reached = sum(turn.emitted.accepted >= i for turn in turns) / len(turns)
        before = min(before, reached * ratio**i)
        expected += before
    return len(turns) * expected * hot.seconds(1) / seconds(rounds, hot, draft)
