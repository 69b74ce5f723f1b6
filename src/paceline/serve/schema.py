"""What may be asked: every field, and nothing else. A field of OpenAI's that changes nothing here
is taken; one that would have to do something is refused by its name."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from paceline.build import MAX_K

Unsupported: TypeAlias = None  # the only value that such a field may have


def _few(value: Any) -> Any:
    """Else megabytes of nonsense would be as many errors."""
    if isinstance(value, dict) and len(value) > _MOST:
        raise ValueError(f"more than {_MOST} entries")
    return value


def _list(least: int = 1, most: int | None = None) -> Any:
    """A list's field; what is wrong with it is told up to the first entry that is."""
    return Field(min_length=least, max_length=most, fail_fast=True)


_MOST = 1024
Token = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[list[Token], _list()]
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
StopString = Annotated[str, Field(min_length=1)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Biases = Annotated[
    dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Bias],
    Field(max_length=_MOST),
    BeforeValidator(_few),
]
Metadata = Annotated[dict[str, str], Field(max_length=_MOST), BeforeValidator(_few)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Positive = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Strict(BaseModel):
    """Takes no unknown fields, no number in quotes, no NaN."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _few_fields(cls, value: Any) -> Any:
        return _few(value)


class StreamOptions(Strict):
    include_usage: bool | None = None


class Sampling(Strict):
    """The fields that both endpoints have; null is as good as left out."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: StopString | Annotated[list[StopString], _list(0, 16)] | None = None
    max_tokens: Positive | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: Biases | None = None

    top_k: Count | None = None
    min_p: Fraction | None = None
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    min_tokens: Count | None = None
    ignore_eos: bool | None = None
    stop_token_ids: Annotated[list[Token], _list(0, 128)] | None = None
    grammar: Annotated[str, Field(min_length=1)] | None = None
    num_speculative_tokens: Annotated[int, Field(ge=0, le=MAX_K)] | None = None
    draft: str | None = None
    verify: str | None = None
    speculation_details: bool | None = None

    user: str | None = None
    metadata: Metadata | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    store: Literal[False] | None = None
    service_tier: Literal["auto", "default"] | None = None


class CompletionRequest(Sampling):
    """`POST /v1/completions`. `logprobs`: report each token's, and those of so many others."""

    prompt: str | Ids | Annotated[list[str], _list()] | Annotated[list[Ids], _list()]
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    best_of: Unsupported = None
    suffix: Unsupported = None
    echo: Literal[False] | None = None


class TextPart(Strict):
    type: Literal["text"]
    text: str


Content = str | Annotated[list[TextPart], _list(1, 4096)]


class SystemMessage(Strict):
    role: Literal["system"]
    content: Content
    name: str | None = None


class DeveloperMessage(Strict):
    """The same as a system message: models know no other."""

    role: Literal["developer"]
    content: Content
    name: str | None = None


class UserMessage(Strict):
    role: Literal["user"]
    content: Content
    name: str | None = None


class CalledFunction(Strict):
    name: Name
    arguments: str


class ToolCall(Strict):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AssistantMessage(Strict):
    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: Annotated[list[ToolCall], _list(1, 128)] | None = None
    name: str | None = None
    refusal: Unsupported = None
    annotations: Annotated[list[Any], _list(0, 0)] | None = None
    audio: Unsupported = None
    function_call: Unsupported = None


class ToolMessage(Strict):
    role: Literal["tool"]
    content: Content
    tool_call_id: str
    name: str | None = None


Message = Annotated[
    SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage,
    Field(discriminator="role"),
]


class Function(Strict):
    name: Name
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    name: Name


class NamedTool(Strict):
    type: Literal["function"]
    function: NamedFunction


class TextFormat(Strict):
    type: Literal["text"]


class JsonObjectFormat(Strict):
    type: Literal["json_object"]


class JsonSchema(Strict):
    name: Name | None = None
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: JsonSchema


class ChatRequest(Sampling):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], _list(1, 4096)]
    max_completion_tokens: Positive | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: (
        Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")]
        | None
    ) = None
    tools: Annotated[list[Tool], _list(0, 128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None

    parallel_tool_calls: bool | None = None

    modalities: Annotated[list[Literal["text"]], _list(0, 1)] | None = None
    audio: Unsupported = None
    prediction: Unsupported = None
    reasoning_effort: Unsupported = None
    verbosity: Unsupported = None
    web_search_options: Unsupported = None
    functions: Unsupported = None
    function_call: Unsupported = None
