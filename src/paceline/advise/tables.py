"""What was found out, in words and figures, for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.advise.costs import Passes, fit, verdict
from paceline.advise.rows import Part, Row
from paceline.advise.run import Report

_OFF = 0.1  # errors beyond this come from outside
_LENGTHS = {"to_100": "first 100 tokens", "beyond_100": "behind 100"}


@dataclass(frozen=True)
class Table:
    """Words and figures, as text."""

    head: Sequence[str]
    body: Sequence[Sequence[str]]


def parts(report: Report) -> dict[str, float]:
    """Seconds of a plain token by part; and of drafting one, where a draft is advised."""
    named = dict(report.bottleneck.parts)
    if report.drafting:
        named[f"draft ({report.advice.draft})"] = report.drafting
    return named


def reading(report: Report) -> str:
    """What a plain token takes, and how much of the memory's bandwidth it uses."""
    bound = report.bottleneck
    said = f"A plain token behind {bound.context} others takes {bound.seconds * 1e3:.1f} ms"
    if bound.weights is None or bound.mbu is None:
        return f"{said}."
    read = (bound.weights + (bound.kv or 0)) / 1e9
    rate = bound.bandwidth / 1e9
    return (
        f"{said} and reads {read:.2f} GB: {bound.mbu:.0%} of the {rate:.1f} GB/s there are (MBU)."
    )


def scoring(passes: Passes) -> str:
    """What limits passes over a few tokens."""
    roof = fit(passes.r)
    flat = (
        f"flat up to {roof.knee:g} token{'s' * (roof.knee != 1)}"
        if roof.knee > 1
        else "flat nowhere"
    )
    return f"{rows_of(passes)}: {verdict(passes.r)}; {flat}, then {roof.slope:.2f} a token."


def rows_of(passes: Passes) -> str:
    """How many rows, in words."""
    return f"{passes.batch} row{'s' * (passes.batch > 1)}"


def kinds(report: Report) -> list[str]:
    """The kinds of text that were answered."""
    return list(dict.fromkeys(asked.kind for asked in report.asked))


def drafters(report: Report) -> Table:
    """Every drafter with figures: its name, the speedup to expect, and what else there is."""
    each = kinds(report)
    head = ["drafter", "speedup", *each, "K", "τ", "α", "c", "memory"]
    return Table(head, [_drafter(row, each) for row in report.rows if row.error is None])


def drafters_note(report: Report) -> str:
    """How to read that table."""
    of = f"{len(report.asked)} of {report.given} prompts"
    return (
        f"{', '.join(kinds(report))}: the speedup predicted for the answers to {of}, and how far "
        "predictions were off where they were measured. speedup: on all of it, half-way between."
    )


def busy(report: Report) -> str | None:
    """What to say if the machine did something else meanwhile."""
    trials = [row.trial for row in report.rows if row.trial is not None]
    worst = max((abs(trial.error) for trial in trials), default=0.0)
    if worst <= _OFF:
        return None
    return (
        f"Predictions and measurements differ by up to {worst:.0%}: something else ran on this "
        "machine. Run it again when it is quiet."
    )


def effects(report: Report) -> Table:
    """Predicted speedups by length, at a temperature and in batches; no rows without drafters."""
    rows = [row for row in report.rows if row.drafts]
    lengths = [name for name in _LENGTHS if any(name in row.lengths for row in rows)]
    hot = next((row.heat.temperature for row in rows if row.heat is not None), None)
    batches = [passes.batch for passes in report.passes if passes.batch > 1]
    head = ["drafter", *(_LENGTHS[name] for name in lengths)]
    head += [] if hot is None else [f"temperature {hot:g}"]
    head += [f"{batch} rows" for batch in batches]
    body: list[list[str]] = []
    for row in rows:
        cells = [_times(row.lengths[x].predicted) if x in row.lengths else "-" for x in lengths]
        if hot is not None:
            cells.append("-" if row.heat is None else _times(row.heat.predicted))
        cells += [f"{_times(row.batches[b][1])}, K {row.batches[b][0]}" for b in batches]
        body.append([row.draft, *cells])
    return Table(head, body)


def notes(report: Report) -> list[str]:
    """The drafters without figures, and why; and those whose tokens were not plain decoding's."""
    gone = [_gone(row.draft, row.error) for row in report.rows if row.error is not None]
    differ = [row.draft for row in report.rows if row.trial is not None and not row.trial.same]
    return gone + [
        f"{draft}: not the tokens of plain decoding; try paceline check" for draft in differ
    ]


def _gone(draft: str, error: str) -> str:
    return error if error.startswith(draft) else f"{draft}: {error}"


def _drafter(row: Row, each: Sequence[str]) -> list[str]:
    if not row.drafts:
        return [row.draft, "1.00x", *["1.00x"] * len(each), *["-"] * 5]
    memory = "-" if row.memory is None else f"{row.memory / 1e9:.2f} GB"
    c = "-" if row.c is None else f"{row.c:.3f}"
    alpha = "-" if row.alpha is None else f"{row.alpha:.2f}"
    apart = [_kind(row.kinds[kind]) for kind in each]
    figures = [str(row.k), f"{row.tau:.2f}", alpha, c, memory]
    return [row.draft, _times(row.expected), *apart, *figures]


def _kind(part: Part) -> str:
    off = "" if part.trial is None else f" {round(100 * part.trial.error):+d}%"
    return _times(part.predicted) + off


def _times(speedup: float) -> str:
    return f"{speedup:.2f}x"
