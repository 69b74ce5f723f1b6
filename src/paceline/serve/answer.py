"""Runs a call and sends its answers: as one document, or as events while they are made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paceline.serve.engine import Engine
from paceline.serve.errors import ApiError, Json
from paceline.serve.feed import Bell, Feed
from paceline.serve.writer import Writer, failure
from paceline.text.completion import Piece, Token


class Answer(Response):
    """The response to one call. Whatever ends it, what it runs in the engine ends with it."""

    def __init__(self, engine: Engine, bell: Bell, writer: Writer, unsent_limit: int) -> None:
        super().__init__()
        self._engine, self._bell, self._writer = engine, bell, writer
        self._limit = unsent_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._writer.call
        keep = call.stream or call.details
        limit = self._limit if call.stream else 2**62
        name = self._writer.id
        feed = Feed(self._engine, self._bell, pieces=keep, limit=limit, name=name)
        feed.submit(call.asks)
        watcher = asyncio.ensure_future(feed.watch(receive))
        try:
            if call.stream:
                await self._stream(feed, send)
            else:
                await self._whole(feed, scope, receive, send)
        finally:
            watcher.cancel()
            feed.cancel()

    async def _whole(self, feed: Feed, scope: Scope, receive: Receive, send: Send) -> None:
        drafted: list[list[int]] = [[] for _ in feed.requests]
        while heard := await feed.take():
            for index, piece in heard:
                if piece is not None:
                    drafted[index].append(piece.drafted)
                elif error := self._failure(feed, index):
                    raise error
        if not feed.gone:
            completions = [request.completion for request in feed.requests]
            await Json(self._writer.whole(completions, drafted))(scope, receive, send)

    async def _stream(self, feed: Feed, send: Send) -> None:
        writer = self._writer
        kind = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": kind})
        events = writer.opening()
        while True:
            if events:
                await send(_body(events))
            heard = await feed.take()
            if feed.gone:
                return
            if not heard:
                break
            events = ""
            for index, (tokens, drafted, ended) in _merge(heard):
                if tokens:
                    events += writer.chunk(index, tokens, drafted)
                if not ended:
                    continue
                if error := self._failure(feed, index):
                    await send(_body(f"{events}data: {json.dumps(error.body)}\n\n", more=False))
                    return
                events += writer.ending(index, feed.requests[index].completion)
        completions = [request.completion for request in feed.requests]
        await send(_body(writer.closing(completions), more=False))

    def _failure(self, feed: Feed, index: int) -> ApiError | None:
        return failure(feed.requests[index].completion, self._writer.call, feed.overrun)


Merged = tuple[list[Token], list[int], bool]


def _merge(heard: list[tuple[int, Piece | None]]) -> Iterable[tuple[int, Merged]]:
    """What was heard, one entry an answer: its tokens, what each round had drafted, if it ended."""
    merged: dict[int, Merged] = {}
    for index, piece in heard:
        tokens, drafted, ended = merged.get(index, ([], [], False))
        if piece is not None:
            tokens, drafted = tokens + piece.tokens, [*drafted, piece.drafted]
        merged[index] = tokens, drafted, ended or piece is None
    return merged.items()


def _body(text: str, *, more: bool = True) -> dict[str, object]:
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}
