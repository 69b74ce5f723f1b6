"""An engine whose answers are scripted, on a thread of its own: for what a model cannot be made to
do on demand."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

from paceline.core.params import SamplingParams
from paceline.core.types import Emitted, Seconds
from paceline.errors import PacelineError
from paceline.serve.watch import Busy, Heard, Load, Stopping
from paceline.text.completion import Making, Piece, Token
from paceline.text.request import Request
from paceline.text.stream import TextStream
from paceline.text.tokenizer import Tokenizer

Script = Callable[[Sequence[int], SamplingParams], Iterable[Emitted]]


def says(text: str, block: int = 1, finish: str = "stop") -> Script:
    """Answers `text`, then the end token, in rounds of `block` tokens: all but the last of them
    accepted from a draft as long as the round."""

    def script(ids: Sequence[int], params: SamplingParams) -> Iterator[Emitted]:
        tokens = [*byte_ids(text), 256][: params.max_tokens]
        for at in range(0, len(tokens), block):
            part = tokens[at : at + block]
            last = at + block >= len(tokens)
            end = (finish if part[-1] == 256 else "length") if last else None
            yield Emitted(part, len(part), len(part) - 1, end)  # type: ignore[arg-type]

    return script


def forever(ids: Sequence[int], params: SamplingParams) -> Iterator[Emitted]:
    """Says "a" until it is stopped."""
    return itertools.repeat(Emitted(byte_ids("a"), 0, 0))


def byte_ids(text: str) -> list[int]:
    """The ids of `text` under `tiny.write_tokenizer`: bytes, ordered as its alphabet is."""
    return [_ALPHABET[byte] for byte in text.encode()]


def _alphabet() -> dict[int, int]:
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars = {byte: chr(byte) for byte in shown}
    rest = [byte for byte in range(256) if byte not in chars]
    chars |= {byte: chr(256 + i) for i, byte in enumerate(rest)}
    order = {char: i for i, char in enumerate(sorted(chars.values()))}
    return {byte: order[char] for byte, char in chars.items()}


_ALPHABET = _alphabet()


@dataclass
class _Running:
    request: Request
    heard: Heard
    rounds: Iterator[Emitted]
    text: TextStream
    cancelled: bool = field(default=False)


class FakeEngine:
    """`script` makes the rounds of a request; between two rounds of all `pace` seconds pass.
    Requests past `slots` wait, past `queue` more they are refused."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        script: Script,
        *,
        slots: int = 2,
        queue: int = 2,
        pace: float = 0.0,
        time_limit: float = 60.0,
        context: int = 512,
    ) -> None:
        self.llm = SimpleNamespace(
            name="fake",
            tokenizer=tokenizer,
            context=context,
            draft="lookup:3",
            drafts=["lookup:3", "suffix", "none"],
            k=8,
            dtype="fp32",
            lossless=True,
        )
        self.script, self.pace, self.plain_rate = script, pace, 100.0
        self.cancels = 0
        self.broken: Exception | None = None  # raised by the next submit
        self._slots, self._queue, self._limit = slots, queue, time_limit
        self._rows: list[_Running] = []
        self._waiting: list[_Running] = []
        self._lock = threading.Condition()
        self._stopping = self._closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def ready(self) -> bool:
        return self._thread.is_alive() and not self._stopping

    @property
    def load(self) -> Load:
        return Load(len(self._rows), len(self._waiting), self._slots, self._queue)

    def submit(
        self, ids: Sequence[int], params: SamplingParams, heard: Heard, name: str | None = None
    ) -> Request:
        with self._lock:
            if self.broken is not None:
                raise self.broken
            if self._stopping:
                raise Stopping
            if not ids:
                raise PacelineError("the prompt is empty: it needs at least one token")
            if len(self._waiting) + len(self._rows) >= self._slots + self._queue:
                raise Busy(3.0)
            tokenizer = self.llm.tokenizer
            request = Request(ids, params, tokenizer, True, name=name)
            rounds = iter(self.script(ids, params))
            text = TextStream(tokenizer, params.stop)
            self._waiting.append(_Running(request, heard, rounds, text))
            self._lock.notify()
            return request

    def cancel(self, request: Request) -> None:
        with self._lock:
            for running in self._rows + self._waiting:
                if running.request is request and not running.cancelled:
                    running.cancelled = True
                    self.cancels += 1

    def drain(self, timeout: float | None = None) -> bool:
        self._stopping = True
        until = time.monotonic() + (1e9 if timeout is None else timeout)
        while self._rows or self._waiting:
            if time.monotonic() > until:
                return False
            time.sleep(0.005)
        return True

    def close(self) -> None:
        with self._lock:
            self._stopping = self._closed = True
            for running in self._rows + self._waiting:
                running.cancelled = True
            self._lock.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._rows and not self._waiting and not self._closed:
                    self._lock.wait()
                if not self._rows and not self._waiting:
                    return
                for running in [r for r in self._waiting if r.cancelled]:
                    self._end(running, "cancelled", self._waiting)
                while self._waiting and len(self._rows) < self._slots:
                    self._rows.append(self._waiting.pop(0))
                rows = list(self._rows)
            for running in rows:
                self._step(running)
            time.sleep(self.pace)

    def _step(self, running: _Running) -> None:
        request = running.request
        if running.cancelled:
            self._end(running, "cancelled", self._rows)
        elif time.perf_counter() - request.began > self._limit:
            self._end(running, "time", self._rows)
        else:
            emitted = next(running.rounds)
            piece, finish = _piece(running, emitted)
            running.heard(piece)
            if finish:
                self._end(running, finish, self._rows)

    def _end(self, running: _Running, reason: str, where: list[_Running]) -> None:
        where.remove(running)
        running.request.completion.finish_reason = reason
        running.heard(None)


def _piece(running: _Running, emitted: Emitted) -> tuple[Piece, str | None]:
    """What `Request.add` makes of a round, with made-up scores."""
    done, params = running.request.completion, running.request.params
    tokens = []
    for id, origin in zip(emitted.tokens, emitted.origins(), strict=True):
        text = running.text.push([id])
        scored = params.logprobs is not None
        tops = {id: -0.5} | {
            (id + 1 + i) % 257: -1.0 - i for i in range((params.logprobs or 1) - 1)
        }
        tokens.append(
            Token(
                id,
                text,
                origin,
                -0.5 if scored else None,
                (tops if params.logprobs else {}) if scored else None,
                Making(0.75, id if origin == "accepted" else None, 1.0) if params.trace else None,
            )
        )
    finish = "stop" if running.text.stopped is not None else emitted.finish
    if finish and tokens and (rest := running.text.finish()):
        last = tokens[-1]
        tokens[-1] = Token(last.id, last.text + rest, last.origin, last.logprob, last.top)
    done.tokens += tokens
    done.stats.add(emitted, Seconds(0, 0, 0))
    return Piece(tokens, emitted.drafted), finish
