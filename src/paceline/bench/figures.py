"""The figures of a report: each from values to a canvas, or None where there is nothing to draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.bench.estimates import Estimate
from paceline.bench.findings import ALL, PARTS, Group, Rival, Times, positions
from paceline.bench.recorded import Pair
from paceline.page.canvas import SIZE, WIDTH, Canvas
from paceline.page.plot import Frame
from paceline.page.scale import Scale, doublings, ticks

_EDGE = 14  # free at the left and at the right
_GOLDEN = 0.618  # spreads dots over their stripe, no two neighbours alike
_INKS = {"target": ("accent", 1.0), "draft": ("warn", 0.85), "overhead": ("pale", 0.7)}


@dataclass(frozen=True)
class Stripe:
    """A line of a stripe chart: dots as (value, what it is) and their mean."""

    name: str
    dots: Sequence[tuple[float, str]]
    mean: Estimate


def speedups(groups: Sequence[Group]) -> Canvas | None:
    """Speedup by category, a dot for every prompt."""
    stripes = [
        Stripe(group.name, [(p.speedup, f"{p.prompt}: {p.speedup:.2f}x") for p in group.pairs],
               group.speedup)
        for group in groups
    ]  # fmt: skip
    label = "tokens/s over those of plain decoding (log scale)"
    return _stripes("Speedup by category", stripes, label, 1.0, "x", log=True)


def taus(groups: Sequence[Group]) -> Canvas | None:
    """τ by category, a dot for every prompt."""
    stripes: list[Stripe] = []
    for group in groups:
        known = [(p.drafted.tau, p.prompt) for p in group.pairs if p.drafted.tau is not None]
        if group.tau is not None and known:
            dots = [(tau, f"{name}: {tau:.2f}") for tau, name in known]
            stripes.append(Stripe(group.name, dots, group.tau))
    return _stripes("τ by category", stripes, "τ, tokens a round", 1.0)


def peers(rivals: Sequence[Rival]) -> Canvas | None:
    """Ours over theirs, a dot for every prompt."""
    stripes: list[Stripe] = []
    for rival in rivals:
        if (mean := rival.ratio) is not None:
            dots = [(value, f"{name}: {value:.2f}x") for name, value in rival.ratios]
            stripes.append(Stripe(f"{rival.engine}, {rival.mode}", dots, mean))
    label = "our tokens/s over theirs (log scale)"
    return _stripes("Against other engines", stripes, label, 1.0, "x", log=True)


def alphas(groups: Sequence[Group]) -> Canvas | None:
    """α by position in the draft, and the share of rounds in which each was accepted."""
    whole = positions(groups[-1].pairs) if groups else []
    if not whole:
        return None
    canvas = Canvas("α by position in the draft", 300)
    entries = [("α, tested tokens", "accent", "line"), ("share of rounds", "pale", "area")]
    kinds = groups[:-1] if groups[-1].name == ALL else []
    if kinds:
        entries.insert(1, ("α of a category", "pale", "line"))
    top = canvas.key(entries, _EDGE, 0) + 8
    frame = Frame.on(canvas, (0.5, whole[-1].at + 0.5), (0.0, 1.0), top)
    xs = ticks(1, whole[-1].at, 8, whole=True)
    frame.axes("position in the draft", "α; share of rounds", xs, ticks(0, 1, 5))
    wide = min(34.0, 0.6 * (frame.x(2) - frame.x(1)))
    for each in whole:
        x, y = frame.x(each.at), frame.y(each.share)
        said = f"position {each.at}: accepted in {each.share:.1%} of rounds"
        canvas.bar(x - wide / 2, y, wide, frame.y(0) - y, "pale", said, opacity=0.35)
    for group in kinds:
        found = [each for each in positions(group.pairs) if each.at <= whole[-1].at]
        frame.line([(each.at, each.alpha.value) for each in found], "pale", 1)
        for each in found:
            said = f"{group.name}, position {each.at}: α {each.alpha.value:.2f}"
            frame.dot(each.at, each.alpha.value, 2, "pale", f"{said}, {each.tested} tested")
    frame.line([(each.at, each.alpha.value) for each in whole], "accent")
    for each in whole:
        alpha, x = each.alpha, frame.x(each.at)
        if alpha.low is not None and alpha.high is not None:
            canvas.line(x, frame.y(alpha.low), x, frame.y(alpha.high), "accent", 1.5)
        said = f"position {each.at}: α {alpha.said()}, {each.tested} tested"
        frame.dot(each.at, alpha.value, 4, "accent", said)
    return canvas


def costs(r: Mapping[int, float]) -> Canvas | None:
    """r(n) of the card, between what is free and what is not worth it."""
    if len(r) < 2:
        return None
    canvas = Canvas("r(n): what scoring n tokens costs", 300)
    entries = [("measured", "accent", "line"), ("n passes of one", "soft", "dashed")]
    top = canvas.key([*entries, ("free", "pale", "dashed")], _EDGE, 0) + 8
    last, highest = max(r), max(2.0, *r.values()) * 1.06
    frame = Frame.on(canvas, (1, last), (0.0, highest), top)
    xs = ticks(1, last, 8, whole=True)
    frame.axes("tokens scored in one pass, n", "r(n) = T(n) / T(1)", xs, ticks(0, highest, 5))
    end = min(last, highest)
    frame.line([(1, 1), (end, end)], "soft", 1.5, dashed=True)
    frame.line([(1, 1), (last, 1)], "pale", 1.5, dashed=True)
    frame.line(sorted(r.items()), "accent")
    for n, value in sorted(r.items()):
        frame.dot(n, value, 3.5, "accent", f"n = {n}: {value:.2f}")
    return canvas


def parts(times: Sequence[Times]) -> Canvas | None:
    """What a token takes, plain and speculative, by part."""
    if not times:
        return None
    canvas = Canvas("Where the time goes", 0)
    y = canvas.key([(part, _INKS[part][0], "bar") for part in PARTS], _EDGE, 0) + 8
    longest = max(max(sum(each.plain), sum(each.drafted)) for each in times)
    x = Scale(0, longest, _EDGE + 82, WIDTH - 62)
    top = y
    canvas.height = top + 50 * len(times) + 34
    for value in ticks(0, longest, 4):
        canvas.line(x(value), top, x(value), canvas.height - 36, "rule")
        canvas.text(x(value), canvas.height - 22, f"{value:g}", "middle")
    for each in times:
        canvas.text(_EDGE, y + 12, each.name, ink="ink", bold=each.name == ALL)
        rows = (("plain", each.plain), ("speculative", each.drafted))
        for row, (name, taken) in enumerate(rows):
            at, below = 0.0, y + 17 + 14 * row
            canvas.text(x(0) - 6, below + 10, name, "end")
            for part, value in zip(PARTS, taken, strict=True):
                ink, opacity = _INKS[part]
                said = f"{each.name}, {name}, {part}: {value:.2f} ms a token"
                canvas.bar(x(at), below, x(at + value) - x(at), 11, ink, said, opacity)
                at += value
            canvas.text(x(at) + 5, below + 10, f"{at:.1f}")
        y += 50
    canvas.text(WIDTH / 2, canvas.height - 5, "milliseconds a token", "middle")
    return canvas


def windows(pairs: Sequence[Pair], most: int = 3) -> Canvas | None:
    """Drafted and accepted tokens round by round: of the fastest, a middle and the slowest."""
    known = sorted((p for p in pairs if p.drafted.log), key=lambda pair: -pair.speedup)
    if not known:
        return None
    last = len(known) - 1
    shown = [known[i] for i in sorted({round(last * n / (most - 1)) for n in range(most)})]
    canvas = Canvas("K over time", 0)
    y = canvas.key([("drafted, K", "soft", "line"), ("accepted", "accent", "bar")], _EDGE, 0) + 6
    strip = 78
    canvas.height = y + len(shown) * strip + 30
    highest = max(1, *(entry[0] for pair in shown for entry in pair.drafted.log))
    for pair in shown:
        log = pair.drafted.log
        said = f"{pair.prompt}: {pair.speedup:.2f}x, τ {pair.drafted.tau or 0:.2f}"
        canvas.text(_EDGE, y + 14, f"{said}, {len(log)} rounds", ink="ink")
        up = Scale(0, highest, y + strip - 14, y + 24)
        along = Scale(0, len(log), _EDGE + 26, WIDTH - _EDGE)
        wide = along(1) - along(0)
        for value in (0, highest):
            canvas.line(along.start, up(value), along.end, up(value), "rule")
            canvas.text(along.start - 6, up(value) + 4, f"{value:g}", "end")
        outline: list[tuple[float, float]] = []
        for i, (drafted, accepted, _, _) in enumerate(log):
            told = f"{pair.prompt}, round {i + 1}: drafted {drafted}, accepted {accepted}"
            gap = min(1.0, wide / 5)
            canvas.bar(along(i), up(accepted), wide - gap, up(0) - up(accepted), "accent", told)
            outline += [(along(i), up(drafted)), (along(i + 1), up(drafted))]
        canvas.path(outline, "soft", 1.25)
        y += strip
    said = "rounds of an answer, from first to last; up: tokens a round"
    canvas.text(WIDTH / 2, canvas.height - 8, said, "middle")
    return canvas


def _stripes(
    title: str, stripes: Sequence[Stripe], label: str, mark: float, unit: str = "",
    log: bool = False,
) -> Canvas | None:  # fmt: skip
    """A line for each: its name and mean in words, below them its dots and the mean's interval."""
    if not stripes:
        return None
    entries = [("a prompt", "accent", "dot"), ("mean and 95% interval", "ink", "line")]
    canvas = Canvas(title, 0)
    y = canvas.key(entries, _EDGE, 0) + 8
    canvas.height = y + 40 * len(stripes) + 40
    values = [v for s in stripes for v in (*(value for value, _ in s.dots), s.mean.value, mark)]
    low, high = min(values), max(values)
    room = 1.06 if log else 0.04 * (high - low or 1)
    low, high = (low / room, high * room) if log else (low - room, high + room)
    x = Scale(low, high, _EDGE, WIDTH - _EDGE, log)
    floor = canvas.height - 38
    marks = doublings(low, high) if log else ticks(low, high, 7)
    for value in marks:
        canvas.text(x(value), floor + 15, f"{value:g}{unit}", "middle")
    for stripe in stripes:
        for value in marks:
            ink = "soft" if value == mark else "rule"
            canvas.line(x(value), y + 17, x(value), y + 37, ink)
        whole = stripe.name == ALL
        name = f"{stripe.name}, n = {len(stripe.dots)}"
        canvas.text(_EDGE, y + SIZE, name, ink="ink", bold=whole)
        canvas.text(WIDTH - _EDGE, y + SIZE, stripe.mean.said(unit), "end", "ink", whole)
        middle = y + 27
        for i, (value, said) in enumerate(stripe.dots):
            canvas.dot(x(value), middle + ((i * _GOLDEN) % 1 - 0.5) * 12, 3, "accent", said, 0.45)
        mean = stripe.mean
        if mean.low is not None and mean.high is not None:
            canvas.line(x(mean.low), middle, x(mean.high), middle, "ink", 2.5)
        canvas.dot(x(mean.value), middle, 4.5, "ink", f"{stripe.name}: {mean.said(unit)}")
        y += 40
    canvas.text(WIDTH / 2, canvas.height - 6, label, "middle")
    return canvas
