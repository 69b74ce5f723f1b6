"""Requests that share rows: each answer is the one that it gets alone, whatever runs beside it and
whatever ran before."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from fake_tokenizer import ByteTokenizer
from fakes import HashLM
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.drafters.by_row import Each as Drafters
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.errors import PacelineError
from paceline.text.batch import Batch
from paceline.text.parts import Parts
from paceline.text.request import Request
from paceline.verifiers.block import Block
from paceline.verifiers.by_row import Each as Verifiers
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.typical import Typical

VOCAB, LENGTH = 258, 128
TOKENIZER = ByteTokenizer(add_bos=False)


class Copying(HashLM):
    """Its cache entries can be copied."""

    copied = 0

    def copy(self, cache: torch.Tensor, source: int, row: int, count: int) -> None:
        cache[row, : count + 1] = cache[source, : count + 1]
        self.copied += count


def parts(model: HashLM, k: int = 4) -> Parts:
    """Two drafters and all verifiers to choose from."""

    def drafter(batch: int, length: int, target: CachedModel) -> Drafters:
        near = HashLM(VOCAB, jitter=0.4, sharpness=8.0)
        return Drafters(
            {"model": ModelDrafter(CachedModel(near, batch, length)), "lookup": Lookup(2)}
        )

    others = {"rejection": Rejection(), "block": Block(), "typical": Typical()}
    return Parts(
        model,
        TOKENIZER,
        drafter,
        Verifiers(Block(), others),
        Fixed(k),
        k=k,
        drafts=("model", "lookup", "none"),
        verifiers=tuple(others),
        lossy=("typical",),
    )


def request(ids: list[int], params: SamplingParams) -> Request:
    return Request(ids, params, TOKENIZER, True)


def finish(batch: Batch, budget: int = 5) -> None:
    while batch.requests:
        batch.read(budget)
        batch.step()


def alone(model: HashLM, ids: list[int], params: SamplingParams) -> list[int]:
    batch, one = Batch(parts(model), 1, LENGTH), request(ids, params)
    batch.admit(one)
    finish(batch, 10**6)
    return one.completion.token_ids


def mixed(rng: random.Random) -> tuple[list[int], SamplingParams]:
    hot = rng.choice([0.0, 0.0, 0.7, 1.3])
    return [rng.randrange(97, 103) for _ in range(rng.choice([1, 2, 9, 30]))], SamplingParams(
        max_tokens=rng.randrange(1, 30),
        temperature=hot,
        top_p=rng.choice([1.0, 0.9]),
        frequency_penalty=rng.choice([0.0, 0.0, 0.5]),
        min_tokens=rng.choice([0, 3]),
        logprobs=rng.choice([None, None, 2]),
        stop=rng.choice([(), ("a",), ("\n",)]),
        seed=rng.randrange(100),
        k=rng.choice([None, None, 0, 1, 2]),
        draft=rng.choice([None, None, "lookup", "none"]),
        verify=rng.choice([None, None, "rejection", "block", "typical"]),
        trace=rng.random() < 0.2,
    )


@pytest.mark.parametrize("seed", range(12))
def test_mixed_requests_that_come_and_go_are_answered_as_alone(seed: int) -> None:
    """Rows are admitted while others run, removed in the middle, and used again."""
    rng, model = random.Random(seed), Copying(VOCAB, sharpness=8.0)
    batch = Batch(parts(model), 3, LENGTH)
    waiting = [request(*mixed(rng)) for _ in range(14)]
    asked, removed = list(waiting), set()
    while waiting or batch.requests:
        while waiting and batch.free and rng.random() < 0.7:
            batch.admit(waiting.pop())
        batch.read(rng.choice([1, 4, 16]))
        batch.step()
        if batch.requests and rng.random() < 0.1:
            gone = rng.choice(batch.requests)
            batch.remove(gone)
            removed.add(gone)
    for each in asked:
        wanted = alone(Copying(VOCAB, sharpness=8.0), list(each.ids), each.params)
        found = each.completion.token_ids
        assert found == (wanted[: len(found)] if each in removed else wanted)
    assert batch.free == 3


def test_what_another_row_has_read_is_copied_and_the_rest_is_read() -> None:
    model = Copying(VOCAB, sharpness=8.0)
    batch = Batch(parts(model), 3, LENGTH)
    prompt = [97 + i % 7 for i in range(60)]
    slow, quick = SamplingParams(max_tokens=60), SamplingParams(max_tokens=3, draft="none")
    first = request(prompt, slow)
    batch.admit(first)
    while batch.unread:
        batch.read(10**6)
    before = model.reads
    second = request([*prompt[:50], 120, 121, 122], quick)
    batch.admit(second)
    batch.read(10**6)
    assert batch.unread == 0
    assert model.copied == 50
    assert model.reads == before + 2  # the last token is read in its first round
    finish(batch)
    cold = Copying(VOCAB, sharpness=8.0)
    assert second.completion.token_ids == alone(cold, list(second.ids), quick)
    assert first.completion.token_ids == alone(cold, prompt, slow)


def test_a_free_row_that_knows_the_prompt_goes_on_from_there() -> None:
    model = Copying(VOCAB, sharpness=8.0)
    batch = Batch(parts(model), 2, LENGTH)
    plain = SamplingParams(max_tokens=2, draft="none")
    for ids in ([97] * 40, [98] * 40):
        batch.admit(request(ids, plain))
    finish(batch)
    before = model.reads
    again = request([*[98] * 30, 99], plain)
    batch.admit(again)
    batch.read(10**6)
    assert model.reads == before
    finish(batch)
    assert again.completion.token_ids == alone(model, list(again.ids), plain)


def test_a_short_prompt_does_not_wait_for_a_long_one_and_a_long_one_is_read_all_the_same() -> None:
    batch = Batch(parts(HashLM(VOCAB)), 4, LENGTH)
    params = SamplingParams(max_tokens=1, draft="none")
    long = request([97 + i % 9 for i in range(100)], params)
    batch.admit(long)
    batch.read(4)
    for number in range(150):
        short = request([110 + number % 5, 100, 101, 102], params)
        batch.admit(short)
        turns = 0
        while short in batch.requests:
            batch.read(4)
            batch.step()
            turns += 1
        assert turns <= 2
        if long.completion.tokens:
            break
    else:
        pytest.fail("the long prompt was never read")


def test_a_request_cannot_have_what_is_not_there() -> None:
    some = parts(HashLM(VOCAB))
    for wrong in ({"k": 5}, {"draft": "suffix"}, {"verify": "exact"}):
        with pytest.raises(PacelineError, match=next(iter(wrong)).replace("verify", "verifier")):
            some.check(SamplingParams(**wrong))
    assert some.lossless(SamplingParams(verify="rejection"))
    assert not some.lossless(SamplingParams(verify="typical"))


@pytest.mark.parametrize("hot", [0.0, 1.0])
def test_a_trace_says_how_each_token_was_made(hot: float) -> None:
    """p at the token, what was proposed there and with which q; and it changes nothing."""
    params = SamplingParams(max_tokens=40, temperature=hot, seed=3, trace=True)
    model = HashLM(VOCAB, sharpness=8.0)
    batch, one = Batch(parts(model), 1, LENGTH), request([97, 98], params)
    batch.admit(one)
    ids = list(one.ids)
    while batch.requests:
        batch.read(100)
        for grown in batch.step():
            drafted = grown.piece.drafted
            for i, token in enumerate(grown.piece.tokens):
                assert token.making is not None
                output = model.forward(torch.tensor([ids]), [0], model.new_cache(1, len(ids)))
                wanted = output.logits[0, -1].softmax(-1)[token.id]
                assert token.making.p == pytest.approx(float(wanted), rel=1e-4)
                assert (token.making.proposed is None) == (i >= drafted)
                assert (token.making.proposed == token.id) >= (token.origin == "accepted")
                if i < drafted:
                    assert token.making.q == 1.0 if hot == 0 else 0 < token.making.q <= 1
                ids.append(token.id)
    untraced = SamplingParams(max_tokens=40, temperature=hot, seed=3)
    assert one.completion.token_ids == alone(model, [97, 98], untraced)


@pytest.mark.parametrize("budget", [1, 3, 50])
def test_drafters_have_read_what_they_draft_from_before_the_first_round(budget: int) -> None:
    """A prompt is read a part at a time by the target, then by the drafter; the first round reads
    the last token alone, so that no stream waits for more than the budget."""
    model, draft = HashLM(VOCAB, sharpness=8.0), HashLM(VOCAB, jitter=0.4, sharpness=8.0)

    def drafter(batch: int, length: int, target: CachedModel) -> Drafters:
        return Drafters({"model": ModelDrafter(CachedModel(draft, batch, length))})

    some = parts(model)
    batch = Batch(replace(some, make_drafter=drafter, drafts=("model", "none")), 2, LENGTH)
    batch.admit(request([97 + i % 9 for i in range(60)], SamplingParams(max_tokens=9, k=3)))
    while batch.unread:
        before = model.reads + draft.reads
        batch.read(budget)
        assert model.reads + draft.reads <= before + budget
    assert (model.reads, draft.reads) == (59, 59)
    batch.step()
    assert model.reads == 59 + 1 + 3
    assert draft.reads == 59 + 1 + 2


def test_a_round_reads_nothing_of_prompts_that_are_still_to_be_read() -> None:
    """Or streams that run would stall for as long as that takes."""
    model = HashLM(VOCAB, sharpness=8.0)
    batch = Batch(parts(model), 2, LENGTH)
    plain = SamplingParams(max_tokens=9, draft="none")
    batch.admit(request([97, 98], plain))
    batch.read(100)
    long = request([97 + i % 9 for i in range(60)], plain)
    batch.admit(long)
    batch.read(20)
    before = model.reads
    grown = batch.step()
    assert [each.request is long for each in grown] == [False]
    assert model.reads == before + 1
