"""Greedy output of every drafter equals that of the target alone: ids and finish."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from checks import output
from fakes import (
    Careless,
    HashLM,
    Scripted,
    TableModel,
    Windows,
    drive,
    liars,
    model_drafter,
    oracle,
    run,
    sequences,
)
from naive import decode
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.none import NoDraft
from paceline.verifiers.greedy import Greedy
from paceline.verifiers.rejection import Rejection


def asked(rng: random.Random, vocab: int) -> SamplingParams:
    """Anything that a greedy request may ask for."""
    return SamplingParams(
        max_tokens=rng.choice([1, 2, 5, 9, 14]),
        repetition_penalty=rng.choice([1.0, 1.0, 1.4]),
        frequency_penalty=rng.choice([0.0, 0.0, 0.9]),
        presence_penalty=rng.choice([0.0, 0.0, 0.6]),
        logit_bias=rng.choice([{}, {}, {rng.randrange(vocab): 3.0, rng.randrange(vocab): -100}]),
        min_tokens=rng.choice([0, 0, 4, 30]),
        ignore_eos=rng.random() < 0.2,
        stop_token_ids=rng.choice([[], [], [rng.randrange(vocab)]]),
    )


def drafters(model: HashLM, truths: list[list[int]], seed: int) -> dict[str, object]:
    vocab = model.vocab_size
    lies = (seed % 8, (seed + 3) % 8, (seed + 5) % 8)  # over the seeds: every offset of K = 8
    near, far = HashLM(vocab, 77, sharpness=1.0), HashLM(vocab, 78)
    return {
        "none": NoDraft(),
        "lookup": Lookup(3),
        "model": model_drafter(near),
        "model at a temperature": model_drafter(far, 1.0),
        "oracle": lambda seqs: oracle(model, seqs),
        "first of": lambda seqs: FirstOf(
            Lookup(3), liars(truths, 1, vocab), ModelDrafter(CachedModel(near, seqs.batch, 64))
        ),
        **{f"liar at {i}": liars(truths, i, vocab, beyond=9) for i in (-1, *lies)},
    }


@pytest.mark.parametrize("seed", range(10))
def test_sweep(seed: int) -> None:
    rng = random.Random(seed)
    vocab = rng.choice([4, 6, 9])
    model = HashLM(vocab, seed, sharpness=rng.choice([0.5, 2.0]))
    batch = rng.randrange(1, 5)
    prompts = [[rng.randrange(vocab) for _ in range(rng.randrange(1, 18))] for _ in range(batch)]
    params = [asked(rng, vocab) for _ in prompts]
    eos = rng.sample(range(vocab), rng.choice([0, 1, 2]))
    right = [decode(model, *row, eos) for row in zip(prompts, params, strict=True)]
    truths = [ids + new for ids, (new, _) in zip(prompts, right, strict=True)]
    for name, drafter in drafters(model, truths, seed).items():
        for k in (0, 1, 4, 8, Windows(0, 3, 1), Careless(3)):
            verifier = rng.choice([Greedy(), Rejection()])
            done = run(model, prompts, params, drafter, k, eos, verifier, length=64)
            assert list(zip(done.ids, done.finish(), strict=True)) == right, (name, k)


def test_drafters_that_are_right_or_wrong() -> None:
    output.equals_the_target_alone()


@pytest.mark.parametrize("seed", range(4))
def test_logits_by_table(seed: int) -> None:
    """A target with a short memory runs in circles, where lookup is nearly always right."""
    make = torch.Generator().manual_seed(seed)
    model = TableModel(torch.randn(12, 12, generator=make).tolist(), by="token")
    params = SamplingParams(max_tokens=40)
    prompts = [[1, 2, 3], [4], [5, 6]]
    right = [decode(model, ids, params)[0] for ids in prompts]
    for drafter in (Lookup(3), Lookup(2), FirstOf(Lookup(1), NoDraft())):
        for k in (1, 4, 8):
            done = run(model, prompts, params, drafter, k)
            assert done.ids == right
            assert len(done.rounds) < 40


def test_a_prompt_that_repeats_nothing_is_plain_decoding() -> None:
    model = TableModel([[9.0 * (t == i + 1) for t in range(40)] for i in range(40)])
    done = run(model, [[0]], SamplingParams(max_tokens=30), Lookup(3), 8)
    assert done.ids == [list(range(1, 31))]
    assert [row.tokens for row in done.emitted[0]] == [[t] for t in range(1, 31)]
    assert all(row.drafted == 0 for row in done.emitted[0])


def test_rows_with_and_without_drafts_in_one_batch() -> None:
    model = HashLM(8, seed=5)
    prompts = [[1], [2, 3], [4, 5, 6]]
    params = SamplingParams(max_tokens=15)
    right = [decode(model, ids, params)[0] for ids in prompts]
    truth = liars([[2, 3, *right[1]]], -1, 8)
    script = Scripted(lambda ids, k: truth.script(ids, k) if ids[:2] == [2, 3] else [])
    done = run(model, prompts, params, script, 4)
    assert done.ids == right
    assert [len(rows) for rows in done.emitted] == [15, 3, 15]


def test_no_draft_is_longer_than_k_or_than_what_is_left() -> None:
    model = HashLM(8, seed=5)
    for k in (0, 3):
        params = SamplingParams(max_tokens=10)
        done = run(model, [[1, 2]], params, lambda s: oracle(model, s), k)
        assert [row.drafted for row in done.emitted[0]] == ([0] * 10 if k == 0 else [3, 3, 1])


def test_the_context_ends_a_row() -> None:
    model = HashLM(8, seed=5)
    for prompt in ([1], [1, 2], [3] * 18, [3] * 19):
        right = decode(model, prompt, SamplingParams(max_tokens=None), room=20)
        assert len(right[0]) == 20 - len(prompt)
        drafts: list[Callable | object] = [Lookup(2), lambda s: oracle(model, s), Careless(8)]
        for drafter in drafts[:2]:
            for k in (1, 8, drafts[2]):
                done = run(model, [prompt], SamplingParams(max_tokens=None), drafter, k, length=20)
                assert (done.ids[0], done.finish()[0]) == right


def test_an_end_that_the_target_refuses_does_not_end() -> None:
    output.ends_inside_a_block()


OPTIONS = {
    "bias up": ({"logit_bias": {6: 100}}, lambda new, plain: set(new) == {6}),
    "bias down": ({"logit_bias": {4: -100}}, lambda new, plain: 4 in plain and 4 not in new),
    "repetition": ({"repetition_penalty": 1e6}, lambda new, plain: len(set(new[:6])) == 6),
    "frequency": ({"frequency_penalty": 100.0}, lambda new, plain: len(set(new[:8])) == 8),
    "presence": ({"presence_penalty": 100.0}, lambda new, plain: len(set(new[:8])) == 8),
    "end token": ({"stop_token_ids": [4]}, lambda new, plain: new == plain[: plain.index(4) + 1]),
    "top-k 1": ({"temperature": 2.0, "top_k": 1}, lambda new, plain: new == plain),
    "top-p 0": ({"temperature": 2.0, "top_p": 1e-9}, lambda new, plain: new == plain),
    "min-p 1": ({"temperature": 2.0, "min_p": 1.0}, lambda new, plain: new == plain),
    "cold": ({"temperature": 1e-9}, lambda new, plain: new == plain),
    "hot": ({"temperature": 50.0}, lambda new, plain: new != plain and len(set(new)) > 4),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_acts_on_every_token(option: str) -> None:
    """At an extreme value each option shows, and shows the same, whoever drafts."""
    model, prompt = HashLM(9, seed=3), [1, 2, 1, 2]
    plain = run(model, [prompt], SamplingParams(max_tokens=24), k=0).ids[0]
    values, shows = OPTIONS[option]
    params = SamplingParams(max_tokens=24, seed=3, **values)
    for drafter in (None, Lookup(2), lambda s: oracle(model, s), model_drafter(HashLM(9, seed=4))):
        assert shows(run(model, [prompt], params, drafter).ids[0], plain)


def test_a_warm_sampler_says_more_than_one_thing() -> None:
    model = HashLM(9, seed=3)
    params = [SamplingParams(max_tokens=6, temperature=2, seed=seed) for seed in range(20)]
    done = run(model, [[1, 2]] * 20, params, lambda s: oracle(model, s))
    assert len({tuple(new) for new in done.ids}) > 15


@pytest.mark.parametrize(("heads"), [(24, 22), (22, 24)])
def test_padded_vocabularies(heads: tuple[int, int]) -> None:
    """A tokenizer of 20 ids, heads of 22 and 24; the padding would win everywhere if it could."""
    bias = torch.zeros(24)
    bias[20:] = 50.0
    target, drafting = (HashLM(n, seed=n) for n in heads)
    target.table += bias[: heads[0]]
    drafting.table += bias[: heads[1]]
    cut = HashLM(heads[0], seed=heads[0])
    cut.table[:, 20:] = -torch.inf
    prompts = [[1, 2, 3], [19, 0]]
    right = [decode(cut, ids, SamplingParams(max_tokens=12))[0] for ids in prompts]
    for temperature in (0.0, 1.0):
        params = SamplingParams(max_tokens=12, temperature=temperature, seed=1)
        done = run(target, prompts, params, model_drafter(drafting, vocab=20), vocab=20)
        assert max(map(max, done.ids)) < 20
        assert temperature or done.ids == right


def test_a_request_may_join_and_leave_while_others_run() -> None:
    """Slots are taken as they come free; each request equals the one that had the loop alone."""
    model = HashLM(4, seed=8)
    rng = random.Random(0)
    wanted = [
        ([rng.randrange(4) for _ in range(rng.randrange(1, 30))], rng.randrange(1, 12))
        for _ in range(14)
    ]
    seqs = sequences([[0]] * 3, SamplingParams(), length=64)
    seqs.running = [False] * 3
    near = ModelDrafter(CachedModel(HashLM(4, seed=8, jitter=0.3), 3, 64))
    loop = Loop(CachedModel(model, 3, 64), FirstOf(Lookup(3), near), Rejection(), Fixed(4))
    got: dict[int, list[int]] = {}
    held: dict[int, int] = {}
    waiting = list(range(len(wanted)))
    while waiting or any(seqs.running):
        for row in range(3):
            if not seqs.running[row] and waiting and rng.random() < 0.8:
                held[row] = waiting.pop(0)
                ids, n = wanted[held[row]]
                seqs.admit(row, ids, SamplingParams(max_tokens=n))
        if any(seqs.running):
            loop.step(seqs)
        for row, request in list(held.items()):
            if not seqs.running[row]:
                got[request] = seqs.committed(row)[seqs.prompts[row] :].tolist()
                del held[row]
    for request, (ids, n) in enumerate(wanted):
        assert got[request] == decode(model, ids, SamplingParams(max_tokens=n))[0]


def test_one_loop_serves_many_requests_in_turn() -> None:
    model = HashLM(4, seed=8)
    loop = Loop(
        CachedModel(model, 1, 64),
        ModelDrafter(CachedModel(HashLM(4, 9), 1, 64)),
        Greedy(),
        Fixed(4),
    )
    for prompt in ([1, 2, 3], [1, 2, 3, 0, 0], [1, 2], [3], [1, 2, 3]):
        done = drive(loop, sequences([prompt], SamplingParams(max_tokens=9), length=64))
        assert done.ids[0] == decode(model, prompt, SamplingParams(max_tokens=9))[0]
