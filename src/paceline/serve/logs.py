"""What happened, line by line on stderr: never a prompt, an answer or a key.

A line is one JSON object; where a person looks (stderr is a terminal), text. Lines are written by a
thread of their own: whoever reads them too slowly loses lines, and holds up nobody.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from threading import Thread
from time import perf_counter
from traceback import extract_tb
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from paceline.core.types import Emitted
    from paceline.serve.watch import Watch
    from paceline.text.request import Request

_WAITING = 10_000  # lines that may wait to be written
_PATIENCE = 2.0  # seconds for what is left at the end
_PLACES = 6  # of an error
_LONGEST = 200  # characters of a path
STATUS = {"error": 500, "failed": 500, "cancelled": 499}
"""The HTTP status of a request that ended so; of any other, 200."""


class Logs:
    """A `Watch` that writes a line for each request that ends. `about`: fields of all these lines,
    "model" and "draft" for example. `stream`: stderr; `human`: text instead of JSON, by default
    where the stream is a terminal."""

    def __init__(
        self,
        about: Mapping[str, str],
        stream: TextIO | None = None,
        human: bool | None = None,
    ) -> None:
        out: TextIO = stream or sys.stderr
        self._about = dict(about)
        text = out.isatty() if human is None else human
        self._writer = _Writer(out, _Human() if text else _Json())
        self._logger = logging.Logger("paceline.serve")
        self._logger.addHandler(self._writer)
        self._adopted: list[logging.Logger] = []

    def adopt(self, *names: str) -> None:
        """What other parts log under these names is written here, too, and nowhere else; of an
        error its kind and where it was raised, as its text may quote. Until `close`."""
        for logger in map(logging.getLogger, names):
            logger.propagate = False
            logger.addHandler(self._writer)
            self._adopted.append(logger)

    def close(self) -> None:
        """Write what is left, and end. May be called more than once."""
        for logger in self._adopted:
            logger.removeHandler(self._writer)
            logger.propagate = True
        self._adopted.clear()
        self._writer.close()

    def started(self, address: str, plan: Mapping[str, Any]) -> None:
        """The server can be reached at `address`. `plan`: what it was given."""
        self._say(logging.INFO, "started", {"address": address, **self._about, **plan})

    def stopped(self, code: int) -> None:
        """The server has ended, with that exit code."""
        self._say(logging.INFO, "stopped", {"code": code})

    def rejected(self, path: str, status: int) -> None:
        """A request to `path` was refused with that HTTP status."""
        fields = {"path": path[:_LONGEST], "status": status}
        self._say(logging.WARNING, "rejected", fields)

    def began(self, request: Request, waited_s: float) -> None:
        """See `Watch`."""

    def grew(self, request: Request, emitted: Emitted, seconds: float) -> None:
        """See `Watch`."""

    def ended(self, request: Request) -> None:
        """See `Watch`."""
        done, stats = request.completion, request.completion.stats
        fields = {
            "id": request.name,
            "status": STATUS.get(done.finish_reason, 200),
            **self._about,
            "finish_reason": done.finish_reason,
            "prompt_tokens": done.prompt_tokens,
            "completion_tokens": len(done.tokens),
            "ttft_s": round(stats.ttft_s, 4) if done.tokens else None,
            "total_s": round(perf_counter() - request.began, 4),
            "tau": _rounded(stats.tau if stats.drafted else None),
            "alpha": _rounded(stats.alpha),
        }
        if request.params.draft is not None:
            fields["draft"] = request.params.draft
        level = logging.ERROR if done.finish_reason in ("error", "failed") else logging.INFO
        self._say(level, "request", fields)

    def _say(self, level: int, event: str, fields: Mapping[str, Any]) -> None:
        self._logger.log(level, event, extra={"fields": fields})


class Both:
    """Several watches as one, each told in turn."""

    def __init__(self, *watches: Watch) -> None:
        self._watches: Sequence[Watch] = watches

    def began(self, request: Request, waited_s: float) -> None:
        """See `Watch`."""
        for watch in self._watches:
            watch.began(request, waited_s)

    def grew(self, request: Request, emitted: Emitted, seconds: float) -> None:
        """See `Watch`."""
        for watch in self._watches:
            watch.grew(request, emitted, seconds)

    def ended(self, request: Request) -> None:
        """See `Watch`."""
        for watch in self._watches:
            watch.ended(request)


class Refusals:
    """An ASGI application that runs `app` and tells of each answer that is an error: its path and
    HTTP status."""

    def __init__(self, app: ASGIApp, tell: Callable[[str, int], None]) -> None:
        self._app, self._tell = app, tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._tell(scope["path"], message["status"])
            await send(message)

        await self._app(scope, receive, answer)


class _Writer(logging.Handler):
    """Writes in a thread of its own. Never waits: a line for which there is no room is lost."""

    def __init__(self, stream: TextIO, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._stream = stream
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(_WAITING)
        self._thread = Thread(target=self._write, name="paceline-logs", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(queue.Full):
            self._lines.put_nowait(record)

    def close(self) -> None:
        with suppress(queue.Full):
            self._lines.put(None, timeout=_PATIENCE)
        self._thread.join(_PATIENCE)
        super().close()

    def _write(self) -> None:
        while (record := self._lines.get()) is not None:
            with suppress(OSError, ValueError):  # nobody is there to read it
                self._stream.write(self.format(record) + "\n")
                self._stream.flush()


def _fields(record: logging.LogRecord) -> tuple[str, Mapping[str, Any]]:
    """The event, and what is known of it."""
    if (own := getattr(record, "fields", None)) is not None:
        return record.getMessage(), own
    told: dict[str, Any] = {"message": record.getMessage()}
    if record.exc_info and (error := record.exc_info[1]):
        places = [f"{Path(f.filename).name}:{f.lineno}" for f in extract_tb(error.__traceback__)]
        told |= {"error": type(error).__name__, "at": places[-_PLACES:]}
    return "failed" if record.exc_info else "log", told


class _Json(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _fields(record)
        when = datetime.fromtimestamp(record.created, timezone.utc)
        start = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": event,
        }
        return json.dumps({**start, **fields})


class _Human(logging.Formatter):
    """One line for people."""

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _fields(record)
        if event == "request":
            told = _request(fields)
        else:
            told = f"{event}: " + ", ".join(f"{k} {_plain(v)}" for k, v in fields.items())
        return f"{self.formatTime(record, '%H:%M:%S')} {told}"


def _request(fields: Mapping[str, Any]) -> str:
    parts = [
        f"{fields['id'] or 'request'} {fields['status']} {fields['finish_reason']}",
        f"{fields['prompt_tokens']} + {fields['completion_tokens']} tokens",
        f"{fields['total_s']:.2f} s",
    ]
    if fields["ttft_s"] is not None:
        parts.append(f"first after {fields['ttft_s']:.2f} s")
    if fields["alpha"] is not None:
        parts.append(f"τ {fields['tau']:.2f}, α {fields['alpha']:.2f}")
    if "draft" in fields:
        parts.append(f"draft {fields['draft']}")
    return " · ".join(parts)


def _plain(value: Any) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if text.isprintable() else ascii(text)  # a path may hold a terminal's commands


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
