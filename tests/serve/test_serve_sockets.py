"""What comes over a socket that no client library would send."""

from __future__ import annotations

import json
import re
import socket
import struct
import time

import pytest
from fake_engine import forever, says
from serving import CHAT, post, read_all, status_and_error, until

from paceline.serve.settings import Settings

PATHS = ["/v1/chat/completions", "/v1/completions"]
MALFORMED = {
    "nothing": b"",
    "cut off": b'{"messages": [{"role": "us',
    "not JSON": b"hello",
    "a number": b"7",
    "a list": b"[]",
    "null": b"null",
    "NaN": b'{"messages": [{"role": "user", "content": "x"}], "prompt": "x", "temperature": NaN}',
    "Infinity": b'{"messages": [], "prompt": "x", "temperature": Infinity}',
    "overflow": b'{"messages": [{"role":"user","content":"x"}], "prompt": "x", "top_p": 1e999}',
    "bad UTF-8": b'{"messages": [{"role": "user", "content": "\xff\xfe"}], "prompt": "\xff"}',
    "half a character": b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    "a NUL": b'{"messages": "\x00"}',
    "a bad key": b'{"\\ud83d": 1}',
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_refused_and_the_next_request_works(polite, path, name):
    status, error = status_and_error(polite.exchange(post(path, MALFORMED[name])))
    assert status == 400
    assert error["type"] == "invalid_request_error"
    answer = polite.client().chat.completions.create(model="fake", **CHAT)
    assert answer.choices[0].message.content == "ok"


@pytest.mark.parametrize("opening", ["[", '{"a":', '[{"a":'])
def test_deep_nesting_is_refused(polite, opening):
    body = b'{"messages": ' + opening.encode() * 200_000
    status, error = status_and_error(polite.exchange(post(PATHS[0], body)))
    assert (status, error["code"]) == (400, "invalid_json")


HUGE = {  # what is around and what is repeated, # standing for a number
    "floats": (PATHS[1], '{"prompt":[', "7.5", "]}"),
    "empty lists": (PATHS[1], '{"prompt":[', "[]", "]}"),
    "texts": (PATHS[1], '{"prompt":[', '""', "]}"),
    "a text": (PATHS[1], '{"prompt":"', "é", '"}'),
    "a chat": (PATHS[0], '{"messages":[{"role":"user","content":"', "é", '"}]}'),
    "messages": (PATHS[0], '{"messages":[', '{"role":"user","content":""}', "]}"),
    "no messages": (PATHS[0], '{"messages":[', "7", "]}"),
    "parts": (PATHS[0], '{"messages":[{"role":"user","content":[', "{}", "]}]}"),
    "stops": (PATHS[1], '{"prompt":"x","stop":[', '"ab"', "]}"),
    "fields": (PATHS[1], "{", '"#":1', "}"),
    "biases": (PATHS[1], '{"prompt":"x","logit_bias":{', '"#":"x"', "}}"),
}


@pytest.mark.parametrize("name", HUGE)
def test_megabytes_of_nonsense_are_refused_without_a_hang(polite, name):
    path, before, entry, after = HUGE[name]
    many = (entry.replace("#", str(i)) for i in range(6_000_000 // (len(entry) + 5)))
    body = (before + ",".join(many) + after).encode()
    with polite.send(post(path, body)) as connection:
        connection.settimeout(10)
        status, error = status_and_error(read_all(connection))
    assert status == 400
    assert len(error["message"]) <= 501


def test_a_schema_as_deep_as_json_may_be_is_answered_or_refused(polite):
    schema: dict = {"type": "string"}
    for _ in range(90):
        schema = {"type": "array", "items": schema}
    form = {"type": "json_schema", "json_schema": {"name": "deep", "schema": schema}}
    answer = polite.exchange(post(PATHS[0], {**CHAT, "response_format": form}))
    assert int(answer.split()[1]) in (200, 400)


def test_the_body_must_say_that_it_is_json(polite):
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        raw = post(PATHS[0], CHAT, {"Content-Type": kind})
        status, error = status_and_error(polite.exchange(raw))
        assert (status, error["message"]) == (415, "the body must be sent as application/json")


@pytest.mark.parametrize("length", ["10485760", "999999999999999999"])
def test_a_length_over_the_limit_is_refused_before_the_body_comes(polite, length):
    raw = post(PATHS[0], b"", {"Content-Length": length})
    status, error = status_and_error(polite.exchange(raw))  # not a byte of it is sent
    assert (status, error["message"]) == (413, "the body is larger than 8388608 bytes")


def test_ten_megabytes_are_refused_and_the_client_can_read_why(polite):
    body = b'{"prompt": "' + b"x" * 10 * 2**20 + b'"}'
    status, error = status_and_error(polite.exchange(post(PATHS[1], body)))
    assert (status, error["type"]) == (413, "invalid_request_error")


def test_a_body_of_unknown_length_is_read_up_to_the_limit(scripted):
    served = scripted(says("ok"), Settings(body_limit=100_000))
    raw = post(PATHS[1], b"", {"Content-Length": "", "Transfer-Encoding": "chunked"})
    small = json.dumps({"prompt": "x"}).encode()
    answer = served.exchange(raw + b"%x\r\n%s\r\n0\r\n\r\n" % (len(small), small))
    assert b" 200 " in answer.split(b"\r\n")[0]
    chunk = b"2710\r\n" + b" " * 10_000 + b"\r\n"
    status, _ = status_and_error(served.exchange(raw + chunk * 20 + b"0\r\n\r\n"))
    assert status == 413


def test_a_body_that_does_not_come_is_not_waited_for_forever(scripted):
    served = scripted(says("ok"), Settings(body_timeout=0.1))
    raw = post(PATHS[1], b'{"prompt"', {"Content-Length": "100"})
    status, error = status_and_error(served.exchange(raw))
    assert (status, error["message"]) == (408, "the body did not arrive in time")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["close", "reset", "half-close"])
def test_who_goes_away_is_cancelled(scripted, path, stream, how):
    served = scripted(forever, pace=0.002, slots=1)
    body = {**(CHAT if "chat" in path else {"prompt": "x", "max_tokens": 10**6}), "stream": stream}
    connection = served.send(post(path, body))
    until(lambda: served.engine.load.running == 1)
    if how == "half-close":
        connection.shutdown(socket.SHUT_WR)
    elif how == "reset":
        now = struct.pack("ii", 1, 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, now)
        connection.close()
    else:
        connection.close()
    until(lambda: served.engine.load.running == 0, 2)
    assert served.engine.cancels == 1
    connection.close()


def test_who_goes_away_from_the_queue_is_cancelled(scripted):
    served = scripted(forever, pace=0.002, slots=1)
    body = {**CHAT, "stream": True, "n": 2}
    connection = served.send(post(PATHS[0], body))
    until(lambda: (served.engine.load.running, served.engine.load.waiting) == (1, 1))
    connection.close()
    until(lambda: (served.engine.load.running, served.engine.load.waiting) == (0, 0), 2)


def test_who_reads_too_slowly_is_cancelled_and_told(scripted):
    served = scripted(forever, Settings(unsent_limit=500), context=10**9)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", served.port))
    connection.sendall(post(PATHS[0], {**CHAT, "stream": True, "logprobs": True}))
    until(lambda: served.engine.cancels == 1)
    until(lambda: served.engine.load.running == 0, 2)
    answer = read_all(connection)
    connection.close()
    assert b'"code": "slow_client"' in answer
    assert b"[DONE]" not in answer


def test_pieces_that_pile_up_are_sent_together_and_none_is_lost(scripted):
    text = "".join(chr(97 + i % 26) for i in range(3000))
    served = scripted(says(text), context=10**5)
    connection = served.send(post(PATHS[0], {**CHAT, "stream": True}))
    time.sleep(0.2)
    answer = read_all(connection).decode()
    connection.close()
    said = re.findall(r'"delta":{"content":"([a-z]*)"}', answer)
    assert "".join(said) == text
    assert len(said) < len(text)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("127.0.0.1:8000", 200),
        ("[::1]:9", 200),
        ("LOCALHOST:80", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil:80", 403),
    ],
)
def test_a_name_of_somebody_elses_is_refused(polite, host, status):
    answer = polite.exchange(post(PATHS[0], CHAT, {"Host": host}))
    assert int(answer.split()[1]) == status
    health = f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    assert int(polite.exchange(health).split()[1]) == status
