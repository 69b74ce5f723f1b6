"""Tool calls in the style of Qwen and Hermes: JSON between tags in the answer's text.

    <tool_call>
    {"name": "weather", "arguments": {"city": "Paris"}}
    </tool_call>

Whitespace around a call belongs to it. What stands between the tags and is no call stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError, unknown

if TYPE_CHECKING:
    from paceline.text.grammar import After, Grammars, Text

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_BEGUN_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*\\?\Z')
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class ToolCall:
    """A call of the function `name`. `arguments`: a JSON object, as text."""

    name: str
    arguments: str


class ToolStream:
    """Finds the calls in a text while it comes: `push` its pieces, then `finish`. Both return, in
    order, the text that is certain to belong to no call, and the calls that are complete. What
    comes out does not depend on where the pieces are cut, but for the cuts in the text."""

    def __init__(self) -> None:
        self._held = ""
        self._behind = False  # nothing but whitespace has come since a call

    def push(self, text: str) -> list[str | ToolCall]:
        """What is certain now and was not returned before."""
        self._held += text
        return self._take(last=False)

    def finish(self) -> list[str | ToolCall]:
        """The rest: a call that never became complete is text."""
        return self._take(last=True)

    def _take(self, last: bool) -> list[str | ToolCall]:
        found: list[str | ToolCall] = []
        while True:
            at = self._held.find(OPEN)
            if at < 0:
                certain = len(self._held) if last else _certain(self._held)
                self._say(found, certain)
                return found
            end = _end_of_call(self._held, at)
            if end is None and not last:
                self._say(found, len(self._held[:at].rstrip()))
                return found
            call = _read(self._held[at + len(OPEN) : end]) if end is not None else None
            if call is None or end is None:
                self._say(found, at + len(OPEN))
                continue
            rest = self._held[end + len(CLOSE) :]
            self._say(found, len(self._held[:at].rstrip()))
            found.append(call)
            self._held, self._behind = rest, True

    def _say(self, found: list[str | ToolCall], count: int) -> None:
        """Put out the first `count` characters that are held."""
        text, self._held = self._held[:count], self._held[count:]
        if self._behind:
            text = text.lstrip()
            self._held = self._held if text else self._held.lstrip()
            self._behind = not text
        if text and found and isinstance(found[-1], str):
            found[-1] += text
        elif text:
            found.append(text)


def parse(text: str) -> tuple[str, list[ToolCall]]:
    """An answer's text without the calls in it, and the calls."""
    stream = ToolStream()
    parts = [*stream.push(text), *stream.finish()]
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return "".join(part for part in parts if isinstance(part, str)), calls


