"""The README's figures and its table of speedups, from the records that are committed.

For every `results/*.jsonl` the figures go to `docs/figures/NAME-*.svg`; its rows go between
README's two marks, under the model, the machine and the commit on which they were measured.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline import PacelineError
from paceline.bench import plots, report_tables
from paceline.bench.findings import groups
from paceline.bench.recorded import Recorded, load

HERE = Path(__file__).parent
ROOT = HERE.parent
MARKS = ("<!-- bench -->", "<!-- /bench -->")


def about(path: Path, recorded: Recorded) -> str:
    """What was measured, where and when."""
    hardware = recorded.part("hardware")
    machine = str(hardware.get("gpu") or hardware.get("cpu") or "an unnamed machine")
    if hardware.get("threads"):
        machine += f", {hardware['threads']} threads"
    commit = recorded.word("commit") or "unknown"
    what = (
        f"`{recorded.word('model')}` ({recorded.word('dtype')}), `--draft {recorded.word('draft')}`"
    )
    when = recorded.word("date")[:10]
    return f"{what}, on {machine}; commit {commit}, {when} (`benchmarks/results/{path.name}`):"


def table(path: Path, recorded: Recorded) -> list[str]:
    """The lines of one record file: where from, then a row for each category."""
    head, body = report_tables.rates(groups(recorded))
    lines = [about(path, recorded), "", _row(head), "|---" * len(head) + "|"]
    lines += [_row(row) for row in body]
    if failed := len(recorded.failures):
        lines += ["", f"{failed} more measured nothing: they ended with an error."]
    return lines


def rewrite(readme: Path, lines: Sequence[str]) -> None:
    """Put the lines between README's two marks."""
    text = readme.read_text(encoding="utf-8")
    if any(text.count(mark) != 1 for mark in MARKS):
        raise PacelineError(f"{readme} needs {MARKS[0]} and {MARKS[1]}, once each")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    body = "\n".join(["", *lines, ""])
    readme.write_text(before + MARKS[0] + body + MARKS[1] + after, encoding="utf-8")


def main(args: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--figures", type=Path, default=ROOT / "docs" / "figures")
    parser.add_argument("--readme", type=Path, help="whose table to replace; else it is printed")
    parser.add_argument("--png", action="store_true", help="make PNGs, too")
    options = parser.parse_args(args)
    found = sorted(options.results.glob("*.jsonl"))
    if not found:
        raise PacelineError(f"no *.jsonl in {options.results}: run paceline bench --out there")
    lines: list[str] = []
    for path in found:
        made = plots.write(path, options.figures, png=options.png, prefix=f"{path.stem}-")
        print(f"{path.name}: {len(made)} figures", file=sys.stderr)
        lines += ["", *table(path, load(path))]
    if options.readme:
        rewrite(options.readme, lines[1:])
    else:
        print("\n".join(lines[1:]))


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PacelineError as error:
        sys.exit(f"readme-figures: {error}")
