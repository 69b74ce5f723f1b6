"""The completions endpoint under the official client, over scripted answers."""

from __future__ import annotations

import pytest
from fake_engine import byte_ids, says

PROMPTS = [
    ("ab", [2]),
    (byte_ids("ab"), [2]),
    (["ab", "c"], [2, 1]),
    ([byte_ids("ab"), byte_ids("c")], [2, 1]),
]


def _ask(served, prompt="x", **fields):
    fields.setdefault("max_tokens", 100)
    return served.client().completions.create(model="fake", prompt=prompt, **fields)


def _echo(ids, params):
    return says(f"{len(ids)} {params.seed}")(ids, params)


@pytest.mark.parametrize(
    ("prompt", "lengths"), PROMPTS, ids=["text", "ids", "texts", "lists of ids"]
)
def test_every_kind_of_prompt(scripted, prompt, lengths):
    served = scripted(_echo, slots=4)
    answer = _ask(served, prompt, n=2, seed=1)
    said = [f"{n} {1 + 2 * i + j}" for i, n in enumerate(lengths) for j in range(2)]
    assert [choice.text for choice in answer.choices] == said
    assert [choice.index for choice in answer.choices] == list(range(len(said)))
    assert answer.usage.prompt_tokens == sum(lengths)
    assert answer.usage.completion_tokens == sum(len(text) + 1 for text in said)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")


def test_sixteen_tokens_where_nothing_is_said(scripted):
    served = scripted(says("a" * 50))
    answer = served.client().completions.create(model="fake", prompt="x")
    assert answer.choices[0].text == "a" * 16
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize("block", [1, 3, 50])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_a_stream_says_what_the_whole_answer_says(scripted, block, logprobs):
    served = scripted(says("a né b", block=block))
    whole = _ask(served, logprobs=logprobs, n=2)
    options = {"include_usage": True}
    *parts, last = _ask(served, logprobs=logprobs, n=2, stream=True, stream_options=options)
    assert last.usage == whole.usage
    for index, choice in enumerate(whole.choices):
        mine = [part.choices[0] for part in parts if part.choices[0].index == index]
        assert "".join(part.text for part in mine) == choice.text == "a né b"
        assert [part.finish_reason for part in mine if part.finish_reason] == ["stop"]
        scored = [part.logprobs for part in mine if part.logprobs]
        if logprobs is None:
            assert choice.logprobs is None
            assert not scored
            continue
        joined = {
            name: [value for part in scored for value in getattr(part, name) or []]
            for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs")
        }
        assert joined["tokens"] == choice.logprobs.tokens
        assert joined["token_logprobs"] == choice.logprobs.token_logprobs
        assert joined["text_offset"] == choice.logprobs.text_offset
        assert joined["top_logprobs"] == (choice.logprobs.top_logprobs or [])


def test_scores_in_openais_shape(scripted):
    scores = _ask(scripted(says("né")), logprobs=2).choices[0].logprobs
    assert scores.tokens == ["n", "bytes:\\xc3", "bytes:\\xa9", "<|end|>"]
    assert scores.text_offset == [0, 1, 1, 2]
    assert scores.token_logprobs == [-0.5] * 4
    assert scores.top_logprobs[0] == {"n": -0.5, "o": -1.0}
    assert all(len(top) == 2 for top in scores.top_logprobs)
    assert _ask(scripted(says("n")), logprobs=0).choices[0].logprobs.top_logprobs is None


@pytest.mark.parametrize("block", [1, 4, 8, 12])
@pytest.mark.parametrize(
    ("stop", "text", "tokens"),
    [("##", "abc", 5), (["#d", "zz"], "abc##", 7), ("a", "", 1), ("###def", "abc", 9)],
)
def test_text_ends_before_a_stop_string_and_tokens_with_it(scripted, block, stop, text, tokens):
    served = scripted(says("abc###def", block=block))
    whole = _ask(served, stop=stop, logprobs=0)
    choice = whole.choices[0]
    assert (choice.text, choice.finish_reason) == (text, "stop")
    parts = list(_ask(served, stop=stop, stream=True))
    assert "".join(part.choices[0].text for part in parts) == text
    if block == 1:  # the real engine cuts blocks; the scripted one does not
        assert whole.usage.completion_tokens == len(choice.logprobs.tokens) == tokens
