"""Runs the server until it is told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
from fastapi import FastAPI

from paceline.errors import PacelineError
from paceline.serve.engine import Engine

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_GRACE = 5.0  # seconds for cancelled answers to be sent


def run(
    app: FastAPI,
    engine: Engine,
    host: str = "127.0.0.1",
    port: int = 8000,
    *,
    drain: float = 30.0,
    started: Callable[[str], None] | None = None,
) -> int:
    """Serve `app` until SIGTERM or SIGINT, then let what runs finish, `drain` seconds at most;
    then what is left is cancelled and `engine` closed. A second signal ends it at once. Port 0
    takes a free one; `started` hears the address once connections are accepted. The exit code: 0,
    or 128 + the number of the second signal. Raises PacelineError if the port cannot be had."""
    listening = _listen(host, port)
    server = Server(app, engine, drain)
    if started is not None:
        started(_address(host, listening))
    try:
        server.run(sockets=[listening])
    finally:
        engine.close()
    return 128 + server.forced if server.forced else 0


class Server(uvicorn.Server):
    """uvicorn's, with our way to stop."""

    def __init__(self, app: FastAPI, engine: Engine, drain: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=int(drain + _GRACE) + 1,
                lifespan="off",
            )
        )
        self.forced = 0  # the signal that ended it at once
        self._engine, self._drain = engine, drain

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Without the raising of the signal again at the end: to have stopped is no failure."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops; the second one does not wait."""
        if self.should_exit:
            self.forced, self.force_exit = sig, True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let the answers that run finish; cancel them when it takes too long."""
        loop = asyncio.get_running_loop()
        late = loop.call_later(self._drain, lambda: loop.run_in_executor(None, self._engine.close))
        try:
            await super().shutdown(sockets)
        finally:
            late.cancel()


def _listen(host: str, port: int) -> socket.socket:
    try:
        where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        family, address = where[0], where[4]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            if os.name == "posix":
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(2048)
        except OSError:
            listening.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PacelineError(
            f"cannot listen on {host}:{port}: {reason}; choose another with --host and --port"
        ) from None
    listening.setblocking(False)
    return listening


def _address(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
