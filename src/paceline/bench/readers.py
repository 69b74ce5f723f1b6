"""Files of prompts by what they hold: nobody has to say of which kind a file is.

Each line (or item of a JSON array) is an object, recognised by its keys: "turns" (Spec-Bench,
MT-Bench), "conversations" (ShareGPT), "messages" (chats), "prompt" (HumanEval and plain files). A
file that begins with neither `{` nor `[`, or ends in .txt, has one prompt a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from paceline.bench.suites import Message, Prompt, user
from paceline.errors import PacelineError
from paceline.text.prompts import json_object, read_text

_NAMES = ("name", "question_id", "task_id", "id")
_ROLES = {"human": "user", "user": "user", "system": "system"}  # of ShareGPT; others answer
_OTHER = "other"  # the category of a prompt that has none

Raw = Mapping[str, Any]


class _Unlike(Exception):
    """What is wrong with an object, in words."""


def read(path: str | Path) -> list[Prompt]:
    """The prompts of a file, in order; of a conversation of several turns one each. Raises
    PacelineError, with file and line, for whatever is none, and for a file without prompts."""
    path = Path(path)
    prompts: dict[str, Prompt] = {}
    for number, raw in _objects(path, read_text(path).removeprefix("\ufeff")):
        try:
            read_one = next((read for key, read in _READERS.items() if key in raw), None)
            if read_one is None:
                raise _Unlike(f"has none of {', '.join(map(repr, _READERS))}")
            for prompt in read_one(raw, _name(raw, f"{path.name}:{number}"), _category(raw)):
                if prompt.name in prompts:
                    raise _Unlike(f"is called {prompt.name!r}, as another one is")
                prompts[prompt.name] = prompt
        except _Unlike as error:
            raise PacelineError(f"{path}:{number} {error}") from None
    if not prompts:
        raise PacelineError(f'{path} has no prompts: give one {{"prompt": "…"}} or text a line')
    return list(prompts.values())


def _objects(path: Path, text: str) -> Iterator[tuple[int, Raw]]:
    """The objects of a file and the lines on which they stand."""
    first = text.lstrip()[:1]
    if path.name.removesuffix(".gz").endswith(".txt") or first not in ("{", "["):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield number, {"prompt": line.strip()}
    elif first == "[":
        yield from _items(path, text)
    else:
        # not splitlines, which also splits where a string holds U+2028
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield number, json_object(path, number, line)


def _items(path: Path, text: str) -> Iterator[tuple[int, Raw]]:
    """The items of a JSON array, each with its own line."""
    try:
        json.loads(text)
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        raise PacelineError(f"{path}:{line} is not JSON: {error}") from None
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while True:
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        if text[at] == "]":
            return
        number = text.count("\n", 0, at) + 1
        raw, at = decoder.raw_decode(text, at)
        if not isinstance(raw, dict):
            raise PacelineError(f"{path}:{number} is no JSON object")
        yield number, raw


def _name(raw: Raw, default: str) -> str:
    for key in _NAMES:
        value = raw.get(key)
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return str(value)
    return default


def _category(raw: Raw) -> str | None:
    for key in ("category", "kind"):
        value = raw.get(key)
        if value is None:
            continue
        if not isinstance(value, str) or not value.strip():
            raise _Unlike(f"has a {key} that is no text: {value!r}")
        return value.strip()
    return None


def _turns(raw: Raw, name: str, category: str | None) -> list[Prompt]:
    turns = raw["turns"]
    if not isinstance(turns, list) or not turns:
        raise _Unlike('has no turns: "turns" must be a list of texts')
    names = [name, *(f"{name}.{turn}" for turn in range(2, len(turns) + 1))]
    return [
        Prompt(own, category or _OTHER, user(_text(turn, "turns")), before)
        for own, before, turn in zip(names, [None, *names], turns, strict=False)
    ]


def _conversations(raw: Raw, name: str, category: str | None) -> list[Prompt]:
    """What came before the first answer."""
    messages: list[Message] = []
    for each in _list(raw, "conversations"):
        role = _ROLES.get(str(each.get("from")))
        if role is None:
            break
        messages.append({"role": role, "content": _text(each.get("value"), "value")})
    return [_chat(messages, name, category, "conversations")]


def _messages(raw: Raw, name: str, category: str | None) -> list[Prompt]:
    """Without an answer that stands at the end."""
    messages: list[Message] = []
    for each in _list(raw, "messages"):
        role = each.get("role")
        if not isinstance(role, str) or not role:
            raise _Unlike('has a message without a "role"')
        messages.append({"role": role, "content": _text(each.get("content"), "content")})
    while messages and messages[-1]["role"] == "assistant":
        messages.pop()
    return [_chat(messages, name, category, "messages")]


def _prompt(raw: Raw, name: str, category: str | None) -> list[Prompt]:
    default = "code" if "task_id" in raw else _OTHER  # HumanEval's
    return [Prompt(name, category or default, user(_text(raw["prompt"], "prompt")))]


def _list(raw: Raw, key: str) -> list[Raw]:
    each = raw[key]
    if not isinstance(each, list) or not all(isinstance(one, dict) for one in each):
        raise _Unlike(f'has no {key}: "{key}" must be a list of objects')
    return each


def _chat(messages: list[Message], name: str, category: str | None, key: str) -> Prompt:
    if not any(message["role"] == "user" for message in messages):
        raise _Unlike(f'has no user\'s turn in "{key}"')
    return Prompt(name, category or ("chat" if key == "conversations" else _OTHER), messages)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise _Unlike(f'has a "{key}" without text: {str(value)[:40]!r}')
    return value


_READERS: dict[str, Callable[[Raw, str, str | None], list[Prompt]]] = {
    "turns": _turns,
    "conversations": _conversations,
    "messages": _messages,
    "prompt": _prompt,
}
