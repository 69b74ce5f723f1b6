"""`paceline generate`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options as o
from paceline.cli.errors import Failed
from paceline.cli.terminal import figures, print_stream, say, stdin
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT
from paceline.models.store import packed_folder

if TYPE_CHECKING:
    from paceline.build import LLM
    from paceline.core.protocols import Grammar
    from paceline.text.completion import Completion, Piece
    from paceline.text.tokenizer import Tokenizer


def generate(
    prompt: Annotated[str, typer.Argument(help="The prompt; - or nothing reads stdin.")] = "-",
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
    repetition_penalty: o.RepetitionPenalty = 1.0,
    frequency_penalty: o.FrequencyPenalty = 0.0,
    presence_penalty: o.PresencePenalty = 0.0,
    logit_bias: o.LogitBias = None,
    min_tokens: o.MinTokens = 0,
    ignore_eos: o.IgnoreEos = False,
    seed: o.Seed = None,
    max_tokens: o.MaxTokens = 256,
    stop: o.Stop = None,
    json_schema: o.JsonSchema = None,
    grammar: o.Grammar = None,
    logprobs: Annotated[
        int | None, typer.Option(help="With --json: each token's logprob and the N likeliest.")
    ] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Without the model's chat template.")] = False,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    context: o.Context = None,
    threads: o.Threads = None,
    show: o.Show = False,
    trace: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write down each round, and the prompt, for paceline trace FILE.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Answer one prompt, streamed, with a line of figures on stderr."""
    from paceline.build import LLM
    from paceline.cli.recording import check_path, recorded
    from paceline.core.params import SamplingParams
    from paceline.models.progress import rich_progress
    from paceline.text.decisions import Verifying

    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty,
        presence_penalty=presence_penalty,
        logit_bias=_biases(logit_bias or ()),
        min_tokens=min_tokens,
        ignore_eos=ignore_eos,
        seed=seed,
        stop=tuple(stop or ()),
        logprobs=logprobs,
    )
    text = stdin() if prompt == "-" else prompt
    if not text:
        raise PacelineError("the prompt is empty: give some text")
    if trace is not None:
        check_path(trace)
    constrain = _constraint(json_schema, grammar)
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
        if constrain is not None:
            params = replace(params, grammar=constrain(llm.tokenizer))
        chat = False if raw else None
        stream = llm.stream(text, params, chat=chat, rounds=trace is not None)
        pieces: Iterator[Piece] = stream
        if trace is not None:
            how = Verifying(verify, lenience, deterministic)
            pieces = recorded(trace, llm, stream, text, params, how, window)
        first = next(pieces, None)  # the prompt is read here, with a bar if it is long
    if as_json:
        for _ in pieces:
            pass
        print(json.dumps(_report(llm, stream.completion), ensure_ascii=False))
    else:
        print_stream(first, pieces, show)
        say(figures(llm, stream.completion))
    if stream.completion.finish_reason == "error":
        if params.grammar is not None:
            raise Failed("the grammar leaves nothing to say, or is too complex: loosen it")
        raise Failed(
            "the model's scores are not numbers (NaN): the weights are bad, or their packed copy; "
            f"if the model's own files are sound, delete {packed_folder()}"
        )


def _report(llm: LLM, done: Completion) -> dict[str, Any]:
    report: dict[str, Any] = {
        "model": llm.name,
        "draft": llm.draft,
        "dtype": llm.dtype,
        "text": done.text,
        "token_ids": done.token_ids,
        "finish_reason": done.finish_reason,
        "usage": done.usage,
        "stats": done.stats.to_dict(),
    }
    if done.logprobs is not None:
        report["logprobs"] = [{"logprob": t.logprob, "top": t.top} for t in done.tokens]
    return report


def _constraint(
    json_schema: str | None, grammar: str | None
) -> Callable[[Tokenizer], Grammar] | None:
    """What makes the grammar that the files ask for; they are read at once."""
    if json_schema is not None and grammar is not None:
        raise PacelineError("give --json-schema or --grammar, not both")
    if json_schema is not None:
        return partial(_schema_grammar, _json(json_schema))
    return None if grammar is None else partial(_lark_grammar, _read(grammar))


def _schema_grammar(schema: Mapping[str, Any], tokenizer: Tokenizer) -> Grammar:
    from paceline.text.grammar import Grammars

    return Grammars(tokenizer).json_schema(schema)


def _lark_grammar(lark: str, tokenizer: Tokenizer) -> Grammar:
    from paceline.text.grammar import Grammars

    return Grammars(tokenizer).lark(lark)


def _json(path: str) -> dict[str, Any]:
    try:
        schema = json.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise PacelineError(f"{path} is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise PacelineError(f"{path} is no JSON schema: it must hold a JSON object")
    return schema


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PacelineError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise PacelineError(f"{path} is not text in UTF-8") from None


def _biases(pairs: list[str] | tuple[str, ...]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for pair in pairs:
        token, _, bias = pair.partition(":")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise PacelineError(f"--logit-bias must be ID:BIAS, not {pair!r}") from None
    return biases
