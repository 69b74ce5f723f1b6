"""A row's output is its own: seeds, neighbours, earlier requests, broken rows."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from checks import output
from fakes import (
    Accepts,
    Faulty,
    HashLM,
    Windows,
    drive,
    liars,
    model_drafter,
    oracle,
    run,
    sequences,
)
from naive import decode, fresh_pass
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.none import NoDraft
from paceline.verifiers.rejection import Rejection

MODEL = HashLM(9, seed=2)
DRAFTERS = {
    "none": NoDraft(),
    "lookup": Lookup(2),
    "model": model_drafter(HashLM(9, seed=2, jitter=0.5)),
    "model, cooler": model_drafter(HashLM(9, seed=2, jitter=0.5), 0.6),
    "model, greedy": model_drafter(HashLM(9, seed=2, jitter=0.5), 0.0),
    "first of": lambda seqs: FirstOf(Lookup(2), oracle(HashLM(9, seed=2, jitter=0.9), seqs)),
}
SEEDED = SamplingParams(max_tokens=20, temperature=1.5, seed=7)


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("k", [0, 1, 4])
def test_a_seeded_row_says_the_same_alone_and_beside_others(drafter: str, k: int) -> None:
    alone = run(MODEL, [[1, 2, 3]], SEEDED, DRAFTERS[drafter], k).ids[0]
    others = [
        ([5] * 9, SamplingParams(max_tokens=6, temperature=0.8, top_k=4, seed=8)),
        ([1, 2, 3], SamplingParams(max_tokens=25, temperature=1.5)),
        ([2, 8], SamplingParams(max_tokens=17, presence_penalty=0.5)),
    ]
    for place in range(4):
        rows = [*others[:place], ([1, 2, 3], SEEDED), *others[place:]]
        done = run(MODEL, [r[0] for r in rows], [r[1] for r in rows], DRAFTERS[drafter], k)
        assert done.ids[place] == alone


def test_rows_do_not_meet() -> None:
    output.rows_do_not_meet()


def test_a_seeded_row_says_the_same_after_other_requests() -> None:
    right = run(MODEL, [[1, 2, 3]], SEEDED, DRAFTERS["model"]).ids
    target, drafting = CachedModel(MODEL, 1, 64), CachedModel(HashLM(9, 2, jitter=0.5), 1, 64)
    loop = Loop(target, ModelDrafter(drafting), Rejection(), Fixed(4))
    for n in range(10):
        params = SamplingParams(max_tokens=12, temperature=1.0)
        drive(loop, sequences([[1, 2, n % 9, n % 7]], params, length=64))
    assert drive(loop, sequences([[1, 2, 3]], SEEDED, length=64)).ids == right


def test_seeds_are_told_apart_and_missing_ones_differ() -> None:
    with_seed = [SamplingParams(max_tokens=20, temperature=1.5, seed=seed) for seed in range(10)]
    done = run(MODEL, [[1, 2, 3]] * 10, with_seed, DRAFTERS["model"])
    assert len(set(map(tuple, done.ids))) == 10
    none = SamplingParams(max_tokens=20, temperature=1.5)
    done = run(MODEL, [[1, 2, 3]] * 10, none, DRAFTERS["model"])
    assert len(set(map(tuple, done.ids))) == 10


def test_a_sampled_request_without_a_draft_is_the_same_at_every_k() -> None:
    """Plain decoding is the loop with an empty draft: the window changes nothing."""
    right = run(MODEL, [[1, 2, 3]], SEEDED, k=0).ids
    assert run(MODEL, [[1, 2, 3]], SEEDED, NoDraft(), 8).ids == right
    assert run(MODEL, [[1, 2, 3]], SEEDED, DRAFTERS["model"], 0).ids == right


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_that_accept_different_counts(temperature: float) -> None:
    """Prompts of 3, 9 and 17 tokens; 0, 2 and 4 of 4 accepted in rotation; one row ends early. Each
    row's p stays that of a fresh pass over its own tokens."""
    model = HashLM(6, seed=3)
    prompts = [[1, 2, 3], [4] * 9, [5, 0] * 8 + [1]]
    params = [SamplingParams(max_tokens=n, temperature=temperature, seed=n) for n in (30, 9, 40)]
    seqs = sequences(prompts, params, length=96)
    drafter = ModelDrafter(CachedModel(HashLM(6, seed=4), 3, 96))
    loop = Loop(CachedModel(model, 3, 96), drafter, Accepts(0, 2, 4), Fixed(4))
    counts = set()
    while any(seqs.running):
        before = [seqs.committed(b).tolist() for b in range(3)]
        round = loop.step(seqs)
        for b, row in enumerate(round.emitted):
            if row is None:
                continue
            counts.add(row.accepted)
            n = round.draft.lengths[b]
            right = fresh_pass(model, before[b] + round.draft.tokens[b, :n].tolist())
            assert torch.equal(round.target.logits[b, : n + 1], right[-n - 1 :])
    assert counts >= {0, 2, 4}
    assert [len(seqs.committed(b)) for b in range(3)] == [33, 18, 57]


