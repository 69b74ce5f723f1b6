"""Greedy output equals the target's own; penalties, ends, limits, counts and seeds are exact."""

from __future__ import annotations

import random

from fakes import Careless, HashLM, Scripted, TableModel, liars, model_drafter, oracle, run
from naive import decode
from paceline.core.params import SamplingParams
from paceline.core.stats import Stats
from paceline.core.types import Seconds
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup


def equals_the_target_alone(seed: int = 1) -> None:
    """Greedy ids and finish of ragged rows equal those worked out without cache or loop, for
    drafters that are right, wrong, or right now and then."""
    rng, vocab = random.Random(seed), 6
    model = HashLM(vocab, seed)
    prompts = [[rng.randrange(vocab) for _ in range(n)] for n in (1, 4, 11)]
    params = SamplingParams(max_tokens=14, frequency_penalty=0.3, min_tokens=3)
    right = [decode(model, ids, params, [5]) for ids in prompts]
    drafters = [
        model_drafter(HashLM(vocab, seed, jitter=0.4)),
        liars([ids + out for ids, (out, _) in zip(prompts, right, strict=True)], 2, vocab, 9),
        FirstOf(Lookup(2), liars([p + o for p, (o, _) in zip(prompts, right, strict=True)], 1, 6)),
        lambda seqs: FirstOf(Lookup(3), oracle(model, seqs)),
    ]
    for drafter in drafters:
        for k in (1, 4):
            done = run(model, prompts, params, drafter, k, eos=[5])
            assert list(zip(done.ids, done.finish(), strict=True)) == right


def penalties_see_their_own_prefix() -> None:
    """Constant logits, a penalty: the known ids, whatever is drafted."""
    model = TableModel([[2.0, 1.5, 1.0, -9.0]])
    cases = [
        (SamplingParams(max_tokens=8, frequency_penalty=0.6), [0, 1, 0, 2, 1, 0, 2, 1]),
        (SamplingParams(max_tokens=6, repetition_penalty=1.5), [0, 1, 0, 0, 0, 0]),
    ]
    for params, right in cases:
        drafters = [None, Scripted(lambda ids, k: [2] * k), liars([[3, *right]], -1, 4)]
        drafters += [liars([[3, *right]], wrong_at, 4) for wrong_at in range(4)]
        for drafter in drafters:
            for k in (1, 4, 8):
                assert run(model, [[3]], params, drafter, k).ids == [right]
    ends = TableModel([[2.0, 1.5, 1.0, 9.0]])  # its end token is always on top
    for drafter in (None, liars([[0] * 6 + [3]], -1, 4), Scripted(lambda ids, k: [3] * k)):
        for k in (1, 4, 8):
            params = SamplingParams(max_tokens=12, min_tokens=5)
            done = run(ends, [[0]], params, drafter, k, eos=[3])
            assert done.ids == [[0, 0, 0, 0, 0, 3]]
            assert done.finish() == ["stop"]


def ends_inside_a_block() -> None:
    """An end token counts wherever it stands in a block, if the target says it."""
    model, prompt = HashLM(30, seed=4), [3, 1, 4]
    plain = run(model, [prompt], SamplingParams(max_tokens=12), k=0).ids[0]
    assert len(set(plain)) > 8
    fresh = [j for j in range(12) if plain[j] not in plain[:j]]
    for k in (1, 4, 8):
        for j in fresh:
            for drafter in (liars([prompt + plain], -1, 30), lambda s: oracle(model, s)):
                done = run(model, [prompt], SamplingParams(max_tokens=12), drafter, k, [plain[j]])
                assert done.ids == [plain[: j + 1]]
                assert done.finish() == ["stop"]
    refused = next(t for t in range(30) if t not in plain)
    done = run(
        model,
        [prompt],
        SamplingParams(max_tokens=12),
        Scripted(lambda ids, k: [refused] * k),
        eos=[refused],
    )
    assert done.ids == [plain]


