"""What happened, counted for Prometheus: `/metrics`.

The engine's thread adds to plain numbers; the text is made of them only when somebody asks. A
round of a row costs a few microseconds so, where the client library's own counters cost a lock
and a check each.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Lock
from time import perf_counter
from typing import TYPE_CHECKING, Any, get_args

from paceline.core.types import Emitted, Origin
from paceline.errors import MissingExtra

if TYPE_CHECKING:
    from paceline.serve.watch import Load
    from paceline.text.request import Request

PREFIX = "paceline:"
FIRST = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 0.75, 1, 1.5, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
BETWEEN = (
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5,
)  # fmt: skip
WHOLE = (0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960)
ENDS = ("stop", "length", "time", "cancelled", "error", "failed")
_ACTIVE = 10.0  # seconds for which a draft counts as speculation going on


class Metrics:
    """A `Watch` that counts. `about`: what `build_info` says, by label.

    Counters never fall. A round counts once it has been verified and its tokens are in the answer;
    one that was given up before counts nothing. Raises MissingExtra without prometheus_client.
    """

    def __init__(self, about: Mapping[str, str]) -> None:
        try:
            import prometheus_client as client
            from prometheus_client import core as families
        except ImportError:
            raise MissingExtra("the server", "serve") from None
        self._families: Any = families
        self._about = dict(about)
        self._load: Callable[[], Load] | None = None
        self._lock = Lock()
        self._drafts = self._drafted = self._accepted = 0
        self._accepted_at: list[int] = []
        self._prompt = self._generated = self._rejected = 0
        self._origins: dict[Origin, int] = dict.fromkeys(get_args(Origin), 0)
        self._ends: dict[str, int] = dict.fromkeys(ENDS, 0)
        self._speaking: set[Request] = set()  # those that have tokens already
        self._last_draft = -_ACTIVE
        self._queued = _Histogram(FIRST)
        self._first = _Histogram(FIRST)
        self._between = _Histogram(BETWEEN)
        self._whole = _Histogram(WHOLE)
        self.registry = client.CollectorRegistry()
        client.ProcessCollector(registry=self.registry)
        self.registry.register(self)  # type: ignore[arg-type]
        self._text = client.generate_latest
        self.content_type: str = client.CONTENT_TYPE_PLAIN_0_0_4

    def follow(self, load: Callable[[], Load]) -> None:
        """From now on report how busy an engine is, too."""
        self._load = load

    def text(self) -> bytes:
        """All metrics in the text format, of type `content_type`. From any thread."""
        return self._text(self.registry)

    def began(self, request: Request, waited_s: float) -> None:
        """See `Watch`."""
        with self._lock:
            self._queued.add(waited_s)

    def grew(self, request: Request, emitted: Emitted, seconds: float) -> None:
        """See `Watch`."""
        count = len(emitted.tokens)
        with self._lock:
            if emitted.drafted:
                self._drafts += 1
                self._drafted += emitted.drafted
                self._accepted += emitted.accepted
                self._last_draft = perf_counter()
                at = self._accepted_at
                while len(at) < emitted.drafted:
                    at.append(0)
                for i in range(emitted.accepted):
                    at[i] += 1
            if not count:
                return
            self._generated += count
            if emitted.accepted:
                self._origins["accepted"] += emitted.accepted
            if count > emitted.accepted:
                self._origins[emitted.last_origin] += count - emitted.accepted
            if request in self._speaking:
                self._between.add(seconds / count, count)
            else:
                self._speaking.add(request)
                self._prompt += len(request.ids)
                self._first.add(seconds)

    def ended(self, request: Request) -> None:
        """See `Watch`."""
        reason = request.completion.finish_reason
        with self._lock:
            self._speaking.discard(request)
            self._ends[reason] = self._ends.get(reason, 0) + 1
            if reason in ("stop", "length"):
                self._whole.add(perf_counter() - request.began)

    def rejected(self) -> None:
        """A request found the queue full. From any thread."""
        with self._lock:
            self._rejected += 1

    def collect(self) -> Iterator[Any]:
        """The families, for the registry."""
        load = self._load() if self._load else None
        with self._lock:
            made = [*self._counters(), *self._histograms()]
            active = perf_counter() - self._last_draft < _ACTIVE
        gauges: list[tuple[str, str, float]] = [
            ("speculation_active", f"1: a draft was verified in the last {_ACTIVE:.0f} s", active)
        ]
        if load:
            gauges += [
                ("num_requests_running", "Requests in slots", load.running),
                ("num_requests_waiting", "Requests in the queue", load.waiting),
                ("slots", "Requests that can run at once", load.slots),
                ("queue_size", "Requests that can wait", load.queue),
            ]
        for name, text, value in gauges:
            made.append(self._families.GaugeMetricFamily(PREFIX + name, text, value))
        yield from made
        yield self._families.InfoMetricFamily(PREFIX + "build", "What is served", self._about)

    def _counters(self) -> Iterator[Any]:
        family = self._families.CounterMetricFamily
        simple = (
            ("spec_decode_num_drafts", "Drafts verified", self._drafts),
            ("spec_decode_num_draft_tokens", "Tokens drafted", self._drafted),
            ("spec_decode_num_accepted_tokens", "Drafted tokens accepted", self._accepted),
            ("prompt_tokens", "Tokens of the prompts that were answered", self._prompt),
            ("generation_tokens", "Tokens generated", self._generated),
            ("requests_rejected", "Requests that found the queue full", self._rejected),
        )
        for name, text, value in simple:
            yield family(PREFIX + name, text, value)
        place = "Drafted tokens accepted, by place in the draft (from 0)"
        by_place = {str(i): count for i, count in enumerate(self._accepted_at)}
        labelled = (
            ("spec_decode_num_accepted_tokens_per_pos", place, "position", by_place),
            ("generation_tokens_by_origin", "Tokens by origin", "origin", self._origins),
            ("request_success", "Requests by how they ended", "finished_reason", self._ends),
        )
        for name, text, label, counts in labelled:
            made = family(PREFIX + name, text, labels=[label])
            for value, count in counts.items():
                made.add_metric([value], count)
            yield made

    def _histograms(self) -> Iterator[Any]:
        between = "Of a round of m tokens behind the first round, m times an m-th of its time"
        each = (
            ("time_to_first_token_seconds", "From submission to the first token", self._first),
            ("inter_token_latency_seconds", between, self._between),
            ("request_queue_time_seconds", "Wait for a slot", self._queued),
            ("e2e_request_latency_seconds", "All of a request that was answered", self._whole),
        )
        for name, text, histogram in each:
            made = self._families.HistogramMetricFamily(PREFIX + name, text)
            made.add_metric([], histogram.cumulative(), histogram.sum)
            yield made


class _Histogram:
    """Counts by upper bound."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[tuple[str, int]]:
        """(upper bound, how many are no larger), up to "+Inf"."""
        total, made = 0, []
        for bound, count in zip([*map(float, self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            made.append((str(bound), total))
        return made
