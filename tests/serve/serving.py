"""A real server on a free port of this machine, and bare sockets to it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai

from paceline.serve.app import make_app
from paceline.serve.run import Server
from paceline.serve.settings import LOOPBACK, Settings


@dataclass
class Served:
    """A running server over `engine`."""

    port: int
    engine: Any
    app: Any
    clients: list[openai.OpenAI] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "none", **settings: Any) -> openai.OpenAI:
        """The official client; it does not try again, so that errors are seen."""
        self.clients.append(
            openai.OpenAI(
                base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=30, **settings
            )
        )
        return self.clients[-1]

    def connect(self, timeout: float = 10) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout)

    def send(self, raw: bytes) -> socket.socket:
        """A connection on which `raw` was sent."""
        connection = self.connect()
        connection.sendall(raw)
        return connection

    def exchange(self, raw: bytes) -> bytes:
        """Everything that is answered to `raw` until the server hangs up."""
        with self.send(raw) as connection:
            return read_all(connection)


@contextlib.contextmanager
def serving(engine: Any, settings: Settings | None = None, metrics: Any = None) -> Iterator[Served]:
    """Serve `engine`, which is started and closed here."""
    engine.start()
    app = make_app(engine, settings or Settings(hosts=LOOPBACK), metrics)
    listening = socket.create_server(("127.0.0.1", 0))
    server = Server(app, engine, drain=5)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started)
        served = Served(listening.getsockname()[1], engine, app)
        yield served
        for client in served.clients:
            client.close()
    finally:
        engine.close()
        server.should_exit = server.force_exit = True
        thread.join()


def until(holds: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something to hold."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came to hold"
        time.sleep(0.002)


def post(path: str, body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> bytes:
    """A request as it goes over the wire; the server hangs up after the answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(raw)),
        "Connection": "close",
    } | (headers or {})
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + raw


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def status_and_error(answer: bytes) -> tuple[int, dict[str, Any]]:
    """The status of a raw answer, and what stands under "error" in its body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    error = json.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return int(head.split()[1]), error


def give_tools(folder: Path) -> None:
    """Make the chat template of `tiny.write_tokenizer` one that knows tools."""
    calls = "{% for c in m.tool_calls or [] %}!{{ c.function.arguments | tojson }}{% endfor %}"
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    template = config["chat_template"].replace("{% endfor %}", calls + "{% endfor %}", 1)
    config["chat_template"] = "{% if tools %}{{ tools | tojson }}{% endif %}" + template
    path.write_text(json.dumps(config))


CHAT = {"messages": [{"role": "user", "content": "hi"}]}
