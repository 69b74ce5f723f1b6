"""The chat endpoint under the official client, over scripted answers."""

from __future__ import annotations

import json

import openai
import pytest
from fake_engine import byte_ids, forever, says
from serving import CHAT, until

from paceline.core.types import Emitted

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'


def _ask(served, **fields):
    extra = {name: fields.pop(name) for name in list(fields) if name in EXTRA}
    create = served.client().chat.completions.create
    return create(model="fake", **CHAT, **fields, extra_body=extra)


EXTRA = {"speculation_details", "draft", "verify", "num_speculative_tokens", "grammar", "top_k"}


def test_a_whole_answer(scripted):
    answer = _ask(scripted(says("héllo", block=3)))
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "fake"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "héllo"
    assert answer.choices[0].finish_reason == "stop"
    # 6 bytes and the end token in rounds of 3, 3, 1, of which one each is the target's own
    assert answer.usage.completion_tokens == 7
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 7
    assert answer.usage.model_extra["speculation"] == {
        "rounds": 3,
        "drafted": 7,
        "accepted": 4,
        "tau": 7 / 3,
        "alpha": 4 / 7,
        "lossless": True,
    }


def test_nothing_drafted_is_no_rate(scripted):
    def script(ids, params):
        yield Emitted(byte_ids("ab"), 0, 0, "stop")

    spent = _ask(scripted(script)).usage.model_extra["speculation"]
    assert (spent["drafted"], spent["tau"], spent["alpha"]) == (0, None, None)


