"""What is refused, and that it is told by name."""

from __future__ import annotations

import json

import openai
import pytest
from fake_engine import forever, says
from serving import CHAT, post, status_and_error, until

from paceline.errors import PacelineError
from paceline.serve.settings import Settings, hosts_of
from paceline.serve.watch import Stopping

CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "x"}
TOOL = {"type": "function", "function": {"name": "f"}}


def _refused(served, path, fields, status=400):
    base = CHAT if path == CHAT_PATH else {"prompt": "x"}
    found, error = status_and_error(served.exchange(post(path, base | fields)))
    assert found == status, error
    return error


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", "1"),
        ("temperature", -0.1),
        ("temperature", True),
        ("temperature", [1]),
        ("temperature", 1e400),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 2.5),
        ("min_p", 2),
        ("frequency_penalty", 2.1),
        ("presence_penalty", -3),
        ("repetition_penalty", 0),
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", "5"),
        ("max_tokens", 10**30),
        ("n", 0),
        ("n", 129),
        ("n", 1.5),
        ("seed", 2**63),
        ("seed", "7"),
        ("stop", ""),
        ("stop", 5),
        ("stop", ["a"] * 17),
        ("stop_token_ids", [-1]),
        ("stream", "yes"),
        ("stream", 1),
        ("num_speculative_tokens", -1),
        ("num_speculative_tokens", 2.5),
        ("num_speculative_tokens", "5"),
        ("num_speculative_tokens", 10**6),
        ("draft", 5),
        ("draft", "nothing"),
        ("verify", "nothing"),
        ("logit_bias", [1]),
        ("logit_bias", {"99999": 1}),
        ("store", True),
        ("service_tier", "flex"),
        ("user", 5),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_field(polite, path, field, value):
    raw = json.dumps((CHAT if path == CHAT_PATH else {"prompt": "x"}) | {field: value})
    raw = raw.replace("Infinity", "1e400").encode()
    status, error = status_and_error(polite.exchange(post(path, raw)))
    assert status == 400
    assert error["param"].split("[")[0] == field
    assert field in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (CHAT_PATH, {"messages": []}, "messages"),
        (CHAT_PATH, {"messages": "hi"}, "messages"),
        (CHAT_PATH, {"messages": [USER, {"role": "robot", "content": ""}]}, "messages[1].role"),
        (CHAT_PATH, {"messages": [{"content": "x"}]}, "messages[0].role"),
        (CHAT_PATH, {"messages": [{"role": "user"}]}, "messages[0].content"),
        (CHAT_PATH, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        (CHAT_PATH, {"messages": [{**USER, "images": []}]}, "messages[0].images"),
        (CHAT_PATH, {"messages": [{"role": "tool", "content": ""}]}, "messages[0].tool_call_id"),
        (CHAT_PATH, {"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        (CHAT_PATH, {"top_logprobs": 2}, "top_logprobs"),
        (CHAT_PATH, {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        (CHAT_PATH, {"logprobs": 1}, "logprobs"),
        (CHAT_PATH, {"response_format": {"type": "xml"}}, "response_format.type"),
        (CHAT_PATH, {"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (CHAT_PATH, {"tools": [{"type": "web"}]}, "tools[0].type"),
        (CHAT_PATH, {"tool_choice": "required"}, "tool_choice"),
        (CHAT_PATH, {"tools": [TOOL], "tool_choice": "sometimes"}, "tool_choice"),
        (
            CHAT_PATH,
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
        ),
        (CHAT_PATH, {"tools": [TOOL], "parallel_tool_calls": False}, "parallel_tool_calls"),
        (CHAT_PATH, {"tools": [TOOL], "grammar": 'start: "a"'}, "grammar"),
        (
            CHAT_PATH,
            {"response_format": {"type": "json_object"}, "grammar": 'start: "a"'},
            "response_format",
        ),
        (CHAT_PATH, {"stream_options": {"include_usage": True}}, "stream_options"),
        (CHAT_PATH, {"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
        (TEXT_PATH, {"prompt": []}, "prompt"),
        (TEXT_PATH, {"prompt": [[]]}, "prompt[0]"),
        (TEXT_PATH, {"prompt": {"a": 1}}, "prompt"),
        (TEXT_PATH, {"prompt": [999]}, "prompt"),
        (TEXT_PATH, {"prompt": ["x"] * 9}, "prompt"),
        (TEXT_PATH, {"logprobs": 21}, "logprobs"),
        (TEXT_PATH, {"logprobs": True}, "logprobs"),
        (TEXT_PATH, {"echo": True}, "echo"),
    ],
)
def test_what_does_not_go_together_is_refused(polite, path, fields, param):
    error = _refused(polite, path, fields)
    assert error["param"] == param


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            CHAT_PATH,
            ["audio", "prediction", "reasoning_effort", "verbosity", "functions", "function_call"],
        ),
        (TEXT_PATH, ["best_of", "suffix"]),
    ],
)
def test_what_openai_has_and_this_server_has_not_is_refused_by_name(polite, path, names):
    for name in names:
        error = _refused(polite, path, {name: "x"})
        assert (error["param"], error["code"]) == (name, "unsupported_field")
        answer = polite.exchange(post(path, {"prompt": "x", name: None}))  # as if left out
        assert b" 200 " in answer.split(b"\r\n")[0] or path == CHAT_PATH


def test_all_unknown_fields_are_named(polite):
    for path in (CHAT_PATH, TEXT_PATH):
        error = _refused(polite, path, {"temprature": 1, "beam_width": 2})
        assert error["message"] == "unknown field: temprature, beam_width"
        assert (error["param"], error["code"]) == ("temprature", "unknown_field")


def test_broken_grammars_are_refused(polite):
    for fields in (
        {"grammar": "start: ("},
        {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "no"}}}},
    ):
        error = _refused(polite, CHAT_PATH, fields)
        assert "cannot be used" in error["message"]


def test_a_long_message_is_cut(polite):
    error = _refused(polite, CHAT_PATH, {"messages": [{"role": "x" * 10**6, "content": ""}]})
    assert len(error["message"]) <= 501


def test_paths_and_methods(polite):
    for line, status in (("GET /v1/nothing", 404), ("GET /v1/completions", 405)):
        raw = f"{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        found, error = status_and_error(polite.exchange(raw))
        assert (found, error["param"]) == (status, None)
    with pytest.raises(openai.NotFoundError):
        polite.client().models.retrieve("another")


def test_the_page_cannot_load_anything_from_elsewhere(polite):
    raw = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head = polite.exchange(raw).partition(b"\r\n\r\n")[0].decode().lower()
    assert (
        "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; "
        "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ) in head
    assert "x-content-type-options: nosniff" in head
    assert "cache-control: no-cache" in head
    assert "access-control-allow-origin" not in head


def test_pages_of_other_servers_may_ask_only_if_they_are_let_in(scripted):
    origin = "Origin: http://elsewhere\r\nAccess-Control-Request-Method: POST\r\n"
    raw = f"OPTIONS {CHAT_PATH} HTTP/1.1\r\nHost: localhost\r\n{origin}Connection: close\r\n\r\n"
    for origins, status in (((), 401), (("http://elsewhere",), 200)):
        served = scripted(forever, Settings(origins=origins, api_key="k"))
        head = served.exchange(raw.encode()).partition(b"\r\n\r\n")[0].decode().lower()
        assert int(head.split()[1]) == status  # a browser sends no key before it may
        allowed = "access-control-allow-origin: http://elsewhere" in head
        assert allowed == bool(origins)


def test_what_the_engine_refuses_is_told(scripted):
    served = scripted(forever, pace=0.002)
    engine = served.engine
    engine.broken = PacelineError("draft 'x' is not loaded; known: none")
    error = _refused(served, CHAT_PATH, {})
    assert (error["message"], error["param"]) == (str(engine.broken), "draft")
    engine.broken = PacelineError("k must be smaller")
    assert _refused(served, CHAT_PATH, {})["param"] == "num_speculative_tokens"
    engine.broken = Stopping()
    assert _refused(served, CHAT_PATH, {}, 503)["code"] == "not_ready"
    engine.broken = RuntimeError("a secret")
    for stream in (False, True):
        error = _refused(served, CHAT_PATH, {"stream": stream}, 500)
        assert error["message"] == "something went wrong in the server"


def test_while_no_token_can_be_made_it_is_not_ready(scripted):
    served = scripted(forever, pace=0.002, context=10**6)
    client = served.client()
    running = client.chat.completions.create(model="fake", **CHAT, stream=True)
    until(lambda: served.engine.load.running == 1)
    assert not served.engine.drain(0)
    raw = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    status, error = status_and_error(served.exchange(raw))
    assert (status, error["code"]) == (503, "not_ready")
    with pytest.raises(openai.InternalServerError) as refused:
        client.chat.completions.create(model="fake", **CHAT)
    assert refused.value.status_code == 503
    served.engine.close()  # what runs is cancelled, and its client told
    with pytest.raises(openai.APIError, match="starting or stopping"):
        list(running)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", "localhost"),
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "[::1]"),
        ("localhost", "127.0.0.1"),
        ("0.0.0.0", None),
        ("192.168.1.5", None),
        ("my.name", None),
    ],
)
def test_only_a_server_for_this_machine_is_strict_about_its_name(address, name):
    hosts = hosts_of(address)
    assert (hosts is None) if name is None else (name in hosts)


def test_the_key(scripted):
    served = scripted(says("ok"), Settings(api_key="sesame"))
    assert served.client("sesame").models.list().data[0].id == "fake"
    for wrong in ("", "Sesame", "sesam", "sésame", "x" * 10_000):
        head = f"Authorization: Bearer {wrong}\r\nConnection: close\r\n\r\n".encode()
        raw = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + head
        status, error = status_and_error(served.exchange(raw))
        assert (status, error["code"]) == (401, "invalid_api_key")
    for path, status in (("/", 200), ("/health", 200), ("/page/nothing", 404), ("/status", 401)):
        raw = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        assert int(served.exchange(raw).split()[1]) == status


def test_the_model_has_another_name_if_it_is_given_one(scripted):
    served = scripted(says("ok"), Settings(model="org/other"))
    client = served.client()
    assert client.models.retrieve("org/other").id == "org/other"
    assert client.chat.completions.create(model="org/other", **CHAT).model == "org/other"
    with pytest.raises(openai.NotFoundError) as refused:
        client.chat.completions.create(model="fake", **CHAT)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
