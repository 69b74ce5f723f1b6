"""Ways to verify, on real pairs: τ, tokens a second, and what verification costs.

For each model all ways take turns on each prompt, with the same seeds: token by token, block, and
trees. Tokens a second count from behind the prompt. `verify_share` is everything in a round but the
draft and the target's pass (p, the rule, the commit) over T(1); sampled rows have top-p 0.95.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from answers import Run, pooled
from drafting import Bench

from drafters import prompts
from paceline import PacelineError
from paceline.build import check_window
from paceline.core.params import SamplingParams
from paceline.models.progress import rich_progress

MARKS = ("<!-- bench-verify -->", "<!-- /bench-verify -->")
PAIRS = {
    "qwen2.5-coder-1.5b": ("head:qwen2.5-coder-1.5b",),
    "smollm2-135m": ("self:skip=10",),
}
TEMPERATURES = (0.0, 0.6, 1.0)
TOP_P = 0.95
COLUMNS = ("model", "draft", "verify", "temperature", "k", "tau", "tokens_per_second",
           "verify_share")  # fmt: skip


@dataclass(frozen=True)
class Way:
    """A drafter as `Bench` knows it, and how its drafts are verified; `name`: in the table."""

    draft: str
    verify: str
    name: str
    k: int


def ways(draft: str, ks: Sequence[int], branches: int) -> list[Way]:
    """Token by token, block, and trees: grown by what pays, and of `branches` continuations."""
    each = [(draft, "rejection", "token"), (draft, "block", "block")]
    each.append((f"{draft}@nodes=auto", "auto", "tree, as it pays"))
    if not draft.startswith("head:"):
        each += [
            (f"{draft}@branches={branches}", rule, f"{branches} branches, {rule}")
            for rule in ("kseq", "specinfer")
        ]
    return [Way(name, verify, label, k) for name, verify, label in each for k in ks]


def measure(model: str, drafts: Sequence[str], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of one model, plain decoding first."""
    asked = prompts(options.prompts)
    with rich_progress(in_bytes=False) as (progress, note):
        texts = [prompt.text for prompt in asked]
        bench = Bench(model, "auto", texts, options.max_tokens, options.threads, progress, note)
        every = [Way("none", "rejection", "plain", 0)]
        for draft in drafts:
            try:
                found = ways(draft, options.ks, options.branches)
                for name in dict.fromkeys(way.draft for way in found):
                    bench.add(name)
                every += found
            except PacelineError as error:
                note(f"{draft} cannot be made: {error}")
        t1, _ = bench.costs([], options.ks[0], 9)
        runs: dict[tuple[Way, float], list[Run]] = defaultdict(list)
        done, total = 0, len(asked) * len(every) * len(options.temperatures)
        for i in range(len(asked)):
            for turn, temperature in enumerate(options.temperatures):
                params = SamplingParams(
                    temperature=temperature, top_p=TOP_P if temperature else 1.0, seed=i
                )
                first = (i + turn) % len(every)
                for way in every[first:] + every[:first]:
                    run = bench.answer(way.draft, way.k, i, params=params, verify=way.verify)
                    runs[way, temperature].append(run)
                    done += 1
                    progress(done, total, "answers")
    plain = {i: run.ids for i, run in enumerate(runs[every[0], 0.0])}
    for (way, temperature), found in runs.items():
        if not temperature and any(run.ids != plain[i] for i, run in enumerate(found)):
            raise PacelineError(f"{model} {way.name}: a greedy answer is not plain decoding's")
    return [
        row(model, way, temperature, runs[way, temperature], t1)
        for temperature in options.temperatures
        for way in every
    ]


def row(model: str, way: Way, temperature: float, runs: Sequence[Run], t1: float) -> dict[str, Any]:
    """The figures of one way at one temperature."""
    stats = pooled(run.stats for run in runs)
    return {
        "model": model,
        "draft": way.draft.partition("@")[0],
        "verify": way.name,
        "temperature": temperature,
        "k": way.k,
        "tau": stats.tau,
        "tokens_per_second": stats.emitted / sum(run.seconds for run in runs),
        "verify_share": median(
            run.stats.overhead_s / run.stats.rounds / t1 for run in runs if run.stats.rounds
        ),
    }


def cells(row: dict[str, Any]) -> list[str]:
    """One row of the table, under COLUMNS."""
    return [
        row["model"], row["draft"], row["verify"], f"{row['temperature']:g}", str(row["k"]),
        f"{row['tau']:.2f}", f"{row['tokens_per_second']:.1f}", f"{row['verify_share']:.1%}",
    ]  # fmt: skip


def table(rows: Sequence[dict[str, Any]]) -> None:
    """Print the rows."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(*COLUMNS)
    for found in rows:
        shown.add_row(*cells(found))
    Console(width=130).print(shown)


def rewrite(page: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Put the rows between the page's two marks."""
    text = page.read_text(encoding="utf-8")
    if any(text.count(mark) != 1 for mark in MARKS):
        raise PacelineError(f"{page} needs {MARKS[0]} and {MARKS[1]}, once each")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(cells(found)) + " |" for found in rows]
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    page.write_text(before + "\n".join([MARKS[0], *lines, MARKS[1]]) + after, encoding="utf-8")


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=list(PAIRS))
    parser.add_argument("--drafts", nargs="+", help="for all models; default: known pairs")
    parser.add_argument("--prompts", type=int, default=2, help="of each kind, at most")
    parser.add_argument("--max-tokens", type=int, default=48, help="of one answer")
    parser.add_argument("--ks", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--branches", type=int, default=3, help="continuations of a draft model")
    parser.add_argument("--temperatures", type=float, nargs="+", default=list(TEMPERATURES))
    parser.add_argument("--threads", type=int, help="CPU threads; one a core if not given")
    parser.add_argument("--json", type=Path, help="a file for what is also the last line of output")
    parser.add_argument("--page", type=Path, help="whose table to replace with the figures")
    options = parser.parse_args(args)
    if min(options.prompts, options.max_tokens, options.branches, *options.ks) < 1:
        parser.error("counts must be 1 or more")
    for k in options.ks:
        check_window(k)
    rows: list[dict[str, Any]] = []
    for model in options.models:
        drafts = options.drafts or PAIRS.get(model, ("lookup",))
        rows += measure(model, drafts, options)
    table(rows)
    result = json.dumps({"rows": rows}, ensure_ascii=False)
    if options.json:
        options.json.write_text(result + "\n", encoding="utf-8")
    if options.page:
        rewrite(options.page, rows)
    print(result)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PacelineError as error:
        sys.exit(f"bench-verify: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
