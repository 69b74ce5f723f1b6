"""How a server ends."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest
from serving import CHAT

from paceline.errors import PacelineError
from paceline.serve.run import run

HERE = Path(__file__).parent
PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
from fake_engine import FakeEngine, forever, says
from paceline.serve.app import make_app
from paceline.serve.run import run
from paceline.text.tokenizer import Tokenizer
script = forever if sys.argv[4] == "forever" else says(sys.argv[4])
engine = FakeEngine(Tokenizer.from_folder(sys.argv[3]), script, pace=0.02, context=10**6)
engine.start()
started = lambda address: print(address, flush=True)
sys.exit(run(make_app(engine), engine, port=0, drain=float(sys.argv[5]), started=started))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tiny import write_tokenizer

    folder = tmp_path_factory.mktemp("run")
    write_tokenizer(folder)
    return str(folder)


@contextmanager
def _running(folder, says, drain):
    """A server process and a stream from it, of which the first event has been read."""
    paths = [str(HERE), str(HERE.parent), folder]
    arguments = [sys.executable, "-c", PROGRAM, *paths, says, str(drain)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().decode().strip()
            request = urllib.request.Request(
                f"{address}/v1/chat/completions",
                json.dumps({**CHAT, "stream": True}).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=20) as stream:
                assert b"assistant" in stream.readline()
                yield process, stream, address
        finally:
            process.kill()


def _said(events):
    lines = [line[6:] for line in events.decode().split("\n\n") if line and line != "data: [DONE]"]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    return "".join(choice["delta"].get("content", "") for choice in choices)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish_and_takes_no_more(folder, number):
    with _running(folder, "twenty letters, no 1", 20) as (process, stream, address):
        process.send_signal(number)
        rest = stream.read()
        assert _said(rest.strip()) == "twenty letters, no 1"
        assert rest.endswith(b"data: [DONE]\n\n")
        assert process.wait(10) == 0
        host, port = address.removeprefix("http://").split(":")
        with pytest.raises(OSError, match=r"refused|reset"):
            socket.create_connection((host, int(port)))


def test_what_takes_longer_is_cancelled_and_told(folder):
    with _running(folder, "forever", 0.3) as (process, stream, _):
        process.send_signal(signal.SIGTERM)
        last = stream.read().split(b"\n\n")[-2]
        assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "not_ready"
        assert process.wait(10) == 0


def test_a_second_signal_does_not_wait(folder):
    with _running(folder, "forever", 600) as (process, _, _):
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 128 + signal.SIGTERM


def test_a_port_that_is_taken_is_said(polite):
    with pytest.raises(PacelineError, match=rf"cannot listen on 127.0.0.1:{polite.port}: .*--port"):
        run(polite.app, polite.engine, "127.0.0.1", polite.port)
    assert polite.engine.ready
