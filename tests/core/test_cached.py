"""Reading through a cache: right, and no token more often than it must be."""

from __future__ import annotations

import random

import pytest
import torch

from checks import health
from fakes import Accepts, HashLM, Scripted, model_drafter, run, sequences
from naive import fresh_logits
from paceline.controllers.fixed import Fixed
from paceline.core import cached as module
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.types import Draft

PARAMS = SamplingParams(max_tokens=100)


def scored(cached: CachedModel, prompts, drafts) -> torch.Tensor:
    width = max(map(len, drafts))
    tokens = torch.tensor([d + [0] * (width - len(d)) for d in drafts], dtype=torch.int64)
    tokens = tokens.reshape(len(drafts), width)
    return cached.score(sequences(prompts, PARAMS), Draft(tokens, list(map(len, drafts))))


def test_a_score_is_that_of_every_prefix() -> None:
    model = HashLM(7, seed=1)
    prompts, drafts = [[1], [2, 3, 4], [5] * 12], [[6, 0, 2], [], [1, 1]]
    logits = scored(CachedModel(model, 3, 64), prompts, drafts)
    assert logits.shape == (3, 4, 7)
    for b, (ids, draft) in enumerate(zip(prompts, drafts, strict=True)):
        for t in range(len(draft) + 1):
            assert logits[b, t].tolist() == fresh_logits(model, ids + draft[:t])


@pytest.mark.parametrize("seed", range(6))
def test_any_history_of_a_slot_leaves_it_right(seed: int) -> None:
    """Random requests in random slots, read, scored and extended in any order. Two ids only, so
    that old entries often carry the right id."""
    rng, model = random.Random(seed), HashLM(2, seed)
    cached = CachedModel(model, 3, 64)
    for _ in range(60):
        prompts = [[rng.randrange(2) for _ in range(rng.randrange(1, 15))] for _ in range(3)]
        seqs = sequences(prompts, PARAMS, length=64)
        seqs.running = [rng.random() < 0.7 for _ in range(3)]
        if not any(seqs.running):
            continue
        what = rng.randrange(3)
        tails: list[list[int]] = [[], [], []]
        if what == 0:
            tails = [[rng.randrange(2) for _ in range(3)] for _ in range(3)]
            logits = cached.score(seqs, Draft(torch.tensor(tails), [3, 3, 3]))[:, 3]
        else:
            logits = cached.read(seqs)
        for behind in range(rng.randrange(4) if what == 1 else 0):
            token = torch.tensor([rng.randrange(2) for _ in range(3)])
            logits = cached.extend(seqs, token, behind)
            tails = [[*tail, int(t)] for tail, t in zip(tails, token, strict=True)]
        for b in range(3):
            if seqs.running[b]:
                assert logits[b].tolist() == fresh_logits(model, prompts[b] + tails[b])


