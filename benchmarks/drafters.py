"""Every drafter on prompts that no head was trained on: what it needs and what it brings.

For each weight format, in a process of its own: memory, c (a draft step over T(1)), α and τ at
`--k`, and the speedup over plain decoding at the best K of `--ks`, on code, chat and edits. All
drafters take turns on each prompt, greedily, and every answer is held against plain decoding's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from answers import KINDS, Prompt, compare, figures, planned
from drafting import Bench

from paceline import PacelineError
from paceline.build import check_window
from paceline.models.catalog import DEFAULT
from paceline.models.progress import rich_progress

HERE = Path(__file__)
PROMPTS = HERE.with_name("drafters_prompts.jsonl")
MARKS = ("<!-- bench-drafters -->", "<!-- /bench-drafters -->")
NEEDS = {
    "model": "a smaller model",
    "self:int": "room for a copy",
    "self:skip=auto": "a search",
    "head": "a trained head",
}
COLUMNS = ("drafter", "needs", "dtype", "memory, GB", "c", "α", "τ code", "τ chat", "K",
           *KINDS, "worst prompt")  # fmt: skip


def defaults(model: str) -> list[str]:
    """One of every kind; of those with a bar between, the first that can be made."""
    return ["lookup:5", "suffix", "model:smollm2-135m", "self:int4", "self:skip=auto|self:skip=8",
            f"head:{model}", "auto"]  # fmt: skip


def prompts(count: int) -> list[Prompt]:
    """The first `count` prompts of each kind."""
    lines = map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines())
    each = [Prompt(line["kind"], line["prompt"]) for line in lines]
    return [p for kind in KINDS for p in [q for q in each if q.kind == kind][:count]]


def needs(draft: str) -> str:
    """What a user must have for it, beside the target."""
    if draft == "auto":
        return "nothing"
    parts = draft.split("+")
    found = (NEEDS[key] for part in parts for key in NEEDS if part.startswith(key))
    return ", ".join(found) or "nothing"


def make(bench: Bench, draft: str) -> tuple[str, str]:
    """The drafter that was made, and with "auto" resolved. Raises PacelineError if none can be."""
    *others, last = draft.split("|")
    for name in others:
        try:
            return name, bench.add(name)
        except PacelineError:
            pass  # what comes behind the bar is for this case
    return last, bench.add(last)


def unmade(draft: str, dtype: str, error: str) -> dict[str, Any]:
    """The row of a drafter that there is not."""
    row = {"drafter": draft, "needs": needs(draft), "dtype": dtype, "error": error}
    nothing = dict.fromkeys(("memory_gb", "c", "alpha", "tau", "k"))
    return row | nothing | {"speedup": dict.fromkeys(KINDS)}


def measure(options: argparse.Namespace, dtype: str) -> dict[str, Any]:
    """The rows of one weight format, plain decoding first."""
    asked = prompts(options.prompts)
    began = perf_counter()
    with rich_progress(in_bytes=False) as (progress, note):
        texts = [prompt.text for prompt in asked]
        bench = Bench(
            options.model, dtype, texts, options.max_tokens, options.threads, progress, note
        )
        made: dict[str, str] = {}
        failed: list[dict[str, Any]] = []
        for draft in options.drafts or defaults(options.model):
            try:
                name, resolved = make(bench, draft)
                made[name] = resolved
            except PacelineError as error:
                failed.append(unmade(draft, bench.dtype, str(error)))
                note(f"{draft} cannot be made: {error}")
        drafts = list(made)
        t1, c = bench.costs(drafts, options.k, options.repeats)
        count = planned(asked, drafts, options.k, options.ks)
        minutes = count * options.max_tokens * t1 / 60
        note(f"{options.model} {bench.dtype}: {count} answers, in about {minutes:.0f} minutes")
        runs, best = compare(bench.answer, asked, drafts, options.k, options.ks, progress)
    plain = runs["none", 0].values()
    tokens, seconds = sum(len(run.ids) for run in plain), sum(run.seconds for run in plain)
    rows: list[dict[str, Any]] = [
        {
            "drafter": "none", "resolved": "none", "needs": "nothing", "dtype": bench.dtype,
            "memory_gb": 0.0, "c": None, "alpha": None, "tau": 1.0,
            "tau_by_kind": dict.fromkeys(KINDS, 1.0), "k": 0,
            "speedup": dict.fromkeys(KINDS, 1.0), "least": {"kind": 1.0, "prompt": 1.0},
        }
    ]  # fmt: skip
    for draft, resolved in made.items():
        row = {"drafter": draft, "resolved": resolved, "needs": needs(draft), "dtype": bench.dtype}
        grown = bench.memory[draft]
        row |= {"memory_gb": None if grown is None else grown / 1e9, "c": c[draft]}
        row |= figures(draft, runs, asked, options.k, best[draft])
        if row["differing"]:
            row["error"] = (
                f"{row['differing']} of {row['answers']} answers are not plain decoding's"
            )
        rows.append(row)
    run = {
        "dtype": bench.dtype, "t1_ms": t1 * 1e3, "plain_tps": tokens / seconds,
        "prompts": {kind: sum(p.kind == kind for p in asked) for kind in KINDS},
        "max_tokens": options.max_tokens, "k": options.k, "ks": options.ks,
        "seconds": perf_counter() - began,
    }  # fmt: skip
    return {"model": options.model, "run": run, "rows": rows + failed}


def cells(row: dict[str, Any]) -> list[str]:
    """One row of the table, under COLUMNS; what went wrong in the place of figures."""
    if "error" in row:
        return [row["drafter"], row["error"], row["dtype"], *[""] * (len(COLUMNS) - 3)]

    def number(value: float | None, places: int = 2, unit: str = "") -> str:
        return "-" if value is None else f"{value:.{places}f}{unit}"

    tau = row["tau_by_kind"]
    return [
        row["drafter"], row["needs"], row["dtype"], number(row["memory_gb"]), number(row["c"], 3),
        number(row["alpha"]), number(tau.get("code")), number(tau.get("chat")), str(row["k"]),
        *(number(row["speedup"].get(kind), 2, "x") for kind in KINDS),
        number(row["least"]["prompt"], 2, "x"),
    ]  # fmt: skip


def table(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(*COLUMNS, title=title)
    for column in shown.columns[3:]:
        column.justify = "right"
    for row in rows:
        shown.add_row(*cells(row))
    Console(width=150).print(shown)


def rewrite(readme: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Put the rows between README's two marks."""
    text = readme.read_text(encoding="utf-8")
    if any(text.count(mark) != 1 for mark in MARKS):
        raise PacelineError(f"{readme} needs {MARKS[0]} and {MARKS[1]}, once each")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(x.replace("|", " or ") for x in cells(row)) + " |" for row in rows]
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    body = "\n".join(["", *lines, ""])
    readme.write_text(before + MARKS[0] + body + MARKS[1] + after, encoding="utf-8")


