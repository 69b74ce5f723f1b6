"""`paceline advise --report`: what was found out as one page, with everything in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paceline.advise import tables
from paceline.advise.costs import Passes, fit
from paceline.advise.rows import Row
from paceline.advise.run import Report
from paceline.errors import PacelineError
from paceline.page.html import document, paragraph, section, sheet, table, words
from paceline.page.plot import Line, plot

_TESTS = 8  # of a position at least, for α to mean anything


def write(report: Report, path: str) -> None:
    """Write the page. Raises PacelineError where it cannot be written."""
    try:
        Path(path).write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise PacelineError(f"--report {path} cannot be written: {error.strerror}") from None


def page(report: Report) -> str:
    """The page: HTML that is XML, too."""
    title = f"Advice for {report.model}"
    body = (
        _advice(report),
        _bottleneck(report),
        _passes(report.passes),
        _speedups(report.rows),
        _alphas(report.rows),
        _drafters(report),
        _effects(report),
        _how(report),
    )
    whole = f"<h1>{words(title)}</h1>{''.join(body)}"
    sheets = (sheet("paceline.page", "figures.css"), sheet("paceline.advise", "page.css"))
    return document(title, whole, *sheets)


def _advice(report: Report) -> str:
    said = f"{paragraph(report.advice.sentence)}<pre>{words(report.advice.command)}</pre>"
    return f'<section class="advice">{said}</section>'


def _bottleneck(report: Report) -> str:
    whole = report.bottleneck.seconds
    bars = "".join(
        f"<tr><th>{words(name)}</th><td>{taken * 1e3:.2f} ms</td>"
        f'<td class="wide">{_bar(taken / whole)}</td></tr>'
        for name, taken in tables.parts(report).items()
    )
    return section("Where the time goes", f"<table>{bars}</table>", tables.reading(report))


def _passes(passes: Sequence[Passes]) -> str:
    lines: list[Line] = []
    for i, each in enumerate(passes):
        roof, name = fit(each.r), tables.rows_of(each)
        lines.append(Line(name, list(each.r.items()), i))
        ends = sorted({min(each.r), roof.knee, max(each.r)})
        lines.append(Line(f"{name}, roofline", [(n, roof(n)) for n in ends], i, dashed=True))
    drawn = plot("r(n)", lines, "tokens in a pass, n", "r(n) = T(n) / T(1)", low=0)
    said = " ".join(tables.scoring(each) for each in passes)
    return section("What scoring several tokens costs", drawn, said)


def _speedups(rows: Sequence[Row]) -> str:
    drafting = [row for row in rows if row.drafts]
    if not drafting:
        return ""
    lines = [
        Line(row.draft, list(row.curve.items()), i, mark=row.k) for i, row in enumerate(drafting)
    ]
    windows = list(drafting[0].curve)
    plain = Line("plain decoding", [(windows[0], 1.0), (windows[-1], 1.0)], None, dashed=True)
    drawn = plot("Speedup against K", [plain, *lines], "K", "predicted speedup", "x")
    return section("Speedup against K", drawn, "Marked: the K at which each drafter ran for real.")


def _alphas(rows: Sequence[Row]) -> str:
    lines = [
        Line(row.draft, points, i)
        for i, row in enumerate(row for row in rows if row.drafts)
        if (points := _known(row))
    ]
    if not lines:
        return ""
    drawn = plot("α by position", lines, "position in the draft", "α", low=0, high=1)
    said = f"Of tokens behind accepted ones; where there were {_TESTS} such or more."
    return section("Acceptance by position", drawn, said)


def _known(row: Row) -> list[tuple[float, float]]:
    """α by position, as far as enough tokens were tested."""
    each = enumerate(zip(row.alpha_at, row.tested_at, strict=True), 1)
    return [(float(n), alpha) for n, (alpha, tests) in each if tests >= _TESTS]


def _drafters(report: Report) -> str:
    vain = "".join(f"<li>{words(line)}</li>" for line in tables.notes(report))
    shown = tables.drafters(report)
    body = table(shown.head, shown.body)
    notes = (tables.drafters_note(report), tables.busy(report))
    said = "".join(paragraph(note) for note in notes if note)
    return section("Drafters", body + said + (f"<ul>{vain}</ul>" if vain else ""))


def _effects(report: Report) -> str:
    shown = tables.effects(report)
    if not shown.body:
        return ""
    body = table(shown.head, shown.body)
    return section("What changes it", body, "Predicted speedups, at the K of above.")


def _how(report: Report) -> str:
    asked = "; ".join(f"{a.kind} {a.prompt} + {a.answer}" for a in report.asked)
    where = f"{report.model} in {report.dtype} on {report.device}"
    where += f", {report.threads} threads" if report.device == "cpu" else ""
    said = (
        f"{where}. {len(report.asked)} of {report.given} prompts, tokens of prompt and answer: "
        f"{asked}. Each was answered once, plainly and greedily; drafters were asked along these "
        "answers, then run for a few tokens, plain ones in between. Memory bandwidth: "
        f"{report.bottleneck.how}. {report.seconds:.0f} s in all."
    )
    return section("How it was measured", "", said)


def _bar(share: float) -> str:
    return f'<div class="bar" style="width: {100 * min(1.0, share):.1f}%"></div>'
