"""`paceline distill skip`."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.distill import options as d
from paceline.cli.terminal import say
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT


def skip(
    model: o.Model = DEFAULT,
    prompts: d.Prompts = None,
    layers: Annotated[
        int | None, typer.Option(help="How many to leave out; default: as many as pay.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", help="Tokens of each answer that count, at most.")
    ] = 32,
    seed: Annotated[int, typer.Option(help="Same seed and settings, same search.")] = 0,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Search for the layers that a model misses least, for --draft self:skip=auto."""
    from paceline.build import LLM
    from paceline.build.self_drafts import fingerprint
    from paceline.distill.skip import PROMPTS, find
    from paceline.models.progress import rich_progress
    from paceline.models.pull import resolve
    from paceline.models.skip import Skip, save_skip, saved_skip
    from paceline.text.prompts import read_prompts

    if max_tokens < 1:
        raise PacelineError(f"--max-tokens must be at least 1, not {max_tokens}")
    texts = PROMPTS if prompts is None else [p.text for p in read_prompts(prompts)]
    best: Skip | None = None
    try:
        with rich_progress(in_bytes=False) as (progress, note):
            llm = LLM(
                model,
                draft="lookup",
                dtype=dtype,
                device=device,
                threads=threads,
                progress=progress,
                note=note,
            )
            key = fingerprint(resolve(model))
            known = saved_skip(key)
            for best in find(llm, texts, layers, max_tokens, known, seed, progress):
                path = save_skip(key, best)  # at once: what is killed keeps its best so far
    except KeyboardInterrupt:
        if best is not None:
            say(f"stopped; the best so far, without {_list(best.dropped)}, is kept")
        raise typer.Exit(130) from None
    assert best is not None  # the first set is better than none
    if as_json:
        print(json.dumps({"model": model, **asdict(best), "file": str(path)}))
        return
    print(f"without {_list(best.dropped)} of {best.layers}: α {best.alpha:.2f}, c {best.c:.2f}")
    print(f"predicted: at best {best.speedup:.2f} times as fast, at K = {best.k}")
    if best.speedup <= 1:
        print("it does not pay for this model here: another draft will do better")
    print(f"--model {model} --draft self:skip=auto --k {best.k}")


def _list(layers: list[int]) -> str:
    return f"layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
