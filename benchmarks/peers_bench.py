"""Paceline and other engines side by side: same file, prompts, lengths and threads, in turns.

In each turn a prompt is answered by both of our sides and by every mode of every peer, greedily.
Each peer runs in a process of its own, in the settings that a small search found best. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from paceline import LLM, PacelineError, SamplingParams
from paceline.bench.engine import Engines
from paceline.bench.measure import Spoilt
from paceline.bench.peers import ADAPTERS, installed
from paceline.bench.peers.beside import beside, job
from paceline.bench.peers.field import Field
from paceline.bench.peers.table import notes, rows, table
from paceline.bench.run import encode
from paceline.bench.suites import BUILTIN, suite
from paceline.models.progress import rich_progress

CATEGORIES = ("code", "edit", "chat")
LEAST = 5  # turns, for a median to mean something


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="qwen2.5-coder-1.5b")
    parser.add_argument("--draft", default="auto", help="of our speculative side")
    parser.add_argument("--peers", default=",".join(ADAPTERS), help="with commas between")
    parser.add_argument("--peer-draft", default="smollm2-135m", help="for modes with a draft model")
    parser.add_argument("--categories", nargs="*", default=list(CATEGORIES))
    parser.add_argument("--prompts", type=int, default=2, help="of each category")
    parser.add_argument("--turns", type=int, default=LEAST, help=f"at least {LEAST} to be quoted")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the records there, as JSON lines")
    options = parser.parse_args()
    try:
        installed(names := options.peers.split(","))
        with rich_progress(in_bytes=False) as (progress, note):
            run(options, names, progress, note)
    except (PacelineError, Spoilt) as error:
        sys.exit(f"error: {error}")


def run(options: argparse.Namespace, names: list[str], progress: Any, note: Any) -> None:
    llm = LLM(options.model, draft=options.draft, threads=options.threads, note=note)
    limit = options.prompts * len(options.categories)
    prompts = suite([BUILTIN], categories=options.categories, limit=limit)
    asked = [encode(llm.tokenizer, prompt.messages) for prompt in prompts]
    engines = Engines(llm, [{}])
    engines.warm_up(asked[0], progress)
    longest = max(map(len, asked)) + options.max_tokens
    draft = None if options.peer_draft in ("", llm.name) else options.peer_draft
    params = SamplingParams(max_tokens=options.max_tokens)
    ours: list[dict[str, Any]] = []
    theirs: list[dict[str, Any]] = []
    began = perf_counter()
    with Field.open(names, job(llm, options.threads, longest, draft), note) as field:
        print(f"paceline: {llm.name}, {llm.dtype}, draft {llm.draft}, {options.threads} threads")
        print("\n".join(field.card()), flush=True)
        note(f"{perf_counter() - began:.0f} s to load and set the peers")
        for number, (prompt, ids) in enumerate(zip(prompts, asked, strict=True)):
            progress(number, len(prompts), "prompts")
            of = {"run": "peers", "prompt": prompt.name, "category": prompt.category}
            plain, drafted, same, others = beside(
                engines.plain,
                engines.cells[0],
                field,
                {**of, "model": llm.name},
                ids,
                params,
                options.turns,
            )
            if not same:
                note(f"{prompt.name}: our own two answers differ")
            ours.append({"kind": "prompt", **of, "plain": plain, "speculative": drafted})
            theirs += others
        progress(len(prompts), len(prompts), "prompts")
    if options.out:
        lines = [json.dumps(record) + "\n" for record in [*ours, *theirs]]
        options.out.write_text("".join(lines), encoding="utf-8")
    found = rows(ours, theirs)
    show(found, llm.name, options)
    note(f"{perf_counter() - began:.0f} s in all")
    print(json.dumps({"rows": found}))


def show(found: list[dict[str, Any]], model: str, options: argparse.Namespace) -> None:
    """The table and what one must know to read it."""
    from rich.console import Console

    title = f"{model}, {options.threads} threads, medians of {options.turns} turns"
    Console(width=None if sys.stdout.isatty() else 120).print(table(found, title))
    for line in notes(found):
        print(line)


if __name__ == "__main__":
    main()
