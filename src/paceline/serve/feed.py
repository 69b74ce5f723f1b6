"""From the engine's thread to the event loop, and back when a client goes away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from functools import partial

from starlette.types import Receive

from paceline.serve.engine import Engine
from paceline.serve.sampling import Ask
from paceline.text.completion import Piece
from paceline.text.request import Request

_REST = 0.03  # seconds


class Bell:
    """Wakes feeds on `loop` from the engine's thread. One wake-up is pending at most, however many
    answers grow in a round; and behind each comes a rest, in which only what is urgent wakes
    anybody: where a token takes a few milliseconds, a thread that is woken for each of them takes
    a tenth of that from the engine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._feeds: deque[Feed] = deque()
        self._rung = self._resting = False

    def ring(self, feed: Feed, *, urgent: bool) -> None:
        """Have `feed` woken. From any thread."""
        self._feeds.append(feed)
        if not self._rung and (urgent or not self._resting):
            self._rung = True
            try:
                self.loop.call_soon_threadsafe(self._answer)
            except RuntimeError:  # the loop has ended, and with it all who listened
                self._feeds.clear()

    def _answer(self) -> None:
        self._rung = False  # first: what is appended from here on rings again
        while self._feeds:
            self._feeds.popleft().wake()
        if not self._resting:
            self._resting = True
            self.loop.call_later(_REST, self._rested)

    def _rested(self) -> None:
        self._resting = False  # first, too
        if self._feeds:
            self._answer()


class Feed:
    """What one HTTP request runs in the engine: an engine request for each of its answers, and what
    is heard of them.

    `pieces`: whether they are kept for `take`, or only the ends counted. With more than `limit`
    tokens kept, the client reads too slowly: everything is cancelled. `gone`: the client is.
    """

    def __init__(
        self, engine: Engine, bell: Bell, *, pieces: bool, limit: int, name: str | None = None
    ) -> None:
        self.requests: list[Request] = []
        self.gone = self.overrun = False
        self._engine, self._bell, self._name = engine, bell, name
        self._pieces, self._limit = pieces, limit
        self._heard: deque[tuple[int, Piece | None]] = deque()
        self._came = self._went = 0  # tokens; each is written in one thread alone
        self._open = 0
        self._cancelled = self._begun = False
        self._event = asyncio.Event()

    def submit(self, asks: Sequence[Ask]) -> None:
        """Start all of them; if one is refused, none. Raises what the engine raises."""
        try:
            for index, (ids, params) in enumerate(asks):
                hears = partial(self._hear, index)
                self.requests.append(self._engine.submit(ids, params, hears, self._name))
        except Exception:
            self.cancel()
            raise
        self._open = len(self.requests)

    def cancel(self) -> None:
        """End what has not ended."""
        if not self._cancelled:
            self._cancelled = True
            for request in self.requests:
                self._engine.cancel(request)

    async def watch(self, receive: Receive) -> None:
        """Wait for the client to go away; then cancel."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self.cancel()
        self._event.set()

    async def take(self) -> list[tuple[int, Piece | None]]:
        """What was heard since, at least one thing: (index, piece), or (index, None) when that
        answer is whole. Nothing once the client is gone or all are whole."""
        while not self._heard and self._open and not self.gone:
            self._event.clear()
            await self._event.wait()
        if self.gone:
            return []
        taken: list[tuple[int, Piece | None]] = []
        while self._heard:
            taken.append(self._heard.popleft())
        for _, piece in taken:
            if piece is None:
                self._open -= 1
            else:
                self._went += len(piece.tokens)
        return taken

    def wake(self) -> None:
        """In the event loop, after something was heard."""
        self._event.set()
        if self._came - self._went > self._limit and not self.overrun:
            self.overrun = True
            self.cancel()

    def _hear(self, index: int, piece: Piece | None) -> None:
        """In the engine's thread. The first piece and the ends are urgent."""
        if piece is None:
            self._heard.append((index, None))
            self._bell.ring(self, urgent=True)
        elif self._pieces:
            self._heard.append((index, piece))
            self._came += len(piece.tokens)
            self._bell.ring(self, urgent=not self._begun)
            self._begun = True
