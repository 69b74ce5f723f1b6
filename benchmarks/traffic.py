"""What `serve.py` runs: requests straight to an engine, and through HTTP from another process."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from queue import SimpleQueue
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline import SamplingParams
    from paceline.serve.engine import Engine
    from paceline.text.completion import Piece
    from paceline.text.request import Request

DONE = b"data: [DONE]"


@dataclass
class Answer:
    """A request straight to the engine, by `perf_counter`: when it was submitted, and when so many
    tokens came."""

    submitted: float = field(default_factory=perf_counter)
    came: list[tuple[float, int]] = field(default_factory=list)
    request: Request | None = None
    over: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)

    def heard(self, piece: Piece | None) -> None:
        if piece is None:
            self.begun.set()
            self.over.set()
        elif piece.tokens:
            self.came.append((perf_counter(), len(piece.tokens)))
            self.begun.set()

    def wait(self) -> Answer:
        """Until it is over. Raises RuntimeError if it was no answer."""
        assert self.request is not None
        if not self.over.wait(900):
            raise RuntimeError("the engine does not answer")
        if self.request.completion.finish_reason not in ("stop", "length", "cancelled"):
            raise RuntimeError(f"ended with {self.request.completion.finish_reason}")
        return self

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.came[0][0] - self.submitted

    @property
    def seconds(self) -> float:
        """From submission to the last token."""
        return self.came[-1][0] - self.submitted

    @property
    def tokens(self) -> int:
        return sum(count for _, count in self.came)

    def longest_gap(self, start: float, end: float) -> float:
        """The longest time between two rounds that reaches into that span."""
        times = [at for at, _ in self.came]
        return max((b - a for a, b in pairwise(times) if b > start and a < end), default=0.0)


def submit(engine: Engine, ids: Sequence[int], params: SamplingParams) -> Answer:
    """Ask the engine; returns at once."""
    answer = Answer()
    answer.request = engine.submit(ids, params, answer.heard)
    return answer


def together(answers: Sequence[Answer]) -> tuple[int, float]:
    """Tokens and seconds while all of them were answered: from when each had had a round until the
    first one ended."""
    start = max(answer.came[0][0] for answer in answers)
    end = min(answer.came[-1][0] for answer in answers)
    tokens = sum(n for answer in answers for at, n in answer.came if start < at <= end)
    return tokens, end - start


@contextmanager
def served(app: Any) -> Iterator[int]:
    """`app` on a port of this machine, in a thread; the port."""
    import uvicorn

    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


class Client:
    """A process that sends requests over plain sockets, so that it shares nothing with the server
    but the machine."""

    def __init__(self, port: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, bodies: Sequence[dict[str, Any]], at_once: int = 1) -> list[dict[str, Any]]:
        """POST each to /v1/completions, so many at a time: {"status", "first", "seconds", "tokens"}
        of each, in order; tokens as the server's usage has them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([at_once, list(bodies)]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def post(port: int, body: bytes) -> dict[str, Any]:
    """One streamed request."""
    head = (
        "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    began, first, answer = perf_counter(), None, b""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + body)
        while part := connection.recv(1 << 16):
            answer += part
            if first is None and b"data: " in answer:
                first = perf_counter() - began
            if DONE in answer[-64:]:
                break
    seconds = perf_counter() - began
    status, tokens = ended(answer)
    return {"status": status, "first": first, "seconds": seconds, "tokens": tokens}


def ended(answer: bytes) -> tuple[int, int]:
    """The status of an answer, 0 if it was cut off, and its tokens as its usage has them."""
    status = int(answer.split(b" ", 2)[1]) if answer else 0
    if status != 200:
        return status, 0
    if DONE not in answer:
        return 0, 0
    return status, int(answer.rpartition(b'"completion_tokens":')[2].split(b",")[0])


def client(port: int) -> None:
    """The other process: one line of requests in, one of results out."""
    for line in sys.stdin:
        at_once, bodies = json.loads(line)
        results: list[Any] = [None] * len(bodies)
        left: SimpleQueue[tuple[int, bytes] | None] = SimpleQueue()
        for i, body in enumerate(bodies):
            left.put((i, json.dumps(body).encode()))
        for _ in range(at_once):
            left.put(None)

        def work(left=left, results=results) -> None:
            while (job := left.get()) is not None:
                try:
                    results[job[0]] = post(port, job[1])
                except OSError as error:
                    results[job[0]] = {"status": 0, "error": str(error), "tokens": 0}

        threads = [threading.Thread(target=work) for _ in range(at_once)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(json.dumps(results), flush=True)


if __name__ == "__main__":
    client(int(sys.argv[1]))
