"""From a request's fields to what the engine takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paceline.build.verify import VERIFIERS
from paceline.core.params import SamplingParams
from paceline.core.protocols import Grammar
from paceline.serve.errors import ApiError
from paceline.serve.schema import Sampling

if TYPE_CHECKING:
    from paceline.build import LLM

Ask = tuple[Sequence[int], SamplingParams]
_BAN = -100  # a bias that leaves a token no chance
_CHARACTERS = 16  # a token, in text that nobody doubts
_MARGIN = 16  # tokens that a cut may add


@dataclass(frozen=True)
class Call:
    """One HTTP request, ready to run. `asks`: what the engine is asked, an answer each, those of
    one prompt side by side, `n` for each prompt. `stream`, `usage`: whether it is streamed, and
    its usage at the end of that. `details`: how each token was made is told."""

    asks: Sequence[Ask]
    n: int
    model: str
    stream: bool
    usage: bool
    details: bool

    @property
    def masked(self) -> bool:
        """Whether the request forbids tokens, and so may forbid them all."""
        params = self.asks[0][1]
        banned = any(bias == -math.inf for bias in params.logit_bias.values())
        return bool(banned or params.min_tokens or params.grammar)


def make_call(
    fields: Sampling,
    llm: LLM,
    model: str,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int | None,
    logprobs: int | None,
    grammar: Grammar | None,
) -> Call:
    """The call that `fields` ask for. Answer i has the seed of the request plus i. Raises ApiError,
    naming the field."""
    n = fields.n or 1
    for ids in prompts:
        check_prompt(ids, llm)
    _check_names(fields, llm)
    params = SamplingParams(
        max_tokens=max_tokens,
        temperature=_or(fields.temperature, 1.0),
        top_k=fields.top_k or 0,
        top_p=_or(fields.top_p, 1.0),
        min_p=fields.min_p or 0.0,
        repetition_penalty=_or(fields.repetition_penalty, 1.0),
        frequency_penalty=fields.frequency_penalty or 0.0,
        presence_penalty=fields.presence_penalty or 0.0,
        logit_bias=_biases(fields, llm),
        min_tokens=fields.min_tokens or 0,
        ignore_eos=bool(fields.ignore_eos),
        stop=fields.stop or (),
        stop_token_ids=fields.stop_token_ids or (),
        seed=fields.seed,
        logprobs=logprobs,
        grammar=grammar,
        k=fields.num_speculative_tokens,
        draft=fields.draft,
        verify=fields.verify,
        trace=bool(fields.speculation_details),
    )
    asks = [(ids, params) for ids in prompts for _ in range(n)]
    if (seed := fields.seed) is not None:
        asks = [(ids, replace(params, seed=seed + i)) for i, (ids, _) in enumerate(asks)]
    usage = fields.stream_options is not None and bool(fields.stream_options.include_usage)
    return Call(asks, n, model, bool(fields.stream), usage, params.trace)


def check_model(fields: Sampling, served: str) -> None:
    """Raise ApiError unless the request is for the model that is served, or for any."""
    if fields.model is not None and fields.model != served:
        raise ApiError(
            404,
            f"there is no model {fields.model!r} here; this server has {served!r}",
            param="model",
            code="model_not_found",
        )
    if fields.stream_options is not None and not fields.stream:
        raise ApiError(400, "stream_options is for stream: true", param="stream_options")


def check_number(prompts: int, n: int, most: int) -> None:
    """Raise ApiError if `n` answers to so many prompts are more than there ever is room for."""
    if n * prompts > most:
        what = f"{prompts} prompts, {n} answers each" if prompts > 1 else f"{n} answers"
        raise ApiError(
            400,
            f"n: {what}, and this server takes at most {most} at once",
            param="n" if n > 1 else "prompt",
        )


def check_text(text: str, llm: LLM) -> None:
    """Raise ApiError for a text that is so long that to make tokens of all of it would be a waste
    of memory."""
    start = text[: _CHARACTERS * llm.context]
    if len(start) == len(text):
        return
    count = len(llm.tokenizer.encode(start))
    if count > llm.context + _MARGIN:
        raise _too_long(f"more than {count}", llm)


def check_prompt(ids: Sequence[int], llm: LLM) -> None:
    """Raise ApiError for a prompt that the model cannot read."""
    if len(ids) >= llm.context:
        raise _too_long(str(len(ids)), llm)
    if ids and max(ids) >= llm.tokenizer.size:
        raise ApiError(400, f"prompt: there is no token {max(ids)}", param="prompt")


def _too_long(count: str, llm: LLM) -> ApiError:
    return ApiError(
        400,
        f"the prompt has {count} tokens and the context holds {llm.context}: "
        f"shorten it to at most {llm.context - 1}",
        code="context_length_exceeded",
    )


def _check_names(fields: Sampling, llm: LLM) -> None:
    for name, value, known in (
        ("draft", fields.draft, llm.drafts),
        ("verify", fields.verify, VERIFIERS),
    ):
        if value is not None and value not in known:
            raise ApiError(400, f"{name}: unknown {value!r}; known: {', '.join(known)}", param=name)


def _biases(fields: Sampling, llm: LLM) -> dict[int, float]:
    biases = {int(token): bias for token, bias in (fields.logit_bias or {}).items()}
    if biases and max(biases) >= llm.tokenizer.size:
        raise ApiError(400, f"logit_bias: there is no token {max(biases)}", param="logit_bias")
    return {token: -math.inf if bias == _BAN else bias for token, bias in biases.items()}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
