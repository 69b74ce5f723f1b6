"""A conversation, line by line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Answer = Callable[[list[dict[str, Any]]], str]


def converse(answer: Answer, lines: Iterator[str], system: str | None = None) -> None:
    """Answer each of `lines` with `answer(messages)`, which shows and returns the assistant's text.

    "/reset" forgets the conversation, "/exit" ends it, as the end of `lines` does. Ctrl-C while an
    answer is made drops that answer and its question; while waiting for a line it is raised.
    """
    opening: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages = list(opening)
    for line in lines:
        text = line.strip()
        if text == "/exit":
            return
        if text == "/reset":
            messages = list(opening)
        if not text or text == "/reset":
            continue
        asked = [*messages, {"role": "user", "content": text}]
        try:
            said = answer(asked)
        except KeyboardInterrupt:
            continue
        messages = [*asked, {"role": "assistant", "content": said}]
