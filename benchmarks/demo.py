"""One edit prompt and one chat prompt, each without and with speculation; then a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from prompts import CHAT, EDIT
from rich.console import Console
from rich.table import Table

from paceline import LLM, Completion, PacelineError, SamplingParams
from paceline.models.catalog import DEFAULT
from paceline.models.progress import rich_progress


def tell(llm: LLM, prompt: str, params: SamplingParams) -> Completion:
    """Generate, printing the text as it comes."""
    stream = llm.stream(prompt, params)
    for piece in stream:
        print(piece.text, end="", flush=True)
    print("\n")
    return stream.completion


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=256)
    options = parser.parse_args(args)
    console = Console()
    with rich_progress(in_bytes=False) as (progress, note):
        fast = LLM(
            options.model, draft=options.draft, dtype=options.dtype, progress=progress, note=note
        )
    plain = fast.with_draft("none")
    params = SamplingParams(max_tokens=options.tokens)
    for llm in (plain, fast):  # first calls pay for what later ones find ready
        llm.generate("Hi", SamplingParams(max_tokens=8))

    table = Table("prompt", "plain", f"draft {fast.draft}", "speedup", "τ", "α", "same tokens")
    for name, prompt in (("edit", EDIT), ("chat", CHAT)):
        results: list[Completion] = []
        for llm in (plain, fast):
            how = f"draft {llm.draft}"
            console.rule(f"{name} prompt, {options.model} {llm.dtype}, {how}", style="dim")
            results.append(tell(llm, prompt, params))
        before, after = results
        rates = [done.stats.tokens_per_second for done in results]
        alpha = after.stats.alpha
        table.add_row(
            name,
            f"{rates[0]:.1f} tokens/s",
            f"{rates[1]:.1f} tokens/s",
            f"{rates[1] / rates[0]:.2f}x",
            f"{after.stats.tau:.2f}",
            "-" if alpha is None else f"{alpha:.2f}",
            "yes" if before.token_ids == after.token_ids else "NO",
        )
    console.print(table)


if __name__ == "__main__":
    try:
        main()
    except PacelineError as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
