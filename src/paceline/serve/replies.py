"""The shapes of what is answered, for the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Reason = Literal["stop", "length", "tool_calls", "time_limit"]


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ErrorDetail(Shape):
    message: str
    type: str
    param: str | None
    code: str | None


class Error(Shape):
    error: ErrorDetail


class Speculation(Shape):
    """`tau`, `alpha`: null where nothing was drafted."""

    rounds: int
    drafted: int
    accepted: int
    tau: float | None
    alpha: float | None
    lossless: bool


class Usage(Shape):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    speculation: Speculation


class Making(Shape):
    text: str
    origin: Literal["accepted", "recovered", "bonus", "plain"]
    p: float | None
    q: float | None
    proposed: str | None


class Details(Shape):
    """How the tokens of a choice were made. `drafted`: a number a round."""

    drafted: list[int]
    tokens: list[Making]


class TextLogprobs(Shape):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class TextChoice(Shape):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason
    speculation: Details | None = None


class TextCompletion(Shape):
    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: None
    choices: list[TextChoice]
    usage: Usage


class Score(Shape):
    token: str
    logprob: float
    bytes: list[int] | None


class TokenScore(Score):
    top_logprobs: list[Score]


class ChatLogprobs(Shape):
    content: list[TokenScore]
    refusal: None


class FunctionCall(Shape):
    name: str
    arguments: str


class Call(Shape):
    id: str
    type: Literal["function"]
    function: FunctionCall


class AnswerMessage(Shape):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    tool_calls: list[Call] | None = None


class ChatChoice(Shape):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason
    speculation: Details | None = None


class ChatCompletion(Shape):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: None
    choices: list[ChatChoice]
    usage: Usage


class ModelCard(Shape):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(Shape):
    object: Literal["list"]
    data: list[ModelCard]


class Health(Shape):
    status: Literal["ok"]


class Status(Shape):
    model: str
    dtype: str
    context: int
    slots: int
    queue: int
    running: int
    waiting: int
    drafts: list[str]
    draft: str
    verifiers: list[str]
    k: int
    plain_tokens_per_second: float
    lossless: bool


def documented(model: type[BaseModel], **more: Any) -> dict[int | str, dict[str, Any]]:
    """The `responses` of an endpoint that answers with `model`, or else with an error."""
    errors: dict[int | str, dict[str, Any]] = {
        kind: {"model": Error, "description": "An error in OpenAI's shape"}
        for kind in ("4XX", "5XX")
    }
    return {200: {"model": model, "description": "The answer", **more}, **errors}
