"""What the answers of the two endpoints share: their frame as one document and as events."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from secrets import token_hex
from time import time
from typing import Any

from paceline.serve.errors import ApiError, not_ready
from paceline.serve.sampling import Call
from paceline.serve.tokens import Names, usage
from paceline.text.completion import Completion, Token

DONE = "data: [DONE]\n\n"
_REASONS = {"time": "time_limit"}  # where HTTP says it otherwise
quote = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class Writer(ABC):
    """Writes the answers to one request. Events are built by hand around the text: this is what a
    streamed token costs."""

    prefix: str  # of the id
    kind: str  # of the whole
    chunk_kind: str

    def __init__(self, call: Call, names: Names) -> None:
        self.call, self.names = call, names
        self.scored = call.asks[0][1].logprobs is not None
        self.id, self._created = f"{self.prefix}-{token_hex(16)}", int(time())
        rest = ',"usage":null' if call.usage else ""
        self._head = f"data: {quote(self._frame(self.chunk_kind))[:-1]},"
        self._before, self._after = f'{self._head}"choices":[', f"]{rest}}}\n\n"

    def opening(self) -> str:
        """The events before the first token."""
        return ""

    @abstractmethod
    def chunk(self, index: int, tokens: Sequence[Token], drafted: Sequence[int]) -> str:
        """The events for further tokens of answer `index`, made in rounds that had drafted so
        many."""

    @abstractmethod
    def ending(self, index: int, completion: Completion) -> str:
        """The events after its last token."""

    @abstractmethod
    def choice(self, index: int, completion: Completion, drafted: Sequence[int]) -> dict[str, Any]:
        """An answer as a whole."""

    def closing(self, completions: Sequence[Completion]) -> str:
        """The events after all answers."""
        if not self.call.usage:
            return DONE
        return (
            f'{self._head}"choices":[],"usage":{quote(usage(completions, self.call.n))}}}\n\n{DONE}'
        )

    def whole(
        self, completions: Sequence[Completion], drafted: Sequence[Sequence[int]]
    ) -> dict[str, Any]:
        """All answers as one document."""
        choices = [self.choice(i, c, drafted[i]) for i, c in enumerate(completions)]
        tokens = usage(completions, self.call.n)
        return {**self._frame(self.kind), "choices": choices, "usage": tokens}

    def event(self, index: int, part: str, extra: str, reason: str | None = None) -> str:
        """One event of answer `index`, of which `part` is the news."""
        why = "null" if reason is None else quote(reason)
        return f'{self._before}{{"index":{index},{part}{extra},"finish_reason":{why}}}{self._after}'

    def details(self, tokens: Sequence[Token], drafted: Sequence[int]) -> str:
        """What an event says of how its tokens were made, if that was asked for."""
        if not self.call.details:
            return ""
        return f',"speculation":{quote(self.names.details(tokens, drafted))}'

    def _frame(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created,
            "model": self.call.model,
            "system_fingerprint": None,
        }


def reason(completion: Completion) -> str:
    """Why it ended, as HTTP says it."""
    return _REASONS.get(completion.finish_reason, completion.finish_reason)


def failure(completion: Completion, call: Call, overrun: bool) -> ApiError | None:
    """The error that an answer ended with, if it did."""
    if completion.finish_reason == "error":
        if call.masked:
            return ApiError(
                400,
                "no token is left to choose from: logit_bias, min_tokens and the grammar "
                "forbid all that the model could say",
                code="nothing_allowed",
            )
        return ApiError(500, "the model's scores are not numbers", code="not_numbers")
    if completion.finish_reason == "failed":
        return ApiError(500, "the server failed on this request", code="failed")
    if completion.finish_reason == "cancelled":
        if overrun:
            return ApiError(408, "the answer was not read fast enough", code="slow_client")
        return not_ready()
    return None