def rows_do_not_meet() -> None:
    """A seeded, sampled row says the same alone and beside others."""
    model = HashLM(9, seed=2)
    make = model_drafter(HashLM(9, seed=2, jitter=0.5))
    rows = [
        ([1, 2, 3], SamplingParams(max_tokens=20, temperature=1.5, seed=7)),
        ([5] * 9, SamplingParams(max_tokens=6, temperature=0.8, top_k=4, seed=8)),
        ([2, 8] * 8, SamplingParams(max_tokens=17)),
        ([1, 2, 3], SamplingParams(max_tokens=20, temperature=1.5)),
    ]
    together = run(model, [ids for ids, _ in rows], [p for _, p in rows], make).ids
    for (ids, params), new in list(zip(rows, together, strict=True))[:3]:
        assert run(model, [ids], params, make).ids == [new]


def limits_are_exact() -> None:
    """Every limit from 1 to 10: so many tokens, whoever drafts, and no stop is hidden by one."""
    model, prompt = HashLM(5, seed=3), [1, 2, 1, 2]
    plain = run(model, [prompt], SamplingParams(max_tokens=10), k=0).ids[0]
    drafters = [None, Lookup(2), liars([prompt + plain], 1, 5, 9), lambda s: oracle(model, s)]
    for limit in range(1, 11):
        for drafter in drafters:
            for k in (1, 4, 8, Careless(4)):
                done = run(model, [prompt], SamplingParams(max_tokens=limit), drafter, k)
                assert done.ids == [plain[:limit]]
                assert done.finish() == ["length"]
                assert sum(len(row.tokens) for row in done.emitted[0]) == limit
    says = TableModel([[9.0 * (t == token) for t in range(10)] for token in (7, 8, 3, 9, 9, 6, 9)])
    for end, limit, n, finish in [
        (3, 4, 3, "stop"),
        (6, 5, 5, "length"),
        (6, 6, 6, "stop"),
        (6, 7, 6, "stop"),
    ]:
        for k in (0, 1, 4, 8, Careless(4)):
            drafter = liars([[0, 7, 8, 3, 9, 9, 6, 9]], -1, 10, 9)
            done = run(says, [[0]], SamplingParams(max_tokens=limit), drafter, k, [end])
            assert done.ids == [[7, 8, 3, 9, 9, 6, 9][:n]]
            assert done.finish() == [finish]


def counters_are_right() -> None:
    """Three rounds of K = 4 that accept 4, then 0, then 2 with the end as the second one."""
    out = [1, 2, 3, 4, 5, 6, 7, 8]
    says = TableModel([[9.0 * (t == token) for t in range(10)] for token in [*out, 9]])
    blocks = {1: [1, 2, 3, 4], 6: [9, 9, 9, 9], 7: [7, 8, 9, 9]}
    drafter = Scripted(lambda ids, k: blocks[len(ids)])
    done = run(says, [[0]], SamplingParams(max_tokens=50), drafter, 4, eos=[8])
    stats = Stats()
    for row in done.emitted[0]:
        stats.add(row, Seconds(0.5, 1.0, 0.25))
    assert done.ids == [out]
    assert (stats.rounds, stats.drafted, stats.accepted, stats.emitted) == (3, 12, 6, 8)
    assert (stats.tested, stats.passed) == ([3, 2, 1, 1], [2, 2, 1, 1])
    assert (stats.alpha, stats.tau) == (6 / 7, 8 / 3)
    assert stats.alpha_at == [2 / 3, 1.0, 1.0, 1.0]
    assert (stats.draft_s, stats.target_s, stats.overhead_s) == (1.5, 3.0, 0.75)
    assert [origin for row in done.emitted[0] for origin in row.origins()] == (
        ["accepted"] * 4 + ["bonus"] + ["recovered"] + ["accepted"] * 2
    )
