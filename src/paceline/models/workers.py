"""Threads for the work of loading, each of which keeps to one core."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

_BLOCK = 256 * 1024  # elements worked on at a time: a few temporaries of it fit a core's cache

T = TypeVar("T")


class Workers:
    """As many threads as torch may use, in which torch itself works without further ones.

    Parallel regions of torch wait for every thread, many times over, which takes long where another
    program keeps a core busy; whole tasks side by side do not.
    """

    def __init__(self) -> None:
        count = max(1, torch.get_num_threads())
        started = threading.Barrier(count + 1)

        def start() -> None:
            torch.get_num_threads()  # a thread's first call sets what the process last asked for,
            torch.set_num_threads(1)  # so ours comes second; it also counts for threads to come,
            started.wait()

        self._pool = ThreadPoolExecutor(count, initializer=start)
        for _ in range(count):
            self._pool.submit(int)
        started.wait()
        torch.set_num_threads(count)  # which is undone here

    def submit(self, work: Callable[..., T], *args: object) -> Future[T]:
        """Begin `work(*args)`."""
        return self._pool.submit(work, *args)

    def by_blocks(self, shape: Sequence[int], work: Callable[[slice], None]) -> None:
        """`work(rows)` for each of `blocks(shape)`, side by side."""
        for done in [self._pool.submit(work, rows) for rows in blocks(shape)]:
            done.result()

    def close(self) -> None:
        """Wait for what runs and drop what has not begun."""
        self._pool.shutdown(cancel_futures=True)


def blocks(shape: Sequence[int], multiple_of: int = 1) -> Iterator[slice]:
    """The rows of a matrix of this shape, in runs that fit a core's cache; each begins at a
    multiple of `multiple_of`."""
    step = max(1, _BLOCK // shape[1] // multiple_of) * multiple_of
    return (slice(start, start + step) for start in range(0, shape[0], step))
