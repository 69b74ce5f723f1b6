"""What goes in and out of an engine: who hears of answers, who watches, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from paceline.core.types import Emitted
from paceline.text.completion import Piece
from paceline.text.request import Request

Heard = Callable[[Piece | None], None]
"""Hears each piece of an answer as it is made, and None when there is no more: then the request's
`completion` is whole. Called in the engine's thread: it must not wait, and must not raise."""


class Busy(Exception):
    """The queue is full. `retry_after`: seconds after which a place is likely."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(f"the queue is full; try again in {retry_after:.0f} s")
        self.retry_after = retry_after


class Stopping(Exception):
    """The engine is ending: it finishes what it has and takes nothing more."""


class Watch(Protocol):
    """Hears what happens, for metrics and logs; in the engine's thread, so it must not wait."""

    def began(self, request: Request, waited_s: float) -> None:
        """The request left the queue for a slot, after so many seconds."""
        ...

    def grew(self, request: Request, emitted: Emitted, seconds: float) -> None:
        """A round added `emitted` to its answer, `seconds` after the round before (the first time:
        after it was submitted)."""
        ...

    def ended(self, request: Request) -> None:
        """It is over: `request.completion.finish_reason` says how. Also called for requests that
        ended in the queue."""
        ...


@dataclass(frozen=True)
class Load:
    """How busy the engine is: requests in slots (reading their prompt or answering) and in the
    queue, and how many there may be of each."""

    running: int
    waiting: int
    slots: int
    queue: int
