"""`paceline serve` as a user meets it: what it refuses, what it prints, and how it ends."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

from tiny import write_llama

SECRET = "tell nobody of this prompt"
KEY = "sk-the-key"


class Server:
    """A server in a process of its own, up to its curl line; stderr goes to `log`."""

    def __init__(self, args: list[str], environment: dict[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "paceline", "serve", "--port", "0", *args],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                text=True,
            )
        assert self.process.stdout is not None
        self.printed: list[str] = []
        for line in self.process.stdout:
            self.printed.append(line.rstrip("\n"))
            if line.startswith("curl "):
                break
        assert self.printed, self.said
        self.curl = self.printed[-1]

    @property
    def said(self) -> str:
        return self._log.read_text()

    @property
    def lines(self) -> list[dict]:
        """What was logged."""
        return [json.loads(line) for line in self.said.splitlines() if line.startswith("{")]

    @property
    def port(self) -> int:
        return int(self.curl.split("127.0.0.1:")[1].split("/")[0])

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        sent = None if body is None else json.dumps(body)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, sent, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response.status, text

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        assert self.process.stdout is not None
        assert self.process.stdout.read() == ""  # nothing after the curl line
        self.process.stdout.close()
        return code


Starts = Callable[..., Server]


@pytest.fixture
def serving(environment, tmp_path) -> Starts:
    @contextmanager
    def start(*args: str, **variables: str) -> Iterator[Server]:
        server = Server(list(args), {**environment, **variables}, tmp_path / "log")
        try:
            yield server
        finally:
            server.process.kill()
            server.process.wait()
            if server.process.stdout:
                server.process.stdout.close()

    return start


@pytest.fixture
def one(serving, tiny):
    """A tiny server of two slots."""
    with serving("-m", tiny, "--slots", "2", "--draft", "lookup:3", "--draft", "lookup:5") as made:
        yield made


def test_it_prints_the_plan_and_a_curl_line_that_works(one):
    *plan, curl = one.printed
    parts = [line.split(maxsplit=2)[2] for line in plan]
    assert parts[0] == "weights of the target"
    assert parts[2] == "caches of 2 x 512 tokens"
    assert parts[-1].startswith("total, of ")
    done = subprocess.run(shlex.split(curl), capture_output=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    assert answer["object"] == "chat.completion"
    assert answer["choices"][0]["message"]["role"] == "assistant"
    assert 0 < answer["usage"]["completion_tokens"] <= 64


def test_it_logs_counts_and_ends_with_0(one, tiny):
    body = {"model": tiny, "prompt": SECRET, "max_tokens": 8, "ignore_eos": True, "temperature": 0}
    status, text = one.ask("POST", "/v1/completions", body)
    assert status == 200, text
    said = json.loads(text)["choices"][0]["text"]
    assert one.ask("POST", "/v1/completions", {**body, "draft": "lookup:5"})[0] == 200
    assert one.ask("POST", "/v1/completions", {**body, "surprise": SECRET})[0] == 400
    assert one.ask("GET", "/nowhere")[0] == 404
    status, text = one.ask("GET", "/metrics")
    assert status == 200
    metrics = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    assert float(metrics["paceline:generation_tokens_total"]) == 16
    assert float(metrics["paceline:prompt_tokens_total"]) == 2 * len(SECRET)
    assert float(metrics['paceline:request_success_total{finished_reason="length"}']) == 2
    assert float(metrics["paceline:slots"]) == 2
    assert float(metrics["paceline:num_requests_running"]) == 0
    assert one.stop() == 0
    started, *requests, bad, lost = [
        line for line in one.lines if line["event"] in ("started", "request", "rejected")
    ]
    assert started["address"] == f"http://127.0.0.1:{one.port}"
    assert (started["slots"], started["context"]) == (2, 512)
    assert [line["completion_tokens"] for line in requests] == [8, 8]
    assert [line["draft"] for line in requests] == ["lookup:3", "lookup:5"]
    assert all(line["finish_reason"] == "length" for line in requests)
    assert (bad["path"], bad["status"]) == ("/v1/completions", 400)
    assert (lost["path"], lost["status"]) == ("/nowhere", 404)
    assert SECRET not in one.said
    assert len(said) < 3 or said not in one.said


def test_sigterm_lets_an_answer_finish(one, tiny):
    body = {"model": tiny, "prompt": "abc", "max_tokens": 400, "ignore_eos": True, "stream": True}
    connection = HTTPConnection("127.0.0.1", one.port, timeout=30)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    response = connection.getresponse()
    begun = response.read(20)
    one.process.send_signal(signal.SIGTERM)
    rest = response.read()
    connection.close()
    assert (begun + rest).endswith(b"data: [DONE]\n\n")
    assert one.process.wait(30) == 0
    answered, stopped = one.lines[-2:]
    assert (answered["event"], answered["completion_tokens"]) == ("request", 400)
    assert (stopped["event"], stopped["code"]) == ("stopped", 0)


def test_a_key_is_asked_for_and_never_written(serving, tiny):
    with serving("-m", tiny, "--slots", "1", PACELINE_API_KEY=KEY) as server:
        assert server.ask("GET", "/v1/models")[0] == 401
        assert server.ask("GET", "/v1/models", Authorization="Bearer wrong")[0] == 401
        assert server.ask("GET", "/v1/models", Authorization=f"Bearer {KEY}")[0] == 200
        assert server.ask("GET", "/health")[0] == 200
        done = subprocess.run(
            ["bash", "-c", server.curl], env={"PACELINE_API_KEY": KEY, "PATH": "/usr/bin:/bin"},
            capture_output=True, timeout=60, check=True,
        )  # fmt: skip
        assert json.loads(done.stdout)["usage"]["completion_tokens"] > 0
        assert server.stop() == 0
        assert KEY not in server.said + "\n".join(server.printed)


def test_a_model_without_a_template_continues_texts(serving, tmp_path):
    folder = write_llama(tmp_path / "base")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    with serving("-m", str(folder), "--slots", "1") as server:
        assert "/v1/completions" in server.curl
        done = subprocess.run(shlex.split(server.curl), capture_output=True, timeout=60, check=True)
        assert json.loads(done.stdout)["object"] == "text_completion"


BAD = [
    (("--slots", "0"), "--slots must be at least 1"),
    (("--slots", "1000000"), "use --slots"),
    (("--slots", "-3"), "--slots must be at least 1"),
    (("--slots", "2.5"), "--slots"),
    (("--queue", "-1"), "--queue must be at least 0"),
    (("--budget", "0"), "--budget must be at least 1"),
    (("--time-limit", "0"), "--time-limit must be more than 0"),
    (("--time-limit", "nan"), "--time-limit must be more than 0"),
    (("--max-body", "-1"), "--max-body must be more than 0"),
    (("--drain", "inf"), "--drain must be at least 0"),
    (("--port", "70000"), "--port"),
    (("--host", "no.such.host.invalid"), "there is no such host"),
    (("--host", "192.0.2.1", "--api-key", "x"), "cannot listen on 192.0.2.1"),
    (("--host", "0.0.0.0"), "--api-key"),
    (("--host", "::"), "--api-key"),
    (("--api-key", ""), "--api-key must be"),
    (("--draft", "lookup", "--draft", "lookpu"), "did you mean 'lookup'"),
    (("--k", "99"), "k must be"),
    (("--context", "0"), "--context must be at least 64"),
]


@pytest.mark.parametrize(("args", "says"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(paceline, tiny, args, says):
    done = paceline("serve", "-m", tiny, "--port", "0", *args)
    said = [line for line in done.stderr.decode().splitlines() if not line.startswith("dtype ")]
    assert done.returncode == 2, said
    assert len(said) == 1, said
    assert says in said[0]
    assert done.stdout == b""


def test_a_port_that_is_taken(paceline, tiny):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = paceline("serve", "-m", tiny, "--port", str(port))
    assert done.returncode == 2
    assert done.stderr.decode().startswith(f"paceline: cannot listen on 127.0.0.1:{port} (")
    assert "another --port" in done.stderr.decode()


def test_what_is_not_installed_is_named(tiny, environment):
    code = (
        "import sys; from importlib import util; find = util.find_spec\n"
        "util.find_spec = lambda name, *a: None if name == 'psutil' else find(name, *a)\n"
        "from paceline.cli import run; sys.exit(run(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", "-m", tiny], capture_output=True, env=environment
    )
    assert done.returncode == 2
    assert (
        done.stderr == b"paceline: paceline serve needs an extra: pip install 'paceline[serve]'\n"
    )