def parse(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--dtype", nargs="+", default=["native", "fp16"])
    parser.add_argument("--drafts", nargs="+", help="a bar in a name: the first that can be made")
    parser.add_argument("--prompts", type=int, default=5, help="of each kind, at most")
    parser.add_argument("--max-tokens", type=int, default=64, help="of one answer")
    parser.add_argument("--repeats", type=int, default=9, help="places where c is timed")
    parser.add_argument("--k", type=int, default=4, help="at which α and τ are quoted")
    parser.add_argument("--ks", type=int, nargs="+", default=[4], help="to choose from")
    parser.add_argument("--threads", type=int, help="CPU threads; one a core if not given")
    parser.add_argument("--json", type=Path, help="a file for what is also the last line of output")
    parser.add_argument("--readme", type=Path, help="whose table to replace with the figures")
    parser.add_argument("--one", metavar="DTYPE", help=argparse.SUPPRESS)
    options = parser.parse_args(args)
    least = min(options.prompts, options.max_tokens, options.repeats, options.k, *options.ks)
    if least < 1:
        parser.error("counts must be 1 or more")
    for k in (options.k, *options.ks):
        check_window(k)
    return options


def main(args: Sequence[str]) -> int:
    """1 if some answer was not plain decoding's."""
    options = parse(args)
    if options.one:
        print(json.dumps(measure(options, options.one)))
        return 0
    rows: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for dtype in options.dtype:
        print(f"measuring {options.model} {dtype} …", file=sys.stderr, flush=True)
        out = subprocess.run(
            [sys.executable, str(HERE), *args, "--one", dtype], stdout=subprocess.PIPE, text=True
        )
        if out.returncode:
            return out.returncode  # it has said why
        found = json.loads(out.stdout.splitlines()[-1])
        table(f"{options.model} {dtype}", found["rows"])
        rows += found["rows"]
        runs.append(found["run"])
    result = json.dumps({"model": options.model, "runs": runs, "rows": rows}, ensure_ascii=False)
    if options.json:
        options.json.write_text(result + "\n", encoding="utf-8")
    if options.readme:
        rewrite(options.readme, rows)
    print(result)
    return int(any(row.get("differing") for row in rows))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PacelineError as error:
        sys.exit(f"bench-drafters: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
