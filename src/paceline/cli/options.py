"""The options that commands share, each written down once."""

from __future__ import annotations

from typing import Annotated

import typer

Model = Annotated[
    str, typer.Option("--model", "-m", help="Catalog name, hub id, folder or .gguf file.")
]
Draft = Annotated[
    str,
    typer.Option(
        help="auto, none, lookup[:N], suffix, model:NAME, self:int4, self:int8, self:skip=N, "
        "head:DIR_OR_ID, or A+B."
    ),
]
SuffixCorpus = Annotated[
    str | None,
    typer.Option(help="File that keeps outputs from call to call, for --draft suffix."),
]
K = Annotated[
    int,
    typer.Option(
        "--k",
        "--num-speculative-tokens",
        "--num-assistant-tokens",
        help="Drafted tokens a round, at most; 0 is plain decoding.",
    ),
]
Window = Annotated[
    str,
    typer.Option(
        help="How K is chosen: adaptive (what pays), fixed, heuristic, confidence, adaedl or svip."
    ),
]
Verify = Annotated[
    str,
    typer.Option(help="auto, rejection, block, kseq, specinfer (for trees), or typical (lossy)."),
]
Lenience = Annotated[
    float, typer.Option(help="Accept with p/(l q); below 1 it is lossy and says so.")
]
Deterministic = Annotated[
    bool,
    typer.Option(
        "--deterministic", help="Same tokens on every run, whatever drafts, at any temperature."
    ),
]
Nodes = Annotated[
    str | None,
    typer.Option(help="Draft trees of so many tokens, or auto: as many as pay on this machine."),
]
Branches = Annotated[
    int, typer.Option(help="Continuations of a draft model, verified as one tree.")
]
DraftTemperature = Annotated[
    float | None, typer.Option(help="At which a draft model draws; default: --temperature.")
]
Temperature = Annotated[float, typer.Option("--temperature", "-t", help="0 is greedy.")]
TopP = Annotated[float, typer.Option(help="Nucleus sampling.")]
TopK = Annotated[int, typer.Option(help="0 is off.")]
MinP = Annotated[float, typer.Option(help="Share of the likeliest token's probability.")]
RepetitionPenalty = Annotated[float, typer.Option(help="On prompt and output; 1 is off.")]
FrequencyPenalty = Annotated[float, typer.Option(help="On output, by count.")]
PresencePenalty = Annotated[float, typer.Option(help="On output, once.")]
LogitBias = Annotated[
    list[str] | None, typer.Option(help="ID:BIAS, added to a token's logit; repeatable.")
]
MinTokens = Annotated[int, typer.Option(help="No end token before so many.")]
IgnoreEos = Annotated[bool, typer.Option("--ignore-eos", help="Go on past the model's end.")]
Seed = Annotated[int | None, typer.Option(help="Same seed and settings, same output.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", "-n", help="At most so many new tokens.")]
Stop = Annotated[list[str] | None, typer.Option(help="String that ends the text; repeatable.")]
JsonSchema = Annotated[
    str | None, typer.Option(metavar="FILE", help="A JSON schema that the answer is valid under.")
]
Grammar = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A Lark grammar (llguidance's dialect) that it matches."),
]
Dtype = Annotated[
    str, typer.Option(help="auto, native (a GGUF file's own), int4, int8, fp16, bf16 or fp32.")
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Context = Annotated[int | None, typer.Option(help="Most tokens of prompt and output together.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads.")]
Show = Annotated[
    bool,
    typer.Option("--show", help="Colour tokens: accepted green, recovered yellow, bonus cyan."),
]