@pytest.mark.parametrize("budget", [1, 3, 4, 100])
def test_a_budget_is_kept_and_the_rest_is_read_later(budget: int) -> None:
    model = HashLM(7, seed=1)
    cached, seqs = CachedModel(model, 2, 64), sequences([[1] * 6, [2] * 9], PARAMS)
    left, calls = 13, 0
    while left:
        before = model.reads
        left = cached.sync(seqs, budget)
        calls += 1
        assert model.reads - before <= budget
        assert left == 13 - model.reads
    assert calls == -(-13 // budget)
    assert [cached.seen(seqs, b) for b in range(2)] == [5, 8]
    assert cached.read(seqs)[1].tolist() == fresh_logits(model, [2] * 9)


def test_a_long_prompt_is_read_in_chunks_and_once() -> None:
    model, ids = HashLM(7, seed=1), [t % 7 for t in range(module.CHUNK * 2 + 100)]
    cached, seqs = CachedModel(model, 1, 2000), sequences([ids], PARAMS, length=2000)
    logits = cached.read(seqs)
    assert model.reads == len(ids)
    assert logits[0].tolist() == fresh_logits(model, ids)


def test_a_shared_beginning_is_not_read_again() -> None:
    model = HashLM(7, seed=1)
    cached = CachedModel(model, 1, 64)
    cached.read(sequences([[1, 2, 3, 4, 5, 6]], PARAMS))
    for ids, more in [
        ([1, 2, 3, 0, 5, 6], 3),  # a common prefix of 3
        ([1, 2, 3, 0, 5, 6], 1),  # nothing new: the pending token alone
        ([1, 2, 3], 1),
        ([1, 2, 3, 0, 5, 6], 3),  # the shorter one overwrote what was behind it
        ([6, 2, 3, 0, 5, 6], 6),
    ]:
        before = model.reads
        assert cached.read(sequences([ids], PARAMS))[0].tolist() == fresh_logits(HashLM(7, 1), ids)
        assert model.reads - before == more


@pytest.mark.parametrize("accepted", [0, 1, 3, 4])
def test_no_token_is_read_more_often_than_it_must_be(accepted: int) -> None:
    """K = 4 and a prompt of 6. The target reads the prompt but its last token, then K + 1 tokens a
    round. The draft reads what it lacks (one token; two if all were accepted) and K - 1 more."""
    target, drafting, k = HashLM(5, seed=1), HashLM(5, seed=2), 4
    seqs = sequences([[1, 2, 3, 4, 0, 1]], PARAMS)
    loop = Loop(
        CachedModel(target, 1, 256),
        health.ModelDrafter(CachedModel(drafting, 1, 256)),
        Accepts(accepted),
        Fixed(k),
    )
    for n in range(6):
        before = target.reads, drafting.reads
        loop.step(seqs)
        assert target.reads - before[0] == (5 if n == 0 else 0) + k + 1
        lacking = 6 if n == 0 else 1 + (accepted == k)
        assert drafting.reads - before[1] == lacking + k - 1


def test_plain_decoding_reads_every_token_once() -> None:
    model = HashLM(5, seed=1)
    run(model, [[1, 2, 3, 4]], SamplingParams(max_tokens=20))
    assert model.reads == 3 + 20


def test_a_draft_model_catches_up_only_when_it_is_asked() -> None:
    """While lookup drafts, the draft model reads nothing; then it reads what it missed, once."""
    target, drafting = HashLM(5, seed=1), HashLM(5, seed=2)
    seqs = sequences([[1, 2, 3]], PARAMS)
    first = Scripted(lambda ids, k: [0] if len(ids) < 20 else [])
    loop = Loop(
        CachedModel(target, 1, 256),
        health.FirstOf(first, health.ModelDrafter(CachedModel(drafting, 1, 256))),
        Accepts(0),
        Fixed(4),
    )
    for _ in range(17):
        loop.step(seqs)
    assert (seqs.lengths, drafting.reads) == ([20], 0)
    loop.step(seqs)
    assert drafting.reads == 20 + 3


def test_logits_are_cut_to_the_ids_that_the_tokenizer_knows() -> None:
    model = HashLM(7)
    cached = CachedModel(model, 1, 64, vocab=5)
    logits = cached.read(sequences([[1, 2]], PARAMS))
    assert logits[0].tolist() == fresh_logits(model, [1, 2])[:5]
    assert CachedModel(model, 1, 64, vocab=9).vocab == 7


def test_interrupted_reads_are_forgotten() -> None:
    health.interrupted_reads_are_forgotten()


def test_rows_that_do_not_run_are_not_read() -> None:
    model = HashLM(7, seed=1)
    cached, seqs = CachedModel(model, 3, 64), sequences([[1] * 30, [2, 3], [4] * 40], PARAMS)
    seqs.finish(0)
    seqs.finish(2)
    assert cached.read(seqs)[1].tolist() == fresh_logits(HashLM(7, 1), [2, 3])
    assert [cached.seen(seqs, b) for b in range(3)] == [0, 2, 0]
    assert model.reads == 3 * 2  # two columns, and padding for the others


def test_a_cache_has_room_for_the_widest_draft_beside_a_row_at_its_end() -> None:
    """K = SLACK for one row while its neighbour has two places left."""
    model, params = HashLM(6, seed=1), SamplingParams(max_tokens=None)
    prompts = [[1, 2], [3] * 78]
    done = run(model, prompts, params, model_drafter(model), module.SLACK, length=80)
    assert done.rounds[0].draft.lengths == [module.SLACK, 1]
    assert [len(new) for new in done.ids] == [78, 2]
    assert done.ids == run(model, prompts, params, k=0, length=80).ids


def test_ids_past_a_draft_models_vocabulary_are_read_as_its_last() -> None:
    class Narrow(HashLM):
        def forward(self, tokens, at, cache, *, row=0, logits=True):
            assert int(tokens.max()) < 5
            return super().forward(tokens, at, cache, row=row, logits=logits)

    strange, known = (CachedModel(Narrow(5), 1, 64) for _ in range(2))
    got = strange.read(sequences([[1, 9, 2]], PARAMS))
    assert got.tolist() == known.read(sequences([[1, 4, 2]], PARAMS)).tolist()
