"""Figures of what goes with the length of the output."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline.bench.estimates import trend
from paceline.bench.lengths import TURN, Stretch
from paceline.bench.recorded import Pair
from paceline.page.canvas import Canvas
from paceline.page.plot import Frame
from paceline.page.scale import doublings, ticks

_STEPS = 12  # of a trend's interval
_LENGTHS = 25  # tokens; lengths are marked at this, doubled or halved


def rates(pairs: Sequence[Pair]) -> Canvas | None:
    """Tokens/s against the length of the answer, both sides."""
    if not pairs:
        return None
    canvas = Canvas("Tokens/s against output length", 300)
    entries = [("speculative", "accent", "dot"), ("plain", "soft", "hollow")]
    top = canvas.key(entries, 14, 0) + 8
    sides = [(pair, side) for pair in pairs for side in (pair.plain, pair.drafted)]
    highest = max(side.rate for _, side in sides) * 1.06
    frame = _frame(canvas, [side.tokens for _, side in sides], (0, highest), top)
    _axes(frame, "tokens/s", ticks(0, highest, 5))
    for pair in pairs:
        for side, ink in ((pair.plain, "soft"), (pair.drafted, "accent")):
            said = f"{pair.prompt}: {side.rate:.1f} tokens/s, {side.tokens} tokens"
            plain = ink == "soft"
            frame.dot(side.tokens, side.rate, 3, ink, said, 0.8 if plain else 0.6, plain)
    return canvas


def gains(pairs: Sequence[Pair]) -> Canvas | None:
    """Speedup against the length of the answer, with the straight line through all of them."""
    if not pairs:
        return None
    canvas = Canvas("Speedup against output length", 300)
    lengths = [pair.drafted.tokens for pair in pairs]
    points = [(math.log2(pair.drafted.tokens), math.log(pair.speedup)) for pair in pairs]
    first, last = math.log2(min(lengths)), math.log2(max(lengths))
    places = [first + (last - first) * i / _STEPS for i in range(_STEPS + 1)]
    line = trend(points, places) if last - first >= 1 else []  # of like lengths there is none
    drawn = [(2**x, math.exp(y), math.exp(low), math.exp(high)) for x, y, low, high in line]
    entries = [("a prompt", "accent", "dot")]
    if drawn:
        entries += [("trend", "ink", "line"), ("its 95% interval", "pale", "area")]
    top = canvas.key(entries, 14, 0) + 8
    ends = [pair.speedup for pair in pairs] + [1.0]
    ends += [value for _, _, low, high in drawn for value in (low, high)]
    low, high = min(ends) / 1.05, max(ends) * 1.05
    frame = _frame(canvas, lengths, (low, high), top, log_y=True)
    _axes(frame, "speedup (log scale)", doublings(low, high), "x")
    _band(frame, drawn)
    for pair in pairs:
        said = f"{pair.prompt}: {pair.speedup:.2f}x, {pair.drafted.tokens} tokens"
        frame.dot(pair.drafted.tokens, pair.speedup, 3, "accent", said, 0.6)
    frame.line([(x, y) for x, y, _, _ in drawn], "ink", 1.75)
    return canvas


def along(stretches: Sequence[Stretch]) -> Canvas | None:
    """The speedup from stretch to stretch of the same answers."""
    if len(stretches) < 2:
        return None
    canvas = Canvas("Speedup along an answer", 300)
    ends = [1.0]
    for each in stretches:
        speedup = each.speedup
        ends += [end for end in (speedup.low, speedup.value, speedup.high) if end is not None]
    margin = 0.08 * (max(ends) - min(ends) or 1)
    low, high = min(ends) - margin, max(ends) + margin
    frame = Frame.on(canvas, (0, stretches[-1].end), (low, high), 26)
    canvas.text(14, 14, "speedup in a stretch, 95% interval; n answers")
    frame.axes("output token", "speedup", ticks(0, stretches[-1].end, 6), ticks(low, high, 5), "x")
    _turn(frame)
    frame.line([((s.start + s.end) / 2, s.speedup.value) for s in stretches], "accent", 1.5)
    for each in stretches:
        speedup, x = each.speedup, frame.x((each.start + each.end) / 2)
        if speedup.low is not None and speedup.high is not None:
            canvas.line(x, frame.y(speedup.low), x, frame.y(speedup.high), "accent", 1.5)
        said = f"tokens {each.start + 1} to {each.end}: {speedup.said('x')}, n = {speedup.n}"
        canvas.dot(x, frame.y(speedup.value), 4, "accent", said)
        canvas.text(x, frame.y.start - 6, f"{speedup.n}", "middle")
    return canvas


def _frame(
    canvas: Canvas, lengths: Sequence[float], ys: tuple[float, float], top: float,
    log_y: bool = False,
) -> Frame:  # fmt: skip
    low, high = min(lengths), max(lengths)
    if low == high:
        low, high = low / 2, high * 2
    return Frame.on(canvas, (low, high), ys, top, log_x=True, log_y=log_y)


def _axes(frame: Frame, label: str, ys: Sequence[float], unit: str = "") -> None:
    xs = doublings(frame.x.low, frame.x.high, _LENGTHS)
    frame.axes("output length, tokens (log scale)", label, xs, ys, unit)
    _turn(frame)


def _turn(frame: Frame) -> None:
    """The length from which on the gain is said to grow."""
    if frame.x.low < TURN < frame.x.high:
        x = frame.x(TURN)
        frame.canvas.line(x, frame.y.end, x, frame.y.start, "soft", 1.25, dashed=True)


def _band(frame: Frame, drawn: Sequence[tuple[float, float, float, float]]) -> None:
    if drawn:
        lower = [(frame.x(x), frame.y(low)) for x, _, low, _ in drawn]
        upper = [(frame.x(x), frame.y(high)) for x, _, _, high in reversed(drawn)]
        frame.canvas.area([*lower, *upper], "pale", 0.3)