@pytest.mark.parametrize("block", [1, 2, 5, 99])
def test_a_stream_says_what_the_whole_answer_says(scripted, block):
    served = scripted(says("naïve 🦆!", block=block))
    whole = _ask(served, logprobs=True, top_logprobs=2, speculation_details=True)
    chunks = list(
        _ask(
            served,
            stream=True,
            stream_options={"include_usage": True},
            logprobs=True,
            top_logprobs=2,
            speculation_details=True,
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    *parts, end, last = chunks
    assert end.choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    assert all(part.usage is None for part in [*parts, end])
    assert last.choices == []
    assert last.usage == whole.usage
    choices = [part.choices[0] for part in parts]
    said = "".join(choice.delta.content or "" for choice in choices)
    assert said == whole.choices[0].message.content == "naïve 🦆!"
    scores = [s for choice in choices if choice.logprobs for s in choice.logprobs.content]
    assert scores == whole.choices[0].logprobs.content
    assert bytes(b for s in scores for b in s.bytes or []).decode() == said
    made = [c.model_extra["speculation"] for c in choices if "speculation" in c.model_extra]
    told = whole.choices[0].model_extra["speculation"]
    assert [k for m in made for k in m["drafted"]] == told["drafted"]
    assert [t for m in made for t in m["tokens"]] == told["tokens"]
    assert "".join(token["text"] for token in told["tokens"]) == said


def test_scores_in_openais_shape(scripted):
    scores = _ask(scripted(says("é")), logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert [(s.token, s.bytes) for s in scores] == [
        ("\ufffd", [0xC3]),
        ("\ufffd", [0xA9]),
        ("<|end|>", None),
    ]
    assert [s.logprob for s in scores] == [-0.5] * 3
    assert [top.logprob for top in scores[0].top_logprobs] == [-0.5, -1.0, -2.0]
    plain = _ask(scripted(says("é")), logprobs=True).choices[0].logprobs.content
    assert [s.top_logprobs for s in plain] == [[], [], []]


def test_each_choice_has_a_seed_of_its_own_and_may_end_by_itself(scripted):
    seen = []

    def script(ids, params):
        seen.append(params.seed)
        return says(f"seed {params.seed}", finish="stop")(ids, params)

    served = scripted(script, slots=4)
    whole = _ask(served, n=3, seed=7)
    assert [c.message.content for c in whole.choices] == ["seed 7", "seed 8", "seed 9"]
    assert [c.index for c in whole.choices] == [0, 1, 2]
    said = ["", "", ""]
    for chunk in _ask(served, n=3, seed=7, stream=True):
        said[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert said == ["seed 7", "seed 8", "seed 9"]
    _ask(served, n=2)
    assert seen == [7, 8, 9] * 2 + [None, None]
    assert whole.usage.prompt_tokens == _ask(served).usage.prompt_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_all_choices_are_admitted_or_none(scripted, stream):
    served = scripted(forever, slots=1, queue=2, pace=0.002, context=10**6)
    held = _ask(served, stream=True, n=2)
    until(lambda: served.engine.load.waiting == 1)
    with pytest.raises(openai.RateLimitError) as refused:
        _ask(served, n=2, stream=stream)
    assert refused.value.code == "queue_full"
    assert refused.value.response.headers["retry-after"] == "3"
    until(lambda: served.engine.load.waiting == 1)
    held.close()
    until(lambda: served.engine.load.running == 0)
    with pytest.raises(openai.BadRequestError, match="4 answers, and this server takes at most 3"):
        _ask(served, n=4)


def test_fields_reach_the_engine(scripted):
    seen = []

    def script(ids, params):
        seen.append(params)
        return says("ok")(ids, params)

    served = scripted(script)
    served.client().chat.completions.create(
        model="fake",
        **CHAT,
        temperature=0.5,
        top_p=0.9,
        frequency_penalty=0.25,
        presence_penalty=-0.5,
        logit_bias={"5": -100, "6": 100, "7": 1.5},
        max_completion_tokens=9,
        seed=3,
        stop=["x", "yz"],
        user="somebody",
        store=False,
        extra_body={
            "top_k": 4,
            "min_p": 0.125,
            "repetition_penalty": 1.5,
            "min_tokens": 2,
            "ignore_eos": True,
            "stop_token_ids": [8],
            "num_speculative_tokens": 3,
            "draft": "suffix",
            "verify": "block",
            "speculation_details": True,
        },
    )
    params = seen[0]
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.5, 0.9, 4, 0.125)
    assert (params.frequency_penalty, params.presence_penalty) == (0.25, -0.5)
    assert params.logit_bias == {5: -float("inf"), 6: 100, 7: 1.5}
    assert (params.max_tokens, params.min_tokens, params.seed) == (9, 2, 3)
    assert (params.stop, params.stop_token_ids) == (["x", "yz"], [8])
    assert (params.k, params.draft, params.verify) == (3, "suffix", "block")
    assert (params.ignore_eos, params.trace, params.repetition_penalty) == (True, True, 1.5)
    _ask(served)
    assert (seen[1].temperature, seen[1].max_tokens, seen[1].seed) == (1.0, None, None)


def test_messages_of_every_kind_reach_the_template(scripted):
    seen = []

    def script(ids, params):
        seen.append(ids)
        return says("ok")(ids, params)

    served = scripted(script)
    called = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city": "Bern"}'},
    }
    served.client().chat.completions.create(
        model="fake",
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": t} for t in ("a", "b")]},
            {"role": "assistant", "content": None, "tool_calls": [called]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sun"},
        ],
    )
    assert served.engine.llm.tokenizer.decode(seen[0]) == (
        '<|system|>be brief<|user|>ab<|assistant|>!{"city": "Bern"}<|tool|>sun<|assistant|>'
    )


@pytest.mark.parametrize("block", [1, 7, 200])
@pytest.mark.parametrize("said", [f"Let me see.\n{CALL}", f"{CALL}\n{CALL}", CALL])
def test_tool_calls(scripted, said, block):
    served = scripted(says(said, block=block))
    whole = _ask(served, tools=[WEATHER]).choices[0]
    calls = whole.message.tool_calls
    assert len(calls) == said.count("<tool_call>")
    assert calls[0].function.name == "weather"
    assert json.loads(calls[0].function.arguments) == {"city": "Zürich"}
    assert whole.message.content == ("Let me see." if said.startswith("Let") else None)
    assert whole.finish_reason == "tool_calls"
    text, names, arguments, reason = "", {}, {}, None
    for chunk in _ask(served, tools=[WEATHER], stream=True):
        choice = chunk.choices[0]
        text += choice.delta.content or ""
        reason = choice.finish_reason or reason
        for call in choice.delta.tool_calls or []:
            names[call.index] = call.function.name
            arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
    assert text == (whole.message.content or "")
    assert [names[i] for i in range(len(calls))] == [call.function.name for call in calls]
    assert [arguments[i] for i in range(len(calls))] == [c.function.arguments for c in calls]
    assert reason == "tool_calls"


def test_without_tools_nothing_is_a_call(scripted):
    served = scripted(says(CALL, block=5))
    for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        assert _ask(served, **more).choices[0].message.content == CALL
        parts = [c.choices[0].delta.content or "" for c in _ask(served, stream=True, **more)]
        assert "".join(parts) == CALL


def test_time_that_is_up_is_said(scripted):
    served = scripted(forever, time_limit=0.05, pace=0.002, context=10**6)
    assert _ask(served).choices[0].finish_reason == "time_limit"
    assert list(_ask(served, stream=True))[-1].choices[0].finish_reason == "time_limit"


def _broken(ids, params):
    yield Emitted(byte_ids("a"), 0, 0)
    yield Emitted([], 0, 0, "error")


def test_scores_that_are_not_numbers_are_an_error(scripted):
    served = scripted(_broken)
    with pytest.raises(openai.InternalServerError, match="the model's scores are not numbers"):
        _ask(served)
    heard = []
    with pytest.raises(openai.APIError, match="the model's scores are not numbers"):
        heard += _ask(served, stream=True)
    with pytest.raises(openai.BadRequestError, match="forbid all that the model could say"):
        _ask(served, logit_bias={"1": -100})


def test_one_broken_choice_ends_the_others(scripted):
    def script(ids, params):
        return _broken(ids, params) if params.seed == 1 else forever(ids, params)

    served = scripted(script, pace=0.002, context=10**6)
    for stream in (False, True):
        with pytest.raises(openai.APIError, match="not numbers"):
            list(_ask(served, n=2, seed=0, stream=stream))
        until(lambda: served.engine.load.running == 0)