@pytest.mark.parametrize("offsets", [(0, 2, -1), (-1, 0, 2), (2, -1, 0)])
def test_greedy_rows_that_accept_different_counts_equal_themselves_alone(offsets) -> None:
    model = HashLM(8, seed=3)
    prompts = [[1, 2, 3], [4] * 9, [5, 0] * 8 + [1]]
    params = [SamplingParams(max_tokens=n) for n in (24, 7, 24)]
    right = [decode(model, *row)[0] for row in zip(prompts, params, strict=True)]
    truths = [ids + new for ids, new in zip(prompts, right, strict=True)]
    each = [liars([t], offset, 8) for t, offset in zip(truths, offsets, strict=True)]

    class Rows:
        def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
            drafts = [d.propose(seqs.only([b]), k) for b, d in enumerate(each)]
            width = max(d.tokens.shape[1] for d in drafts)
            tokens = torch.zeros(3, width, dtype=torch.int64)
            for b, d in enumerate(drafts):
                tokens[b, : d.tokens.shape[1]] = d.tokens[b]
            return Draft(tokens, [d.lengths[b] for b, d in enumerate(drafts)])

    done = run(model, prompts, params, Rows(), 4)
    assert done.ids == right
    full = [offset if offset >= 0 else 4 for offset in offsets]
    assert [rows[0].accepted for rows in done.emitted] == full


# --- broken logits -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_a_broken_row_ends_with_an_error_and_the_others_go_on(value, temperature, k) -> None:
    """The target has no distribution behind token 12 of row 1 and all later ones."""
    prompts = [[1, 2, 3], [4, 5], [6] * 7]
    params = SamplingParams(max_tokens=20, temperature=temperature, seed=5)
    make = model_drafter(HashLM(9, seed=2, jitter=0.4))
    right = run(MODEL, prompts, params, make, k).ids
    done = run(Faulty(MODEL, row=1, start=11, value=value), prompts, params, make, k)
    assert done.finish() == ["length", "error", "length"]
    assert done.ids == [right[0], right[1][:10], right[2]]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("start", [0, 9])
def test_a_broken_draft_model_changes_nothing(value: float, start: int) -> None:
    broken = model_drafter(Faulty(HashLM(9, seed=2), start=start, value=value))
    params = SamplingParams(max_tokens=20)
    prompts = [[1, 2, 3], [4, 5]]
    right = [decode(MODEL, ids, params)[0] for ids in prompts]
    for k in (1, 4):
        assert run(MODEL, prompts, params, broken, k).ids == right
        warm = SamplingParams(max_tokens=20, temperature=1, seed=1)
        done = run(MODEL, prompts, [params, warm], broken, k)
        assert done.ids[0] == right[0]
        assert done.finish() == ["length", "length"]
        assert min(done.ids[1]) >= 0
        assert max(done.ids[1]) < 9


def test_a_broken_draft_row_leaves_its_neighbour_as_good_as_it_was() -> None:
    faulty = Faulty(MODEL, row=0)
    params = SamplingParams(max_tokens=30, temperature=1, seed=4)
    done = run(MODEL, [[1, 2], [3, 4]], params, model_drafter(faulty), Windows(4, 2))
    assert all(row.accepted == row.drafted for row in done.emitted[1])
