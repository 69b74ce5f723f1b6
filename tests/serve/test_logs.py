"""Lines for those who run a server: all the figures, and nothing of what was said."""

from __future__ import annotations

import io
import json
import logging
import time

import pytest

from paceline.core.params import SamplingParams
from paceline.core.types import Emitted, Seconds
from paceline.errors import PacelineError
from paceline.serve.logs import Both, Logs
from paceline.text.completion import Token
from tiny_requests import request

ABOUT = {"model": "m", "draft": "lookup:5"}
SECRET, ANSWER, KEY = "my secret prompt", "the secret answer", "sk-secret-key"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def answered(logs: Logs, finish: str = "stop", params: SamplingParams | None = None) -> None:
    """A request of 16 tokens that drafted 4, of which 3 were accepted."""
    one = request(SECRET.encode(), params)
    done = one.completion
    done.tokens += [Token(byte, chr(byte), "plain") for byte in ANSWER.encode()]
    done.finish_reason = finish
    done.stats.add(Emitted([1, 2, 3, 4], 4, 3), Seconds(0.1, 0.2, 0.0))
    done.stats.ttft_s = 0.25
    one.name = "chatcmpl-1"
    logs.ended(one)


def written(logs: Logs, stream: io.StringIO) -> list[dict]:
    logs.close()
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_is_one_object_with_all_its_figures():
    logs = Logs(ABOUT, stream := io.StringIO())
    answered(logs)
    (line,) = written(logs, stream)
    assert line.pop("time").endswith("+00:00")
    assert 0 <= line.pop("total_s") < 5
    assert line == {
        "level": "info",
        "event": "request",
        "id": "chatcmpl-1",
        "status": 200,
        "model": "m",
        "draft": "lookup:5",
        "finish_reason": "stop",
        "prompt_tokens": len(SECRET),
        "completion_tokens": len(ANSWER),
        "ttft_s": 0.25,
        "tau": 4.0,
        "alpha": 0.75,
    }


def test_what_a_request_chose_itself_and_how_it_ended():
    logs = Logs(ABOUT, stream := io.StringIO())
    answered(logs, "cancelled", SamplingParams(draft="none"))
    answered(logs, "error")
    logs.ended(request([1]))  # left the queue without a token
    cancelled, failed, queued = written(logs, stream)
    assert (cancelled["status"], cancelled["draft"]) == (499, "none")
    assert (failed["status"], failed["level"]) == (500, "error")
    assert [queued[key] for key in ("id", "ttft_s", "tau", "alpha")] == [None] * 4


def test_never_a_prompt_an_answer_or_a_key():
    for human in (False, True):
        logs = Logs(ABOUT, stream := io.StringIO(), human=human)
        answered(logs, params=SamplingParams(stop=(SECRET,)))
        logs.started("http://127.0.0.1:8000", {"slots": 8})
        logs.rejected("/v1/completions", 401)
        logs.adopt("somebody")
        try:
            raise PacelineError(f"{SECRET} {ANSWER} {KEY}")
        except PacelineError as error:
            logging.getLogger("somebody").error("it failed", exc_info=error)
        logs.stopped(0)
        logs.close()
        text = stream.getvalue()
        assert len(text.splitlines()) == 5
        for secret in (SECRET, ANSWER, KEY, "secret"):
            assert secret not in text


def test_the_other_lines():
    logs = Logs(ABOUT, stream := io.StringIO())
    logs.started("http://127.0.0.1:8000", {"slots": 8, "memory_bytes": 12})
    logs.rejected("/v1/completions", 429)
    logs.stopped(143)
    logs.adopt("somebody.else")
    other = logging.getLogger("somebody.else")
    try:
        raise KeyError("x")
    except KeyError:
        other.exception("GET %s failed", "/x")
    started, rejected, stopped, failed = written(logs, stream)
    assert (started["event"], started["address"]) == ("started", "http://127.0.0.1:8000")
    assert (started["slots"], started["memory_bytes"], started["draft"]) == (8, 12, "lookup:5")
    assert (rejected["event"], rejected["level"]) == ("rejected", "warning")
    assert (rejected["path"], rejected["status"]) == ("/v1/completions", 429)
    assert (stopped["event"], stopped["code"]) == ("stopped", 143)
    assert (failed["event"], failed["error"], failed["level"]) == ("failed", "KeyError", "error")
    assert failed["message"] == "GET /x failed"
    assert failed["at"][-1].startswith("test_logs.py:")
    assert (other.handlers, other.propagate) == ([], True)  # given back


def test_a_terminal_gets_text():
    logs = Logs(ABOUT, stream := Terminal())
    answered(logs)
    logs.close()
    (line,) = stream.getvalue().splitlines()
    assert "chatcmpl-1 200 stop · 16 + 17 tokens" in line
    assert line.endswith("first after 0.25 s · τ 4.00, α 0.75 · draft lookup:5")


def test_a_path_that_means_mischief():
    for human in (False, True):
        logs = Logs(ABOUT, stream := io.StringIO(), human=human)
        logs.rejected("/\x1b[2J\nfake line" + "x" * 10_000, 404)
        logs.close()
        (line,) = stream.getvalue().splitlines()
        assert "\x1b" not in line
        assert len(line) < 400


class Stuck(io.StringIO):
    """Nobody reads what is written to it."""

    held = True

    def write(self, text: str) -> int:
        while self.held:
            time.sleep(0.01)
        return super().write(text)


def test_a_reader_that_does_not_read_holds_up_nobody(monkeypatch):
    monkeypatch.setattr("paceline.serve.logs._WAITING", 3)
    logs = Logs(ABOUT, stream := Stuck())
    for i in range(50):  # returns, though none can be written
        logs.rejected(f"/{i}", 400)
    stream.held = False
    paths = [line["path"] for line in written(logs, stream)]
    assert paths == [f"/{i}" for i in range(len(paths))]
    assert 3 <= len(paths) <= 4


class Recorder:
    def __init__(self) -> None:
        self.heard: list[tuple] = []

    def began(self, *what) -> None:
        self.heard.append(("began", *what))

    def grew(self, *what) -> None:
        self.heard.append(("grew", *what))

    def ended(self, *what) -> None:
        self.heard.append(("ended", *what))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_several_watches_hear_the_same(count):
    each = [Recorder() for _ in range(count)]
    both, one = Both(*each), request([1])
    emitted = Emitted([1], 0, 0)
    both.began(one, 0.5)
    both.grew(one, emitted, 0.25)
    both.ended(one)
    for watch in each:
        assert watch.heard == [("began", one, 0.5), ("grew", one, emitted, 0.25), ("ended", one)]
