"""The figures of a trace's page: drafts round by round, times, and α by position."""

from __future__ import annotations

from paceline.cli.trace import words
from paceline.page import html
from paceline.page.canvas import Canvas
from paceline.page.scale import ticks
from paceline.text.trace import Trace

_WIDE, _HIGH, _LEFT, _FLOOR = 440.0, 190.0, 34.0, 24.0


def drafts(trace: Trace) -> str:
    """A column a round: what was drafted (depth of a tree), and as much of it as was accepted."""
    canvas, room = Canvas("drafted and accepted tokens, by round", _HIGH), _WIDE - _LEFT - 6
    top = canvas.key([("drafted", "pale", "bar"), ("accepted", "accent", "bar")], _LEFT, 0) + 8
    most = max((each.drafted for each in trace.rounds), default=0) or 1
    step = room / max(1, len(trace.rounds))
    unit = (_HIGH - _FLOOR - top) / most
    floor = _HIGH - _FLOOR
    for value in ticks(0, most, 4, whole=True):
        canvas.line(_LEFT, floor - value * unit, _WIDE - 6, floor - value * unit, "rule")
        canvas.text(_LEFT - 6, floor - value * unit + 4, f"{value:g}", "end")
    for i, each in enumerate(trace.rounds):
        said = f"round {each.number}: {each.accepted} of {each.drafted} accepted"
        x, wide = _LEFT + i * step, step * (0.8 if step > 3 else 1)
        for count, ink in ((each.drafted, "pale"), (each.accepted, "accent")):
            canvas.bar(x, floor - count * unit, wide, count * unit, ink, said)
    for value in ticks(1, len(trace.rounds), 6, whole=True):
        if value >= 1:
            canvas.text(_LEFT + (value - 0.5) * step, _HIGH - 8, f"{value:g}", "middle")
    return canvas.svg()


def times(trace: Trace) -> str:
    """The parts of all rounds, and how many tokens each drafted length was good for."""
    stats = trace.stats
    parts = (
        ("draft", stats.draft_s),
        ("target pass", stats.target_s),
        ("rest", stats.overhead_s),
    )
    whole = sum(seconds for _, seconds in parts) or 1.0
    rows = "".join(
        f"<tr><th>{name}</th><td>{seconds:.2f} s</td><td>{seconds / whole:.0%}</td>"
        f'<td class="fill"><div class="bar" style="width: {100 * seconds / whole:.1f}%"></div>'
        "</td></tr>"
        for name, seconds in parts
    )
    per = whole / stats.emitted if stats.emitted else 0.0
    said = f"{words.ms(per)} ms a token. Reading the prompt is not in it; tracing slows the target."
    return f'<table class="times"><tbody>{rows}</tbody></table>{html.paragraph(said)}'


def alphas(trace: Trace) -> str:
    """α by position, with how often each was tested; nothing where nothing was drafted."""
    stats = trace.stats
    if not stats.tested:
        return ""
    rows = "".join(
        f"<tr><th>{i}</th><td>{alpha:.2f}</td><td>{tests} tested</td>"
        f'<td class="fill"><div class="bar" style="width: {100 * alpha:.1f}%"></div></td></tr>'
        for i, (alpha, tests) in enumerate(zip(stats.alpha_at, stats.tested, strict=True), 1)
    )
    return html.section(
        "α by position in the draft",
        f'<table class="times"><tbody>{rows}</tbody></table>',
        "The share of drafted tokens that passed, of those that stood behind accepted ones.",
    )
