"""What `paceline advise` found out, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paceline.advise import tables

if TYPE_CHECKING:
    from paceline.advise.costs import Passes
    from paceline.advise.run import Report

Cell = str | Text

_WIDE = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_GAP = 3  # columns between two of a table
_ELSEWHERE = 120  # columns where nobody says how many there are


def show(report: Report) -> None:
    """Print it; coloured only where a person looks."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_ELSEWHERE)
    where = f"{report.dtype}, {report.device}"
    if report.device == "cpu":
        where += f", {report.threads} thread{'s' * (report.threads > 1)}"
    console.print(Text(f"{report.model} ({where})", style="bold"))
    _bottleneck(console, report)
    _passes(console, report.passes)
    _drafters(console, report)
    effects = tables.effects(report)
    if effects.body:
        _print(console, "What changes it (predicted)", effects.head, effects.body)
    for line in tables.notes(report):
        console.print()
        console.print(Text(line, style="dim"))
    console.print()
    console.print(Text(report.advice.sentence, style="bold"))
    console.print(Text(f"  {report.advice.command}"), soft_wrap=True)


def _bottleneck(console: Console, report: Report) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right")
    for name, taken in tables.parts(report).items():
        bar = _bar(taken / report.bottleneck.seconds, "cyan")
        grid.add_row(f"  {name}", f"{taken * 1e3:.2f} ms", bar)
    console.print(tables.reading(report))
    console.print(grid)
    console.print()


def _passes(console: Console, passes: Sequence[Passes]) -> None:
    sizes = sorted({n for each in passes for n in each.r})
    body = [
        [tables.rows_of(each), *(f"{each.r[n]:.2f}" if n in each.r else "" for n in sizes)]
        for each in passes
    ]
    _print(console, "A pass over n tokens, over a pass of one", ["n =", *map(str, sizes)], body)
    for each in passes:
        console.print(tables.scoring(each))
    console.print()


def _drafters(console: Console, report: Report) -> None:
    table = tables.drafters(report)
    rows = [row for row in report.rows if row.error is None]
    most = max(1.0, *(row.expected for row in rows))
    body: list[list[Cell]] = []
    for row, (name, speedup, *rest) in zip(rows, table.body, strict=True):
        style = _style(row.expected)
        bar = _bar(row.expected / most, style)
        body.append([name, Text(speedup, style=style), bar, *rest])
    head = [*table.head[:2], "", *table.head[2:]]
    _print(console, "Drafters, each at its best K", head, body)
    console.print(tables.drafters_note(report))
    if said := tables.busy(report):
        console.print(said)
    console.print()


def _print(
    console: Console, title: str, head: Sequence[str], body: Sequence[Sequence[Cell]]
) -> None:
    """Print a table, in several pieces, each with its first column, where it is too wide."""
    console.print(Text(title, style="italic"))
    for columns in _pieces(console.width, head, body):
        grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
        for i in columns:
            words = i == 0 or not head[i]
            grid.add_column(head[i], justify="left" if words else "right", no_wrap=True)
        for row in body:
            grid.add_row(*(row[i] for i in columns))
        console.print(grid)
        console.print()


def _pieces(width: int, head: Sequence[str], body: Sequence[Sequence[Cell]]) -> Iterator[list[int]]:
    """The columns of each piece."""
    wide = [max(len(row[i]) for row in [head, *body]) + _GAP for i in range(len(head))]
    columns = [0]
    for i in range(1, len(head)):
        if len(columns) > 1 and sum(wide[c] for c in columns) + wide[i] > width:
            yield columns
            columns = [0]
        columns.append(i)
    yield columns


def _style(speedup: float) -> str:
    return "green" if speedup >= 1.03 else "red" if speedup < 0.97 else ""


def _bar(share: float, style: str) -> Text:
    whole, eighths = divmod(round(min(1.0, share) * _WIDE * 8), 8)
    return Text("█" * whole + _EIGHTHS[eighths].strip(), style)
