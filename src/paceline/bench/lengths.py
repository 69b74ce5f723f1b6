"""Does the gain grow with the length of the output? Among answers, and within them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.bench.estimates import Estimate, centred, estimate, ratio, slope
from paceline.bench.recorded import Pair, Side

TURN = 100  # tokens, from which on the gain is said to grow

_BEYOND = 20  # tokens behind TURN, for a rate there to mean anything
_STEP = 25
_ENOUGH = 8  # answers, to say something of all


@dataclass(frozen=True)
class Stretch:
    """Output tokens `start` to `end`: the speedup there, of answers that have them all."""

    start: int
    end: int
    speedup: Estimate


def per_doubling(pairs: Sequence[Pair], whole: bool = False) -> Estimate | None:
    """By what the speedup is multiplied where an answer is twice as long, among those of one
    category; `whole`: that with the reading of the prompt. None if that cannot be told."""
    known = [pair for pair in pairs if not whole or pair.whole]
    lengths = [pair.drafted.tokens for pair in known]
    if len(known) < _ENOUGH or max(lengths) < 2 * min(lengths):
        return None

    def grown(drawn: Sequence[Pair]) -> float | None:
        kinds: dict[str, list[tuple[float, float]]] = {}
        for pair in drawn:
            gain = (pair.whole or 1.0) if whole else pair.speedup
            point = (math.log2(pair.drafted.tokens), math.log(gain))
            kinds.setdefault(pair.category, []).append(point)
        points = centred(list(kinds.values()))
        rise = slope(points) if points else None
        return None if rise is None else math.exp(rise)

    return estimate(known, grown)


def beyond(pairs: Sequence[Pair]) -> Estimate | None:
    """The speedup behind token TURN over that up to it, within answers that go on for long enough.
    Each answer is held against itself: it is as easy to draft before as behind."""
    ratios: list[float] = []
    for pair in pairs:
        end = _length(pair)
        if end >= TURN + _BEYOND:
            before, behind = _speedup(pair, 0, TURN), _speedup(pair, TURN, end)
            if before and behind:
                ratios.append(behind / before)
    return ratio(ratios)


def stretches(pairs: Sequence[Pair]) -> list[Stretch]:
    """The speedup along those same answers."""
    long = [pair for pair in pairs if _length(pair) >= TURN + _BEYOND]
    found: list[Stretch] = []
    end = max(map(_length, long), default=0)
    start = 0
    while start < end:
        stop = start + (_STEP if start < TURN else 2 * _STEP)
        here = [_speedup(pair, start, stop) for pair in long if _length(pair) >= stop]
        speedup = ratio([each for each in here if each])
        if speedup is None or speedup.n < 3:
            break
        found.append(Stretch(start, stop, speedup))
        start = stop
    return found


def _length(pair: Pair) -> int:
    """Tokens that both sides made, as far as their rounds were written down."""
    made = (sum(emitted for _, _, emitted, _ in side.log) for side in (pair.plain, pair.drafted))
    return min(made)


def _speedup(pair: Pair, start: int, end: int) -> float | None:
    """From token `start` to `end`; what comes with the first round counts on neither side."""
    if not pair.plain.log or not pair.drafted.log:
        return None
    first = max(pair.plain.log[0][2], pair.drafted.log[0][2], start)
    if first >= end:
        return None
    plain = _clock(pair.plain, end) - _clock(pair.plain, first)
    drafted = _clock(pair.drafted, end) - _clock(pair.drafted, first)
    return plain / drafted if plain > 0 and drafted > 0 else None


def _clock(side: Side, token: int) -> float:
    """Seconds until a token was there; amid a round, as if its tokens came evenly."""
    at, seconds = 0, 0.0
    for _, _, emitted, taken in side.log:
        if emitted and at + emitted >= token:
            return seconds + taken * (token - at) / emitted
        at, seconds = at + emitted, seconds + taken
    return seconds


def answer(pairs: Sequence[Pair]) -> str:
    """Whether the gain grows, in words."""
    along, among = beyond(pairs), per_doubling(pairs)
    long = sum(pair.drafted.tokens > TURN for pair in pairs)
    if along is None or along.n < _ENOUGH or along.low is None or along.high is None:
        said = (
            f"Whether the gain grows behind token {TURN} cannot be told: {long} of {len(pairs)} "
            f"answers are longer than that, and it takes {_ENOUGH} of {TURN + _BEYOND} tokens or "
            "more whose rounds were written down."
        )
    else:
        verdict = "Not shown"
        if along.low > 1:
            verdict = "True of these answers"
        elif along.high < 1:
            verdict = "False of these answers: it shrinks"
        said = (
            f"Does the gain grow behind token {TURN} of an answer? {verdict}. Held against "
            f"itself, an answer's speedup behind token {TURN} is {along.said()} times that up to "
            f"there (n = {along.n} answers of {TURN + _BEYOND} tokens or more, first repeat)."
        )
    if among is None:
        return said
    said += (
        " Between answers of one category, twice the length goes with "
        f"{among.said()} times the speedup (n = {among.n})"
    )
    if (counted := per_doubling(pairs, whole=True)) is None:
        return f"{said}."
    return (
        f"{said}; with the reading of the prompt, which takes both sides equally long and "
        f"weighs less in a long answer, {counted.said()} times."
    )