def tool_grammar(
    grammars: Grammars,
    tools: Sequence[Mapping[str, Any]],
    choice: str | Mapping[str, Any] = "auto",
    *,
    parallel: bool = True,
) -> Text | After | None:
    """What an output must match where `tools`, as OpenAI describes them, may be called: the
    arguments of every call are valid under the function's schema.

    `choice` "auto": free text, and calls wherever one begins; "required": one or more calls and
    nothing else (`parallel` False: one); a function's name, or {"type": "function", "function":
    {"name": …}}: one call of it; "none": no grammar, as without tools. Raises PacelineError: a tool
    or a choice that is none, an unknown function, a schema that cannot be used.
    """
    schemas = dict(_function(tool) for tool in tools)
    if choice == "none" or (choice == "auto" and not schemas):
        return None
    if not schemas:
        raise PacelineError(f"tool_choice {choice!r} needs tools: give at least one")
    if choice == "auto":
        return grammars.after(OPEN, grammars.lark(_lark("call", schemas)))
    if choice == "required":
        more = f' ("\\n{OPEN}" call)*' if parallel else ""
        return grammars.lark(_lark(f'"{OPEN}" call{more}', schemas))
    name = _chosen(choice)
    if name not in schemas:
        raise unknown("tool", name, schemas)
    return grammars.lark(_lark(f'"{OPEN}" call', {name: schemas[name]}))


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Messages as chat templates want them: the arguments of calls as objects, not as the text that
    OpenAI has them in, and an assistant's content that is null as "". Raises PacelineError for
    arguments that are no JSON object."""
    return [_plain(message) if isinstance(message, Mapping) else message for message in messages]


def _certain(text: str) -> int:
    """How many characters of a text without an opening tag cannot be part of a call."""
    begun = next(n for n in range(len(OPEN) - 1, -1, -1) if text.endswith(OPEN[:n]))
    return len(text[: len(text) - begun].rstrip())


def _end_of_call(text: str, at: int) -> int | None:
    """Where the closing tag stands that ends the call opened at `at`: the first one that is not in
    a JSON string."""
    start = at + len(OPEN)
    end = text.find(CLOSE, start)
    while end >= 0 and _BEGUN_STRING.search(_STRING.sub("", text[start:end])):
        end = text.find(CLOSE, end + 1)
    return end if end >= 0 else None


def _read(body: str) -> ToolCall | None:
    """The call that stands between two tags, None if it is none."""
    try:
        call = json.loads(body, parse_constant=_refuse)
        arguments = call.get("arguments", {}) if isinstance(call, dict) else None
        if isinstance(arguments, str):  # some models write them as text
            arguments = json.loads(arguments, parse_constant=_refuse)
        if not isinstance(arguments, dict) or not isinstance(call.get("name"), str):
            return None
        text = json.dumps(arguments, ensure_ascii=False)
        (call["name"] + text).encode()  # half a character cannot be sent on
    except (ValueError, RecursionError):
        return None
    return ToolCall(call["name"], text)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _function(tool: object) -> tuple[str, object]:
    """The name of a tool and the schema of its arguments."""
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise PacelineError(
            "a tool must be {'type': 'function', 'function': {'name': ..., 'parameters': ...}}"
        )
    name, schema = function["name"], function.get("parameters")
    if not _NAME.fullmatch(name):
        raise PacelineError(f"a tool's name must be 1 to 64 of a-z A-Z 0-9 _ - . and not {name!r}")
    return name, _NOTHING if schema is None else schema


def _chosen(choice: object) -> str:
    function = choice.get("function") if isinstance(choice, Mapping) else {"name": choice}
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        raise PacelineError(
            "tool_choice must be auto, none, required or "
            f"{{'type': 'function', 'function': {{'name': ...}}}}, not {choice!r}"
        )
    return name


def _lark(start: str, schemas: Mapping[str, object]) -> str:
    """A grammar of calls. Each schema stands alone, so that its "#/…" references stay its own."""
    from paceline.text.grammar import json_rule

    each = " | ".join(f"call_{i}" for i in range(len(schemas)))
    rules = [f"start: {start}", f'call: "\\n" ({each}) "\\n{CLOSE}"']
    for i, (name, schema) in enumerate(schemas.items()):
        head = json.dumps(f'{{"name": "{name}", "arguments": ')
        rules.append(f'call_{i}: {head} {json_rule(schema)} "}}"')
    return "\n".join(rules)


def _plain(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = message.get("tool_calls")
    plain = {key: value for key, value in message.items() if key != "tool_calls"}
    if message.get("role") == "assistant" and message.get("content") is None:
        plain["content"] = ""
    if not calls:
        return plain
    if not isinstance(calls, Sequence):
        raise PacelineError(f"tool_calls must be a list, not {calls!r}")
    return {**plain, "tool_calls": [_plain_call(call) for call in calls]}


def _plain_call(call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise PacelineError(
            "a tool call must be {'type': 'function', 'function': {'name': ..., 'arguments': ...}}"
        )
    arguments = function.get("arguments", {})
    try:
        arguments = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, Mapping):
        raise PacelineError("the arguments of a tool call must be a JSON object, as text")
    return {**call, "function": {**function, "arguments": arguments}}
