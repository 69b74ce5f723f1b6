"""`POST /v1/chat/completions`: a conversation and the assistant's answers to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from paceline.core.protocols import Grammar
from paceline.errors import PacelineError
from paceline.serve.errors import ApiError
from paceline.serve.sampling import Call, check_number, check_text
from paceline.serve.schema import (
    ChatRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    Message,
    NamedTool,
)
from paceline.serve.tokens import Names
from paceline.serve.writer import Writer, quote, reason
from paceline.text.chat import chat_ids
from paceline.text.completion import Completion, Token
from paceline.text.grammar import Grammars
from paceline.text.tokenizer import Tokenizer
from paceline.text.tools import ToolCall, ToolStream, parse, plain_messages, tool_grammar

if TYPE_CHECKING:
    from paceline.build import LLM


@dataclass(frozen=True)
class ChatPlan:
    """What a chat request comes to. `grammar` makes what the answer must match, None: anything.
    `calls`: tool calls are looked for in the answer."""

    ids: Sequence[int]
    max_tokens: int | None
    logprobs: int | None
    grammar: Callable[[Grammars], Grammar | None] | None
    calls: bool


def chat_plan(fields: ChatRequest, llm: LLM, most: int) -> ChatPlan:
    """Read a request. Raises ApiError for fields that do not go together and for a conversation
    that the model's template refuses."""
    check_number(1, fields.n or 1, most)
    logprobs = None
    if fields.logprobs:
        logprobs = fields.top_logprobs or 0
    elif fields.top_logprobs is not None:
        raise ApiError(400, "top_logprobs needs logprobs: true", param="top_logprobs")
    tools = _tools(fields, llm.tokenizer)
    grammar = _grammar(fields, tools)
    messages = [_message(message) for message in fields.messages]
    check_text("".join(message.get("content", "") for message in messages), llm)
    try:
        ids = chat_ids(llm.tokenizer, plain_messages(messages), tools=tools)
    except PacelineError as error:
        raise ApiError(400, str(error), param="messages") from None
    return ChatPlan(ids, _max_tokens(fields), logprobs, grammar, tools is not None)


class ChatWriter(Writer):
    """Writes the assistant's answers."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, call: Call, names: Names, calls: bool) -> None:
        super().__init__(call, names)
        self._calls = calls
        self._streams = [ToolStream() for _ in call.asks] if calls and call.stream else []
        self._called = [0] * len(call.asks)  # calls so far, by answer

    def opening(self) -> str:
        first = '"delta":{"role":"assistant","content":""}'
        answers = range(len(self.call.asks))
        return "".join(self.event(i, first, ',"logprobs":null') for i in answers)

    def chunk(self, index: int, tokens: Sequence[Token], drafted: Sequence[int]) -> str:
        text = "".join(token.text for token in tokens)
        if self._streams:
            deltas = self._deltas(index, self._streams[index].push(text))
        else:
            deltas = [f'"delta":{{"content":{quote(text)}}}'] if text else []
        if not deltas and not self.scored and not self.call.details:
            return ""
        first, *rest = deltas or ['"delta":{}']
        scores = quote(self.names.chat_logprobs(tokens)) if self.scored else "null"
        extra = f',"logprobs":{scores}{self.details(tokens, drafted)}'
        more = (self.event(index, delta, ',"logprobs":null') for delta in rest)
        return self.event(index, first, extra) + "".join(more)

    def ending(self, index: int, completion: Completion) -> str:
        rest = self._deltas(index, self._streams[index].finish()) if self._streams else []
        last = "".join(self.event(index, delta, ',"logprobs":null') for delta in rest)
        why = _reason(completion, self._called[index])
        return last + self.event(index, '"delta":{}', ',"logprobs":null', why)

    def choice(self, index: int, completion: Completion, drafted: Sequence[int]) -> dict[str, Any]:
        tokens = completion.tokens
        text, calls = parse(completion.text) if self._calls else (completion.text, [])
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text or None
            message["tool_calls"] = [_call(call) for call in calls]
        choice: dict[str, Any] = {
            "index": index,
            "message": message,
            "logprobs": self.names.chat_logprobs(tokens) if self.scored else None,
            "finish_reason": _reason(completion, len(calls)),
        }
        if self.call.details:
            choice["speculation"] = self.names.details(tokens, drafted)
        return choice

    def _deltas(self, index: int, found: Sequence[str | ToolCall]) -> list[str]:
        deltas: list[str] = []
        for part in found:
            if isinstance(part, str):
                deltas.append(f'"delta":{{"content":{quote(part)}}}')
            else:
                call = {"index": self._called[index], **_call(part)}
                deltas.append(f'"delta":{{"tool_calls":[{quote(call)}]}}')
                self._called[index] += 1
        return deltas


def _call(call: ToolCall) -> dict[str, Any]:
    return {
        "id": f"call_{token_hex(12)}",
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _reason(completion: Completion, calls: int) -> str:
    why = reason(completion)
    return "tool_calls" if calls and why == "stop" else why


def _max_tokens(fields: ChatRequest) -> int | None:
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise ApiError(
            400,
            f"max_tokens is {old} and max_completion_tokens is {new}: give one of them",
            param="max_completion_tokens",
        )
    return old if new is None else new


def _grammar(
    fields: ChatRequest, tools: list[dict[str, Any]] | None
) -> Callable[[Grammars], Grammar | None] | None:
    form, own = fields.response_format, fields.grammar
    json = isinstance(form, JsonObjectFormat | JsonSchemaFormat)
    if (own is not None) + json + (tools is not None) > 1:
        raise ApiError(
            400,
            "grammar, response_format and tools: only one of them can say what the answer is",
            param="response_format" if json else "grammar",
        )
    if own is not None:
        return lambda grammars: grammars.lark(own)
    if isinstance(form, JsonObjectFormat):
        return lambda grammars: grammars.json_object()
    if isinstance(form, JsonSchemaFormat):
        schema = form.json_schema.schema_
        return lambda grammars: grammars.json_schema(schema)
    if tools is None:
        return None
    choice = fields.tool_choice or "auto"
    chosen = choice.model_dump() if isinstance(choice, NamedTool) else choice
    parallel = fields.parallel_tool_calls is not False
    if chosen == "auto" and not parallel:
        raise ApiError(
            400,
            "parallel_tool_calls: false needs tool_choice required or a function's name",
            param="parallel_tool_calls",
        )
    return lambda grammars: tool_grammar(grammars, tools, chosen, parallel=parallel)


def _tools(fields: ChatRequest, tokenizer: Tokenizer) -> list[dict[str, Any]] | None:
    """The tools as templates want them; None: there are none to call."""
    choice = fields.tool_choice
    if not fields.tools:
        if choice not in (None, "none", "auto"):
            raise ApiError(400, "tool_choice needs tools", param="tool_choice")
        return None
    names = [tool.function.name for tool in fields.tools]
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise ApiError(
            400,
            f"tool_choice: there is no tool {choice.function.name!r}; known: {', '.join(names)}",
            param="tool_choice",
        )
    if choice == "none":
        return None
    if "tools" not in (tokenizer.chat_template or "tools"):
        raise ApiError(
            400, "tools: this model's chat template has no place for them", param="tools"
        )
    return [tool.model_dump(exclude_none=True) for tool in fields.tools]


def _message(message: Message) -> dict[str, Any]:
    """A message with its text in one piece."""
    plain = message.model_dump(exclude_none=True)
    if message.role == "developer":
        plain["role"] = "system"
    content = message.content
    if content is not None and not isinstance(content, str):
        plain["content"] = "".join(part.text for part in content)
    return plain
