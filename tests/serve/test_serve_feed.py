"""The way from the engine's thread to the event loop."""

from __future__ import annotations

import asyncio

import pytest

from paceline.serve.feed import Bell, Feed
from paceline.text.completion import Piece, Token


class _Loop:
    """An event loop that does nothing by itself."""

    def __init__(self):
        self.calls, self.later = [], []

    def call_soon_threadsafe(self, call):
        self.calls.append(call)

    def call_later(self, seconds, call):
        self.later.append(call)

    def run(self):
        """Whatever it was asked to do, and then what is due."""
        for due in (self.calls, self.later):
            calls, due[:] = list(due), []
            for call in calls:
                call()


class _Engine:
    """Keeps who hears."""

    def __init__(self):
        self.heard, self.cancelled = [], []

    def submit(self, ids, params, heard, name=None):
        self.heard.append(heard)
        return ids

    def cancel(self, request):
        self.cancelled.append(request)


def _piece(text):
    return Piece([Token(i, char, "plain") for i, char in enumerate(text)])


def test_one_wake_up_is_pending_whatever_is_heard():
    loop, engine = _Loop(), _Engine()
    bell = Bell(loop)
    feeds = [Feed(engine, bell, pieces=True, limit=10) for _ in range(3)]
    for feed in feeds:
        feed.submit([("a", None), ("b", None)])
    for heard in engine.heard * 2:
        heard(_piece("x"))
    assert len(loop.calls) == 1
    loop.run()
    engine.heard[0](_piece("y"))
    assert len(loop.calls) == 1

    async def taken():
        return [await feed.take() for feed in feeds]

    first, *others = asyncio.run(taken())
    assert [(i, piece.text) for i, piece in first] == [(0, "x"), (1, "x")] * 2 + [(0, "y")]
    assert all([i for i, _ in heard] == [0, 1, 0, 1] for heard in others)


def test_behind_a_wake_up_only_what_is_urgent_wakes():
    loop, engine = _Loop(), _Engine()
    bell = Bell(loop)
    feed, other = (Feed(engine, bell, pieces=True, limit=10) for _ in range(2))
    feed.submit([("a", None), ("b", None)])
    other.submit([("c", None)])
    engine.heard[0](_piece("x"))
    loop.calls.pop()()
    for _ in range(3):
        engine.heard[0](_piece("x"))
    assert not loop.calls  # it rests, and then looks by itself
    loop.run()
    assert len(loop.later) == 1  # something was there, so it rests again
    loop.run()
    assert not loop.later
    engine.heard[0](_piece("x"))
    loop.calls.pop()()
    engine.heard[2](_piece("x"))  # the first of another answer
    assert len(loop.calls) == 1
    loop.calls.pop()()
    engine.heard[0](None)  # an end
    assert len(loop.calls) == 1


def test_without_pieces_only_ends_are_heard():
    loop, engine = _Loop(), _Engine()
    feed = Feed(engine, Bell(loop), pieces=False, limit=0)
    feed.submit([("a", None)])
    engine.heard[0](_piece("x" * 100))
    assert not loop.calls
    engine.heard[0](None)

    async def taken():
        return [await feed.take(), await feed.take()]

    assert asyncio.run(taken()) == [[(0, None)], []]


def test_too_much_that_waits_cancels_once():
    loop, engine = _Loop(), _Engine()
    feed = Feed(engine, Bell(loop), pieces=True, limit=3)
    feed.submit([("a", None), ("b", None)])
    engine.heard[0](_piece("xxx"))
    loop.run()
    assert not engine.cancelled
    engine.heard[1](_piece("x"))
    loop.run()
    assert feed.overrun
    engine.heard[1](_piece("x"))
    loop.run()
    feed.cancel()
    assert engine.cancelled == ["a", "b"]


def test_what_is_refused_leaves_nothing_behind():
    class Full(_Engine):
        def submit(self, ids, params, heard, name=None):
            if ids == "c":
                raise ValueError(ids)
            return super().submit(ids, params, heard)

    engine = Full()
    feed = Feed(engine, Bell(_Loop()), pieces=True, limit=3)
    with pytest.raises(ValueError, match="c"):
        feed.submit([("a", None), ("b", None), ("c", None)])
    assert engine.cancelled == ["a", "b"]


def test_a_loop_that_has_ended_is_no_trouble():
    loop = asyncio.new_event_loop()
    loop.close()
    engine = _Engine()
    feed = Feed(engine, Bell(loop), pieces=True, limit=3)

    async def made():
        feed.submit([("a", None)])

    asyncio.run(made())
    engine.heard[0](_piece("x"))
    assert not engine.cancelled
