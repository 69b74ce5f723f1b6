"""A draft over the target's own cache: as good as one with a cache of its own, and harmless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from checks.health import Watch
from fakes import Accepts, HashLM, Scripted, Windows, drive, run, sequences
from kernels import tiny_decoders
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Model
from paceline.core.shared import Shared
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.model import ModelDrafter
from paceline.models.load import load
from paceline.models.skip import Layered, skip_layers
from paceline.verifiers.rejection import Rejection
from tiny import write_llama

LENGTH = 200
PROMPTS = [[1, 2, 3], [4] * 20, [5]]


class Pair(NamedTuple):
    """A target and another model that runs over its caches, ready for any length of these tests."""

    target: Model
    other: Model


def hashes(folder: Path) -> Pair:
    return Pair(HashLM(3, seed=9), HashLM(3, seed=4))


def native(folder: Path) -> Pair:
    target = tiny_decoders.native(tiny_decoders.Weights(tiny_decoders.FAMILIES["gemma3"], "int8"))
    return Pair(target, skip_layers(target, [0, 2]))


def in_torch(folder: Path) -> Pair:
    target, _ = load(write_llama(folder, layers=4), "fp32", "cpu")
    return Pair(target, skip_layers(target, [0, 3]))


KINDS: dict[str, Callable[[Path], Pair]] = {"hash": hashes, "native": native, "torch": in_torch}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return KINDS[request.param](tmp_path_factory.mktemp("model"))


def cache_of(pair: Pair, rows: int = len(PROMPTS)) -> CachedModel:
    cached = CachedModel(pair.target, rows, LENGTH)
    if isinstance(pair.other, Layered):
        pair.other.reach(cached.cache.length)
    return cached


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_perfect_draft_is_always_accepted(pair: Pair, temperature: float) -> None:
    """On ragged rows that end one after the other, with windows of 0 in some rows and in all, after
    another drafter, and in slots that unrelated prompts use again."""
    target = cache_of(pair)
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    drafter = FirstOf(silly, ModelDrafter(Shared(target, pair.target)))
    for turn, prompts in enumerate((PROMPTS, [[2] * 30, [1], [0, 2, 1]])):
        params = [
            SamplingParams(max_tokens=n, temperature=temperature, seed=turn) for n in (60, 33, 47)
        ]
        seqs = sequences(prompts, params, (), LENGTH)
        done = drive(Loop(target, drafter, Rejection(), Windows(4, 0, 8, 1, 0, 0)), seqs)
        drafted = 0
        for b, rows in enumerate(done.emitted):
            at = len(prompts[b])
            for row in rows:
                if at % 7:
                    assert row.accepted == row.drafted
                    drafted += row.drafted
                at += len(row.tokens)
        assert drafted > 50


@pytest.mark.parametrize("others_run", [True, False])
def test_the_target_s_logits_are_the_same_to_the_bit(pair: Pair, others_run: bool) -> None:
    """Whatever a draft wrote behind the target, in its own row and in rows that did not draft."""
    alone, lent = CachedModel(pair.target, 3, LENGTH), cache_of(pair)
    shared = Shared(lent, pair.other)
    seqs = sequences(PROMPTS, SamplingParams(max_tokens=100, temperature=1, seed=2), (), LENGTH)
    drafter = ModelDrafter(shared)
    for turn in range(8):
        k = [(turn * 3 + b) % 5 for b in range(3)]
        if turn == 5:
            seqs.finish(1)
        view = seqs if others_run else seqs.only([turn % 3])
        drafter.propose(view, k)
        drafter.propose(view, [2, 3, 1])  # and once more, to other depths
        tokens = torch.tensor([[1, 2, 0, 1], [2, 0, 1, 1], [0, 0, 2, 1]])
        draft = Draft(tokens, [4 if run else 0 for run in seqs.running])
        right, found = alone.score(seqs, draft), lent.score(seqs, draft)
        for b in range(3):
            if seqs.running[b]:
                assert torch.equal(found[b], right[b])
        p = seqs.probs(found, draft)
        seqs.commit(Accepts(turn % 5, 4, 0).verify(p, draft, seqs.noise(draft)), draft)
    drafter.propose(view, [4, 4, 4])
    # requests that begin with all that the cache still holds to be read, rejected tokens too
    known = [[*lent.ids[b, :n].tolist(), 1] for b, n in enumerate(lent.filled)]
    again = sequences(known, SamplingParams(), (), LENGTH)
    nothing = Draft(torch.zeros(3, 0, dtype=torch.int64), [0] * 3)
    assert torch.equal(lent.score(again, nothing), alone.score(again, nothing))


def test_greedy_output_is_the_target_s_own(pair: Pair) -> None:
    """Also of a second request in slots where drafts were written."""
    greedy = SamplingParams(max_tokens=50)
    plain = run(pair.target, PROMPTS, greedy, length=LENGTH)
    target = cache_of(pair)
    loop = Loop(target, ModelDrafter(Shared(target, pair.other)), Rejection(), Windows(4, 0, 7))
    for _ in range(2):
        assert drive(loop, sequences(PROMPTS, greedy, (), LENGTH)).ids == plain.ids


def test_q_is_that_of_the_draft_model_behind_the_committed_tokens() -> None:
    """Here the draft's cache would be the same as the target's, entry by entry, so that its own
    uncached pass says what q must be: whatever was accepted, whoever drafted in between."""
    for seed, counts in enumerate([(0,), (4,), (0, 4, 1, 3, 4, 2, 0)]):
        draft_model, target_model = HashLM(3, seed=seed), HashLM(3, seed=seed + 50)
        target = CachedModel(target_model, 3, LENGTH)
        watch = Watch(ModelDrafter(Shared(target, draft_model), temperature=1.0), draft_model)
        now_and_then = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 5 == 0 else [])
        windows = Windows(4, 4, 0, 1, 4, 0, 0, 2)
        loop = Loop(target, FirstOf(now_and_then, watch), Accepts(*counts), windows)
        for prompts in ([[0, 1], [2] * 9, [1, 2, 0]], [[1], [2] * 5 + [0], [0] * 20]):
            params = SamplingParams(max_tokens=36, temperature=1, seed=3)
            drive(loop, sequences(prompts, params, (), LENGTH))
        assert watch.watched > 60


def test_it_reads_one_token_a_step_and_no_prompt() -> None:
    """That is what it is for."""
    model = HashLM(5, seed=1)
    target, draft = CachedModel(model, 1, LENGTH), HashLM(5, seed=1)
    loop = Loop(target, ModelDrafter(Shared(target, draft)), Rejection(), Windows(4))
    done = drive(loop, sequences([[1] * 90], SamplingParams(max_tokens=50), (), LENGTH))
    assert draft.reads == sum(row.drafted for row in done.emitted[0])


def test_a_narrower_draft_reads_ids_that_it_knows() -> None:
    narrow, wide = HashLM(4, seed=1), HashLM(9, seed=2)
    target = CachedModel(wide, 1, LENGTH)
    shared = Shared(target, narrow)
    assert shared.vocab == 4
    params = SamplingParams(max_tokens=40, temperature=1, seed=1)
    loop = Loop(target, ModelDrafter(shared), Rejection(), Windows(3))
    done = drive(loop, sequences([[8, 7]], params, (), LENGTH))
    assert len(done.ids[0]) == 40
    assert max(done.ids[0]) > 3
