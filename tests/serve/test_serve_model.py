"""A tiny model behind HTTP says what it says in the library, alone and beside others."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest
from serving import post, until

from paceline import SamplingParams
from paceline.build import LLM

CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Bern", "Zürich"]}, "days": {"enum": [1, 22]}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
OTHER = {"type": "function", "function": {"name": "time"}}
DRAFTS = ["lookup", "suffix", "self:int8", "none"]  # C32: a draft of another dtype
PROMPTS = ["once upon a time", "aaaaaaaaaaaa", "x", "the end of the end of the end"]


@pytest.fixture(scope="module")
def plain(server):
    """The same model in the library, without a draft."""
    return LLM(server.engine.llm.name, draft="none", dtype="fp32", threads=1)


def _ask(server, prompt, **fields):
    ours = ("draft", "num_speculative_tokens", "speculation_details", "min_tokens", "top_k")
    extra = {name: fields.pop(name) for name in ours if name in fields}
    fields = {"max_tokens": 24, "temperature": 0, **fields}
    model = server.engine.llm.name
    client = server.client()
    return client.completions.create(model=model, prompt=prompt, **fields, extra_body=extra)


def _chat(server, **fields):
    fields = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields}
    return server.client().chat.completions.create(model=server.engine.llm.name, **fields)


def _streamed(chunks):
    """Text, finish reason, tokens scored and usage of a stream of completions."""
    text, reason, scores, usage = "", None, [], None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.text
            reason = choice.finish_reason or reason
            if choice.logprobs:
                scores += zip(choice.logprobs.tokens, choice.logprobs.token_logprobs, strict=True)
    return text, reason, scores, usage


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_greedy_answers_are_those_of_plain_decoding(server, plain, draft, k):
    for prompt in PROMPTS:
        want = plain.generate(prompt, SamplingParams(max_tokens=24), chat=False)
        got = _ask(server, prompt, draft=draft, num_speculative_tokens=k)
        assert got.choices[0].text == want.text
        assert got.choices[0].finish_reason == want.finish_reason
        assert got.usage.prompt_tokens == want.usage["prompt_tokens"]
        assert got.usage.completion_tokens == want.usage["completion_tokens"]
        assert got.usage.model_extra["speculation"]["lossless"] is True


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("place", [(0, 1), (5, 6), (6, 9), (4, 14)])
def test_stop_strings_end_it_where_plain_decoding_ends(server, plain, place, k):
    whole = plain.generate(PROMPTS[1], SamplingParams(max_tokens=24), chat=False)
    stop = whole.text[slice(*place)]
    params = SamplingParams(max_tokens=24, stop=[stop], logprobs=2)
    want = plain.generate(PROMPTS[1], params, chat=False)
    assert want.finish_reason == "stop"
    fields = {"stop": [stop], "logprobs": 2, "num_speculative_tokens": k}
    got = _ask(server, PROMPTS[1], **fields)
    choice = got.choices[0]
    assert (choice.text, choice.finish_reason) == (want.text, "stop")
    assert choice.logprobs.token_logprobs == pytest.approx(want.logprobs, abs=1e-4)
    assert got.usage.completion_tokens == len(want.token_ids) == len(choice.logprobs.tokens)
    stream = _ask(server, PROMPTS[1], **fields, stream=True, stream_options={"include_usage": True})
    text, reason, scores, usage = _streamed(stream)
    assert (text, reason) == (want.text, "stop")
    assert [value for _, value in scores] == pytest.approx(want.logprobs, abs=1e-4)
    assert usage.completion_tokens == len(want.token_ids)


@pytest.mark.parametrize("temperature", [0, 1])
def test_scores_are_the_models_own(server, plain, temperature):
    params = SamplingParams(max_tokens=16, temperature=temperature, seed=5, logprobs=3)
    want = plain.generate("scores", params, chat=False)
    fields = {"temperature": temperature, "seed": 5, "logprobs": 3, "max_tokens": 16}
    got = _ask(server, "scores", draft="none", **fields).choices[0]
    assert got.text == want.text
    assert got.logprobs.token_logprobs == pytest.approx(want.logprobs, abs=1e-4)
    for mine, token in zip(got.logprobs.top_logprobs, want.tokens, strict=True):
        assert list(mine.values()) == pytest.approx(list(token.top.values()), abs=1e-4)
    scores = _streamed(_ask(server, "scores", draft="none", stream=True, **fields))[2]
    assert scores == list(zip(got.logprobs.tokens, got.logprobs.token_logprobs, strict=True))


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_counts_are_those_of_the_rounds(server, draft):
    got = _ask(server, PROMPTS[3], draft=draft, speculation_details=True, max_tokens=40)
    details = got.choices[0].model_extra["speculation"]
    spent = got.usage.model_extra["speculation"]
    origins = [token["origin"] for token in details["tokens"]]
    assert spent["drafted"] == sum(details["drafted"])
    assert spent["rounds"] == len(details["drafted"])
    assert spent["accepted"] == origins.count("accepted") <= spent["drafted"]
    assert len(origins) == got.usage.completion_tokens
    assert "".join(token["text"] for token in details["tokens"]) == got.choices[0].text
    for token in details["tokens"]:
        assert 0 <= token["p"] <= 1
        assert (token["q"] is None) == (token["proposed"] is None)
    if draft == "none":
        assert set(origins) == {"plain"}
    if not spent["drafted"]:
        assert (spent["tau"], spent["alpha"]) == (None, None)
    else:
        assert spent["tau"] == pytest.approx(len(origins) / spent["rounds"])


def test_prompts_of_every_length(server, plain):
    context = server.engine.llm.context
    ids = [97 + i % 7 for i in range(context + 1)]
    for length in (1, 2, context - 1):
        want = plain.generate([ids[:length]], SamplingParams(max_tokens=5))[0]
        got = _ask(server, ids[:length], max_tokens=5)
        assert got.choices[0].text == want.text
        assert got.usage.completion_tokens == len(want.token_ids)
        assert got.choices[0].finish_reason == want.finish_reason
    for length in (context, context + 1):
        numbers = rf"{length} tokens .* {context}"
        with pytest.raises(openai.BadRequestError, match=numbers) as refused:
            _ask(server, ids[:length])
        assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="the prompt is empty"):
        _ask(server, "")
    assert _ask(server, ids[:2], max_tokens=1).usage.completion_tokens == 1


def test_a_seed_gives_the_same_alone_and_in_company(server):
    fields = {"temperature": 1.5, "seed": 7, "n": 2}
    alone = [choice.text for choice in _ask(server, "seed", **fields).choices]
    assert alone[0] != alone[1]
    with ThreadPoolExecutor(6) as pool:
        others = [
            pool.submit(_ask, server, prompt, temperature=2, max_tokens=60) for prompt in PROMPTS
        ]
        mine = pool.submit(_ask, server, "seed", **fields)
        assert [choice.text for choice in mine.result().choices] == alone
        texts = {other.result().choices[0].text for other in others}
    assert len(texts) == len(PROMPTS)
    assert [choice.text for choice in _ask(server, "seed", **fields).choices] == alone
    assert _ask(server, "seed", temperature=1.5).choices[0].text != alone[0]


def test_mixed_requests_side_by_side_are_each_as_if_alone(server, plain):
    asks = [
        {"max_tokens": 30},
        {"max_tokens": 5, "draft": "suffix"},
        {"max_tokens": 20, "stop": ["e"], "num_speculative_tokens": 8},
        {"max_tokens": 20, "frequency_penalty": 1.0},
        {"max_tokens": 20, "presence_penalty": 0.5, "draft": "none"},
        {"max_tokens": 12, "logit_bias": {"97": -100}, "num_speculative_tokens": 1},
    ] * 2
    want = []
    for i, ask in enumerate(asks):
        known = {key: value for key, value in ask.items() if key not in ("draft", "logit_bias")}
        known["k"] = known.pop("num_speculative_tokens", None)
        bias = {int(key): -float("inf") for key in ask.get("logit_bias", {})}
        params = SamplingParams(logit_bias=bias, **known)
        want.append(plain.generate(PROMPTS[i % 4], params, chat=False))
    with ThreadPoolExecutor(len(asks)) as pool:
        parts = pool.map(
            lambda i: _streamed(_ask(server, PROMPTS[i % 4], stream=True, **asks[i])),
            range(len(asks)),
        )
        got = [(text, reason) for text, reason, _, _ in parts]
    assert got == [(one.text, one.finish_reason) for one in want]


@pytest.mark.parametrize("stream", [False, True])
def test_who_goes_away_frees_the_slot_and_the_next_one_is_right(server, plain, stream):
    fields = {"prompt": "a long answer", "max_tokens": 400, "temperature": 0, "ignore_eos": True}
    for _ in range(5):
        connection = server.send(post("/v1/completions", {**fields, "stream": stream}))
        until(lambda: server.engine.load.running == 1)
        if stream:
            assert connection.recv(1000)
        connection.close()
        until(lambda: server.engine.load.running == 0, 2)
    want = plain.generate("a long answer", SamplingParams(max_tokens=24), chat=False)
    assert _ask(server, "a long answer").choices[0].text == want.text


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("temperature", [0, 1])
def test_json_under_a_schema(server, draft, temperature):
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    answer = _chat(
        server,
        response_format=form,
        temperature=temperature,
        seed=3,
        n=3,
        extra_body={"draft": draft},
    )
    for choice in answer.choices:
        said = json.loads(choice.message.content)
        assert said["city"] in ("Bern", "Zürich")
        assert said["days"] in (1, 22)
        assert choice.finish_reason == "stop"


def test_a_grammar_of_ones_own(server):
    grammar = 'start: "yes" | "no" | /[0-9]{3}/'
    answer = _chat(server, n=4, temperature=2, extra_body={"grammar": grammar})
    for choice in answer.choices:
        said = choice.message.content
        assert said in ("yes", "no") or (len(said) == 3 and said.isdecimal())


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "time"}}])
def test_a_tool_that_must_be_called_is(server, choice):
    fields = {"tools": [WEATHER, OTHER], "tool_choice": choice, "parallel_tool_calls": False}
    whole = _chat(server, **fields).choices[0]
    (call,) = whole.message.tool_calls
    arguments = json.loads(call.function.arguments)
    if call.function.name == "weather":
        assert arguments["city"] in ("Bern", "Zürich")
    else:
        assert arguments == {}
    if choice != "required":
        assert call.function.name == "time"
    assert whole.message.content is None
    assert whole.finish_reason == "tool_calls"
    deltas = [chunk.choices[0].delta for chunk in _chat(server, stream=True, **fields)]
    (streamed,) = [call for delta in deltas for call in delta.tool_calls or []]
    assert streamed.function.name == call.function.name
    assert json.loads(streamed.function.arguments) == arguments
    assert not any(delta.content for delta in deltas)


def test_a_bias_of_100_is_a_must_and_of_minus_100_a_ban(server):
    tokenizer = server.engine.llm.tokenizer
    only = _ask(server, "x", logit_bias={"98": 100}, max_tokens=8)
    assert only.choices[0].text == tokenizer.decode([98] * 8)
    first = tokenizer.encode("b")[0]
    banned = {str(i): -100 for i in range(tokenizer.size) if i != first}
    for temperature in (0, 2):
        got = _ask(server, "x", logit_bias=banned, max_tokens=8, temperature=temperature)
        assert got.choices[0].text == "b" * 8


def test_everything_forbidden_is_the_requests_fault(server):
    biases = {str(i): -100 for i in range(server.engine.llm.tokenizer.size)}
    with pytest.raises(openai.BadRequestError, match="forbid all"):
        _ask(server, "x", logit_bias=biases)


def test_the_status_is_that_of_the_engine(server):
    import urllib.request

    with urllib.request.urlopen(f"{server.url}/status") as answer:
        status = json.load(answer)
    llm = server.engine.llm
    assert status["model"] == llm.name
    assert status["drafts"] == DRAFTS
    assert (status["draft"], status["k"], status["context"]) == ("lookup", llm.k, 512)
    assert (status["slots"], status["queue"], status["lossless"]) == (4, 8, True)
    assert status["plain_tokens_per_second"] > 0
