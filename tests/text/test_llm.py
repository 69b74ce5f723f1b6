"""Strings in, streams of text out: ids, text, finish reason and usage equal those of plain."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from fake_tokenizer import ByteTokenizer
from fakes import HashLM, Scripted, TableModel, liar
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.none import NoDraft
from paceline.errors import PacelineError
from paceline.text.completion import Completion
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.verifiers.rejection import Rejection

PROMPT = "go:"


def generator(model, make_drafter=None, k=4, context=512, tokenizer=None) -> Generator:
    make = make_drafter or (lambda batch, length, target: NoDraft())
    tokenizer = tokenizer or ByteTokenizer(add_bos=False)
    return Generator(Parts(model, tokenizer, make, Rejection(), Fixed(k)), context)


def says(text: str, prompt: str = PROMPT) -> TableModel:
    """A model that answers `prompt` with `text`, then ends."""
    ids = [*prompt.encode(), *text.encode(), ByteTokenizer.EOS]
    logits = torch.zeros(len(ids), 258)
    for place, token in enumerate(ids[1:]):
        logits[place, token] = 9.0
    logits[-1, ByteTokenizer.EOS] = 9.0
    return TableModel(logits.tolist())


def knows(text: str, wrong_at: int | None = None):
    truth = [*(PROMPT + text).encode(), ByteTokenizer.EOS]
    script = liar(truth, -1 if wrong_at is None else wrong_at, 258)
    return lambda batch, length, target: script


def facts(done: Completion) -> tuple[object, ...]:
    return (done.token_ids, done.text, done.finish_reason, done.usage, done.logprobs)


STOPS: list[tuple[str, Sequence[str]]] = [
    ("abc###def", ["##"]),
    ("abc###def", ["###d"]),
    ("abc###def", ["c##", "#"]),
    ("#abcdefghijkl", ["#"]),
    ("abcdefghijkl", ["defghijkl"]),
    ("abcdefgh##", ["##"]),
    ("naïve café ☃!", ["☃"]),
    ("abc", ["zzz"]),
    ("abc#", ["##"]),
]


@pytest.mark.parametrize(("text", "stop"), STOPS)
@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("wrong_at", [None, 0, 2])
def test_a_stop_string_cuts_where_plain_decoding_does(text, stop, k, wrong_at):
    params = SamplingParams(stop=stop, logprobs=2)
    plain = generator(says(text)).generate(PROMPT, params)
    quick = generator(says(text), knows(text, wrong_at), k).generate(PROMPT, params)
    assert facts(quick) == facts(plain)
    ends = {text.find(s) + len(s): text.find(s) for s in stop if s in text}
    first = min(ends, default=None)  # the first stop string to be complete counts
    assert plain.text == (text if first is None else text[: ends[first]])
    assert plain.finish_reason == "stop"
    assert len(plain.logprobs or ()) == len(plain.token_ids)


def test_the_stop_that_the_design_names():
    done = generator(says("abc###def"), knows("abc###def"), 8).generate(
        PROMPT, SamplingParams(stop="##", logprobs=0)
    )
    assert (done.text, done.finish_reason) == ("abc", "stop")
    assert bytes(done.token_ids) == b"abc##"  # what plain decoding had made when it stopped
    assert done.usage == {"prompt_tokens": 3, "completion_tokens": 5}


@pytest.mark.parametrize("limit", range(1, 11))
@pytest.mark.parametrize("make", [knows("abc###def"), knows("abc###def", 1), None])
def test_limits_are_exact(limit, make):
    make = make or (lambda batch, length, target: Lookup(3))
    params = SamplingParams(max_tokens=limit)
    done = generator(says("abc###def"), make, 4).generate(PROMPT, params)
    assert done.token_ids == [*b"abc###def", ByteTokenizer.EOS][:limit]
    assert done.usage["completion_tokens"] == limit
    assert done.finish_reason == ("stop" if limit == 10 else "length")


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_pieces_join_to_the_text_and_streams_equal_completions(k):
    text = "é語😀 and\ttabs ###x"
    llm = generator(says(text), knows(text, 3), k)
    stream = llm.stream(PROMPT, SamplingParams(stop="###", logprobs=3))
    pieces = list(stream)
    whole = llm.generate(PROMPT, SamplingParams(stop="###", logprobs=3))
    assert "".join(piece.text for piece in pieces) == whole.text == "é語😀 and\ttabs "
    assert facts(stream.completion) == facts(whole)
    assert [t.id for p in pieces for t in p.tokens] == whole.token_ids


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("make", ["none", "oracle", "other"])
def test_logprobs_are_the_models_own(temperature, make):
    model = HashLM(258)
    makers = {
        "none": None,
        "oracle": lambda b, n, _: ModelDrafter(CachedModel(model, b, n)),
        "other": lambda b, n, _: ModelDrafter(CachedModel(HashLM(258, jitter=0.7), b, n)),
    }
    params = SamplingParams(max_tokens=30, temperature=temperature, seed=5, logprobs=4)
    ids = [1, 2, 3]
    done = generator(model, makers[make], 4).generate([ids], params)[0]
    cache = model.new_cache(1, 100)
    all_ids = torch.tensor([ids + done.token_ids])
    scores = model.forward(all_ids, [0], cache).logits[0, 2:-1].log_softmax(-1)
    for token, row in zip(done.tokens, scores, strict=True):
        assert token.logprob == pytest.approx(float(row[token.id]), abs=1e-4)
        best = row.topk(4)
        assert list(token.top or {}) == best.indices.tolist()
        assert list((token.top or {}).values()) == pytest.approx(best.values.tolist(), abs=1e-4)


def test_counts_and_origins():
    script = Scripted(lambda ids, k: [*b"abXX"] if len(ids) == 3 else [])
    done = generator(says("abcd"), lambda b, n, _: script, 4).generate(PROMPT)
    assert [t.origin for t in done.tokens] == [
        "accepted", "accepted", "recovered", "plain", "plain",
    ]  # fmt: skip
    stats = done.stats
    assert (stats.rounds, stats.drafted, stats.accepted, stats.emitted) == (3, 4, 2, 5)
    assert (stats.tau, stats.alpha) == (5 / 3, 2 / 3)
    assert stats.alpha_at == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("make", ["lookup", "model"])
def test_prompts_of_every_length(make):
    model, room = HashLM(258), 40
    makers = {
        "lookup": lambda b, n, _: Lookup(3),
        "model": lambda b, n, _: ModelDrafter(CachedModel(HashLM(258, jitter=0.5), b, n)),
    }
    llm = generator(model, makers[make], context=room)
    plain = generator(model, context=room)
    for size in (1, 2, room - 1):
        ids = [i % 7 for i in range(size)]
        a, b = (g.generate([ids], SamplingParams(max_tokens=9))[0] for g in (llm, plain))
        assert facts(a) == facts(b)
        assert a.usage["completion_tokens"] == min(9, room - size)
    for size in (room, room + 1):
        with pytest.raises(PacelineError, match=f"{size} tokens.*{room}"):
            llm.generate([[1] * size])
    with pytest.raises(PacelineError, match="empty"):
        llm.generate([[]])
    assert llm.generate([[1, 2]], SamplingParams(max_tokens=3))[0].usage["completion_tokens"] == 3


def test_a_list_answers_each_prompt_as_if_it_were_alone():
    make = lambda b, n, _: ModelDrafter(CachedModel(HashLM(258, jitter=0.5), b, n))  # noqa: E731
    prompts = [[1], [5, 6, 7, 8], [2] * 20, [9, 9], *([i] for i in range(30, 41))]
    params = [
        SamplingParams(max_tokens=5 + i, temperature=0.8 * (i % 2), seed=i)
        for i in range(len(prompts))
    ]
    together = generator(HashLM(258), make).generate(prompts, params)
    llm = generator(HashLM(258), make)
    alone = [llm.generate([p], s)[0] for p, s in zip(prompts, params, strict=True)]
    assert [facts(c) for c in together] == [facts(c) for c in alone]


def test_a_shared_prefix_is_read_once_and_changes_nothing():
    model = HashLM(258)
    llm = generator(model)
    first = llm.generate([[3] * 200], SamplingParams(max_tokens=5))[0]
    read = model.reads
    again = llm.generate([[3] * 200], SamplingParams(max_tokens=5))[0]
    assert facts(first) == facts(again)
    assert model.reads - read == 5
    other = llm.generate([[3] * 100 + [4] * 100], SamplingParams(max_tokens=5))[0]
    cold = generator(model).generate([[3] * 100 + [4] * 100], SamplingParams(max_tokens=5))[0]
    assert facts(other) == facts(cold)


def test_a_stream_left_early_leaves_the_next_answer_alone():
    model = HashLM(258)
    make = lambda b, n, _: ModelDrafter(CachedModel(HashLM(258, jitter=0.5), b, n))  # noqa: E731
    llm = generator(model, make)
    stream = llm.stream([1, 2, 3], SamplingParams(max_tokens=50))
    next(stream)
    del stream
    after = llm.generate([[1, 2, 3, 4]], SamplingParams(max_tokens=20))[0]
    assert facts(after) == facts(
        generator(model).generate([[1, 2, 3, 4]], SamplingParams(max_tokens=20))[0]
    )


def test_seeds():
    llm = generator(HashLM(258, sharpness=1.0))
    ask = lambda seed: llm.generate([[1, 2]], SamplingParams(temperature=1.5, seed=seed))  # noqa: E731
    assert ask(7)[0].token_ids == ask(7)[0].token_ids
    assert ask(7)[0].token_ids != ask(8)[0].token_ids
    assert ask(None)[0].token_ids != ask(None)[0].token_ids


def test_a_chat_goes_through_the_template():
    template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<a>"
    tokenizer = ByteTokenizer(add_bos=False, chat_template=template)
    llm = generator(says("hello", "<user>hi<a>"), tokenizer=tokenizer)
    assert llm.chat([{"role": "user", "content": "hi"}]).text == "hello"
    assert llm.generate("hi").text == "hello"
    assert llm.generate("<user>hi<a>", chat=False).text == "hello"


def test_numbers_that_are_none_end_one_request_alone():
    good, bad = [9.0 if i == 65 else 0.0 for i in range(258)], [float("nan")] * 258
    llm = generator(TableModel([good, good, good, good, bad]), knows("AAAA"), 4)
    first, second = llm.generate([[1], [1, 2, 3, 4]], SamplingParams(max_tokens=3))
    assert (first.finish_reason, first.text) == ("length", "AAA")
    assert (second.finish_reason, second.text) == ("error", "A")
