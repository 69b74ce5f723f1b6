"""Requests from many threads, run side by side in one."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from time import perf_counter

from paceline.core.params import SamplingParams
from paceline.core.sequences import check_room
from paceline.errors import PacelineError
from paceline.serve.watch import Busy, Heard, Load, Stopping, Watch
from paceline.text.batch import Batch
from paceline.text.llm import Generator
from paceline.text.request import Request

_LOG = logging.getLogger("paceline.serve")
_WARM_UP = "A short text to see how long a token takes, before anybody waits for one."
_TOKENS = 24
_OUTPUTS = 64  # that are kept before they are passed on, also while there is work


class Engine:
    """Runs requests side by side in `slots` rows of `llm`, as a thread of its own.

    Between two rounds requests are admitted, in the order in which they came, to free slots.
    Prompts are read in chunks, at most `budget` tokens between two rounds. At most `queue` requests
    wait. A request ends with "time" after `time_limit` seconds in the engine, with "cancelled" when
    it is cancelled; either frees its slot before the next round; with "failed" if its round does,
    by a defect. Memory does not grow with the number of requests served. Raises PacelineError for
    sizes that make no sense.
    """

    def __init__(
        self,
        llm: Generator,
        *,
        slots: int = 8,
        queue: int = 64,
        budget: int = 32,
        time_limit: float = 600.0,
        watch: Watch | None = None,
    ) -> None:
        for name, value, least in (("slots", slots, 1), ("queue", queue, 0), ("budget", budget, 1)):
            if value < least:
                raise PacelineError(f"{name} must be at least {least}, not {value}")
        if not time_limit > 0:
            raise PacelineError(f"the time limit must be more than 0 seconds, not {time_limit}")
        self.llm = llm
        self._slots, self._queue, self._budget = slots, queue, budget
        self._time_limit = time_limit
        self._watch = watch
        self._plain_rate = 0.0
        self._batch: Batch | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Condition()  # of all that follows
        self._waiting: deque[_Job] = deque()
        self._jobs: dict[Request, _Job] = {}  # all that have not ended
        self._cancelled: set[Request] = set()
        self._stopping = self._closed = False
        self._recent: deque[float] = deque(maxlen=16)  # seconds that requests held a slot
        self._outputs: list[list[int]] = []  # of requests that ended, for those who learn from it

    def start(self) -> None:
        """Begin to work: makes the caches, makes a few tokens (which measures `plain_rate`), and
        starts the thread. Returns when tokens can be made."""
        self._batch = Batch(self.llm.parts, self._slots, self.llm.context)
        self._plain_rate = self._warm_up(self._batch)
        self._thread = threading.Thread(target=self._work, name="paceline", daemon=True)
        self._thread.start()

    def _warm_up(self, batch: Batch) -> float:
        """Plain decoding's tokens a second; and a few drafted rounds, so that all memory is
        there."""
        ids = self.llm.tokenizer.prompt(_WARM_UP)[: max(1, self.llm.context // 2)]
        params = SamplingParams(max_tokens=_TOKENS, ignore_eos=True)
        seconds: list[float] = []
        for each in (params, replace(params, draft="none")):
            batch.admit(Request(ids, each, self.llm.tokenizer, True))
            while batch.unread:
                batch.read(self._budget)
            seconds = []
            while batch.requests:
                began = perf_counter()
                batch.step()
                seconds.append(perf_counter() - began)
        return 1 / median(seconds)

    @property
    def ready(self) -> bool:
        """Whether a token can be made: started, not stopping, and the thread alive."""
        alive = self._thread is not None and self._thread.is_alive()
        return alive and not self._stopping

    @property
    def load(self) -> Load:
        """How busy it is now."""
        with self._lock:
            waiting = len(self._waiting)
            return Load(len(self._jobs) - waiting, waiting, self._slots, self._queue)

    @property
    def plain_rate(self) -> float:
        """Tokens a second of plain decoding at batch 1, as measured by `start`."""
        return self._plain_rate

    def submit(
        self, ids: Sequence[int], params: SamplingParams, heard: Heard, name: str | None = None
    ) -> Request:
        """Queue a request, called `name` outside; returns at once. Raises PacelineError for a
        prompt that is empty or too long and for a draft, verifier or K that cannot be had, `Busy`
        and `Stopping`."""
        parts = self.llm.parts
        parts.check(params)
        check_room(len(ids), self.llm.context)
        tokenizer, lossless = self.llm.tokenizer, parts.lossless(params)
        request = Request(ids, params, tokenizer, lossless, name=name)
        with self._lock:
            if not self.ready:
                raise Stopping
            if len(self._jobs) >= self._queue + self._slots:
                raise Busy(self._retry_after())
            self._jobs[request] = job = _Job(request, heard)
            self._waiting.append(job)
            self._lock.notify_all()
        return request

    def _retry_after(self) -> float:
        """Until about a slot is free: what a request takes, by the slots that take turns."""
        typical = median(self._recent) if self._recent else 1.0
        return max(1.0, typical / self._slots)

    def cancel(self, request: Request) -> None:
        """End it, wherever it is; nothing happens if it is over. From any thread."""
        with self._lock:
            if request in self._jobs:
                self._cancelled.add(request)
                self._lock.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Take nothing more, and wait until everything has been answered; whether it was in
        time."""
        with self._lock:
            self._stopping = True
            return self._lock.wait_for(lambda: not self._jobs or self._closed, timeout)

    def close(self) -> None:
        """Cancel what runs and end the thread. May be called more than once."""
        with self._lock:
            self._stopping = self._closed = True
            self._lock.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        """The thread: a turn at a time, until it is closed."""
        assert self._batch is not None
        try:
            while self._wait():
                self._admit(self._batch)
                try:
                    self._turn(self._batch)
                except Exception:  # a defect: those who wait must hear of it, and others be served
                    _LOG.exception("a round failed, and its requests with it")
                    for request in self._batch.requests:
                        self._end(request, "failed")
        finally:  # whatever happened, nobody waits for ever
            self._stopping = self._closed = True
            for request in list(self._jobs):
                self._end(request, "cancelled")
            self._remember()

    def _wait(self) -> bool:
        """Wait until there is something to do, and end what is cancelled or late; False: it is
        closed."""
        if not self._jobs or len(self._outputs) >= _OUTPUTS:
            self._remember()
        with self._lock:
            self._lock.wait_for(lambda: self._jobs or self._closed)
            gone = [request for request in self._cancelled if request in self._jobs]
            self._cancelled = set()
            closed = self._closed
            oldest = perf_counter() - self._time_limit
            late = [request for request in self._jobs if request.began < oldest]
        for request in gone:
            self._end(request, "cancelled")
        for request in late:
            if request in self._jobs:
                self._end(request, "time")
        return not closed

    def _remember(self) -> None:
        """Tell the parts what was made: windows and a corpus learn from it, and keep it on disk."""
        outputs, self._outputs = self._outputs, []
        if outputs and self.llm.parts.ended is not None:
            self.llm.parts.ended(outputs)

    def _admit(self, batch: Batch) -> None:
        while batch.free:
            with self._lock:
                if not self._waiting:
                    return
                job = self._waiting.popleft()
            job.admitted = perf_counter()
            try:
                batch.admit(job.request)
            except Exception:  # a defect, too
                _LOG.exception("a request could not be admitted")
                self._end(job.request, "failed")
                continue
            if self._watch is not None:
                self._watch.began(job.request, job.admitted - job.request.began)

    def _turn(self, batch: Batch) -> None:
        """Read some of the prompts, and let the others go on for a round."""
        batch.read(self._budget)
        for grown in batch.step():
            job, now = self._jobs[grown.request], perf_counter()
            if self._watch is not None:
                self._watch.grew(grown.request, grown.emitted, now - job.heard_at)
            job.heard_at = now
            job.heard(grown.piece)
            if grown.ended:
                self._end(grown.request, grown.request.completion.finish_reason)

    def _end(self, request: Request, reason: str) -> None:
        """It is over: its slot is free, and everybody hears of it."""
        assert self._batch is not None
        self._batch.remove(request)
        if request.completion.finish_reason != reason:
            request.end(reason)
        with self._lock:
            job = self._jobs.pop(request)
            with suppress(ValueError):
                self._waiting.remove(job)
            if job.admitted is not None:
                self._recent.append(perf_counter() - job.admitted)
            self._lock.notify_all()
        if request.completion.tokens:
            self._outputs.append(request.completion.token_ids)
        if self._watch is not None:
            self._watch.ended(request)
        job.heard(None)


class _Job:
    """A request and who hears of it. `admitted`: when it got a slot; `heard_at`: when it was last
    heard of; by `perf_counter`."""

    def __init__(self, request: Request, heard: Heard) -> None:
        self.request = request
        self.heard = heard
        self.heard_at = request.began
        self.admitted: float | None = None
