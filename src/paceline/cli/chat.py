"""`paceline chat`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paceline.cli import options as o
from paceline.cli.terminal import figures, lines, print_stream, say
from paceline.models.catalog import DEFAULT


def chat(
    model: o.Model = DEFAULT,
    draft: o.Draft = "auto",
    k: o.K = 8,
    window: o.Window = "adaptive",
    verify: o.Verify = "auto",
    lenience: o.Lenience = 1.0,
    deterministic: o.Deterministic = False,
    nodes: o.Nodes = None,
    branches: o.Branches = 1,
    draft_temperature: o.DraftTemperature = None,
    suffix_corpus: o.SuffixCorpus = None,
    temperature: o.Temperature = 0.0,
    top_p: o.TopP = 1.0,
    top_k: o.TopK = 0,
    min_p: o.MinP = 0.0,
    seed: o.Seed = None,
    max_tokens: o.MaxTokens = 1024,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    context: o.Context = None,
    threads: o.Threads = None,
    show: o.Show = False,
) -> None:
    """Talk to a model, line by line. /reset starts over, /exit or Ctrl-D leaves."""
    from paceline.build import LLM
    from paceline.core.params import SamplingParams
    from paceline.models.progress import rich_progress
    from paceline.text.repl import converse

    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
    )
    with rich_progress(in_bytes=False) as (progress, note):
        llm = LLM(
            model,
            draft=draft,
            k=k,
            window=window,
            verify=verify,
            lenience=lenience,
            deterministic=deterministic,
            nodes=nodes,
            branches=branches,
            draft_temperature=draft_temperature,
            suffix_corpus=suffix_corpus,
            dtype=dtype,
            device=device,
            context=context,
            threads=threads,
            progress=progress,
            note=note,
        )

    def answer(messages: list[dict[str, Any]]) -> str:
        stream = llm.stream(messages, params)
        print_stream(None, stream, show)
        say(figures(llm, stream.completion))
        return stream.completion.text

    converse(answer, lines(), system)
