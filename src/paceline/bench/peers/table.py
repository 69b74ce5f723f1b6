"""Side by side: from records to rows, and from rows to a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from paceline.bench.estimates import geometric

if TYPE_CHECKING:
    from rich.table import Table

Record = Mapping[str, Any]
SIDES = ("plain", "speculative")  # of our own records


def rows(prompts: Sequence[Record], peers: Sequence[Record]) -> list[dict[str, Any]]:
    """One row for each engine, mode and category: its tokens/s (`tokens_per_second`), and `ratio`,
    ours over that, ours being the faster of our two sides in the category (`ours`, with its
    tokens/s on the same prompts as `ours_tokens_per_second`).

    Of a prompt it is the median over the repeats, the ratio that of the ratios within a repeat;
    over prompts the geometric mean. `same` of `prompts` answers were token for token ours. Where a
    way ended (`error`) its row has no figures.
    """
    ways = dict.fromkeys((r["engine"], r["mode"]) for r in peers)
    categories = dict.fromkeys(p["category"] for p in prompts)
    own = {p["prompt"]: p for p in prompts if p["plain"] and p["speculative"]}
    found: list[dict[str, Any]] = []
    for engine, mode in ways:
        theirs = [r for r in peers if (r["engine"], r["mode"]) == (engine, mode)]
        error = next((r["error"] for r in theirs if r["error"]), None)
        for category in categories:
            row = {"engine": engine, "mode": mode, "model": theirs[0]["model"]}
            row |= {"category": category, "error": error}
            of = [r for r in theirs if r["category"] == category and r["prompt"] in own]
            found.append(row | _figures(of if error is None else [], own))
    return found


def _figures(theirs: Sequence[Record], own: Mapping[str, Record]) -> dict[str, Any]:
    sides = {
        side: geometric([own[r["prompt"]][side]["tokens_per_second"] for r in theirs])
        for side in SIDES
    }
    best = max(SIDES, key=lambda side: sides[side] or 0.0)
    return {
        "tokens_per_second": geometric([r["tokens_per_second"] for r in theirs]),
        "ratio": geometric([_ratio(own[r["prompt"]][best], r) for r in theirs]),
        "ours": best if theirs else None,
        "ours_tokens_per_second": sides[best],
        "same": sum(bool(r["same_tokens"]) for r in theirs),
        "prompts": len(theirs),
    }


def _ratio(ours: Record, theirs: Record) -> float:
    """Ours over theirs: the median of the ratios within a repeat."""
    return median(b / a for a, b in zip(ours["tpot_s"], theirs["tpot_s"], strict=True))


def notes(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """What a reader of the table must know: answers that are not ours, ways that ended."""
    lines: list[str] = []
    for engine, mode in dict.fromkeys((row["engine"], row["mode"]) for row in found):
        of = [row for row in found if (row["engine"], row["mode"]) == (engine, mode)]
        if error := of[0]["error"]:
            lines.append(f"{engine} {mode}: {error}")
            continue
        same, prompts = (sum(row[name] for row in of) for name in ("same", "prompts"))
        if same < prompts:
            lines.append(
                f"{engine} {mode}: {prompts - same} of {prompts} answers are not ours token for "
                "token; other bits and kernels round otherwise, and near ties then fall otherwise"
            )
    return lines


def table(found: Sequence[Mapping[str, Any]], title: str) -> Table:
    """The rows, a column pair a category: tokens/s, and ours over theirs."""
    from rich.table import Table

    categories = list(dict.fromkeys(row["category"] for row in found))
    shown = Table("engine", "mode", title=title)
    for category in categories:
        shown.add_column(f"{category}, tokens/s", justify="right")
        shown.add_column("ours ÷ it", justify="right")
    cells = {(row["engine"], row["mode"], row["category"]): row for row in found}
    for engine, mode in dict.fromkeys((row["engine"], row["mode"]) for row in found):
        line: list[str] = []
        for category in categories:
            row = cells[engine, mode, category]
            ratio = row["ratio"]
            rate = row["tokens_per_second"]
            line += ["–", "–"] if ratio is None else [f"{rate:.1f}", f"{ratio:.2f}x"]
        shown.add_row(engine, mode, *line)
    best = {row["category"]: row for row in found if row["ours"]}
    if best:
        line = []
        for category in categories:
            row = best.get(category)
            line += [f"{row['ours_tokens_per_second']:.1f}", row["ours"]] if row else ["–", "–"]
        shown.add_section()
        shown.add_row("paceline", "its best", *line)
    return shown
