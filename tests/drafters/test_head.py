"""Heads: fed with the target's features, always of the committed tokens, and with a true q."""

from __future__ import annotations

import pytest
import torch

from checks import heads
from checks.heads import IDS, SAMPLED, Watch
from fake_heads import HashHead, Perfect, TappedLM
from fakes import HashLM, Scripted, Windows, drive, sequences
from naive import decode
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.head import HeadDrafter
from paceline.verifiers.rejection import Rejection


@pytest.mark.parametrize(
    "counts", [(0,), (1,), (3,), (4,), (0, 4, 1, 3, 4, 2, 0)], ids=lambda counts: f"{counts}"
)
def test_it_reads_the_features_of_the_committed_tokens(counts) -> None:
    heads.features_are_the_committed_ones(counts)


def test_a_prompt_of_many_passes_is_read_whole() -> None:
    """Longer than one prefill pass, and the second request shares a part of it."""
    head = HashHead(IDS)
    target = CachedModel(TappedLM(3), 1, 1500)
    watch = Watch(HeadDrafter(target, head), head)
    prompt = [i * i % 3 for i in range(1200)]
    for prompt_ids in (prompt, [*prompt[:700], 2, 2, 1]):
        watch.propose(sequences([prompt_ids], SAMPLED, (), 1500), [4])
    assert watch.watched == 8


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_perfect_head_is_always_accepted(temperature: float) -> None:
    """Also where another one drafts now and then, K is 0 now and then, a slot is used again, and at
    the end of the sequence."""
    length = 300
    model = TappedLM(3, seed=9)
    target = CachedModel(model, 2, length)
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    drafter = FirstOf(silly, HeadDrafter(target, Perfect(HashLM(3, seed=9))))
    for prompts in ([[1, 2], [0] * 20], [[2] * 11, [1]], [[2] * 11 + [0, 0], [1] * 250]):
        params = SamplingParams(max_tokens=60, temperature=temperature, seed=1)
        seqs = sequences(prompts, params, (), length)
        given = list(seqs.lengths)
        done = drive(Loop(target, drafter, Rejection(), Windows(4, 0, 8, 1)), seqs)
        drafted = 0
        for at, rows in zip(given, done.emitted, strict=True):
            for row in rows:
                if at % 7:
                    assert row.accepted == row.drafted
                    drafted += row.drafted
                at += len(row.tokens)
        assert drafted > 40


def test_a_row_of_one_token_has_no_features_yet() -> None:
    target = CachedModel(TappedLM(3), 2, 64)
    draft = HeadDrafter(target, HashHead(IDS)).propose(sequences([[1], [1, 2]], SAMPLED), [4, 4])
    assert draft.lengths == [0, 4]
    alone = HeadDrafter(CachedModel(TappedLM(3), 1, 64), HashHead(IDS))
    assert alone.propose(sequences([[1]], SAMPLED), [4]).lengths == [0]


def test_greedy_drafts_are_the_likeliest_of_its_own_tokens() -> None:
    head = HashHead([4, 0, 5], seed=2)
    target = CachedModel(TappedLM(6), 1, 64)
    draft = HeadDrafter(target, head).propose(sequences([[1, 2, 3]], SamplingParams()), [3])
    assert draft.q is None
    drafted = draft.tokens[0].tolist()
    right = head.fresh([1, 2, 3], drafted[:2]).argmax(-1)
    assert drafted == head.ids[right].tolist()


def test_tokens_that_the_target_has_not_are_never_drafted() -> None:
    """An output layer may be padded with ids that no tokenizer knows."""
    head = HashHead([0, 5, 1], seed=2)
    target = CachedModel(TappedLM(6), 40, 64, vocab=5)
    params = [SamplingParams(temperature=5, seed=seed) for seed in range(40)]
    draft = HeadDrafter(target, head).propose(sequences([[1, 2]] * 40, params), [4] * 40)
    assert draft.q.shape[-1] == 5
    assert int(draft.tokens.max()) < 5
    assert float((draft.q.sum(-1) - 1).abs().max()) < 1e-5
    greedy = HeadDrafter(target, head).propose(sequences([[1, 2]] * 40, SamplingParams()), [4] * 40)
    assert int(greedy.tokens.max()) < 5


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_it_stops_before_a_token_that_it_doubts(temperature: float) -> None:
    heads.doubt_ends_a_draft_fairly(temperature)


class Broken(HashHead):
    """Its logits are NaN."""

    def score(self, states: torch.Tensor) -> torch.Tensor:
        return super().score(states) * torch.nan


def test_a_broken_head_drafts_a_point_mass() -> None:
    target = CachedModel(TappedLM(6), 1, 64)
    draft = HeadDrafter(target, Broken([4, 2])).propose(sequences([[1, 2]], SAMPLED), [2])
    assert draft.tokens.tolist() == [[4, 4]]
    assert draft.q[0].tolist() == [[0, 0, 0, 0, 1, 0]] * 2


def test_two_heads_of_other_layers_do_not_share_a_target() -> None:
    target = CachedModel(TappedLM(3), 1, 64)
    HeadDrafter(target, HashHead(IDS))
    with pytest.raises(ValueError, match=r"layers \[2\] cannot be tapped"):
        HeadDrafter(target, Perfect(HashLM(3)))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_output_is_the_targets_own(temperature: float) -> None:
    """Greedily the very tokens; the law of sampled ones is the verifier's to hold."""
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=5)
    model = TappedLM(6, seed=3)
    target = CachedModel(model, 2, 128)
    seqs = sequences([[1, 2, 3], [4, 5]], params, (), 128)
    done = drive(Loop(target, HeadDrafter(target, HashHead(range(6))), Rejection(), Fixed(4)), seqs)
    drafted = sum(row.drafted for rows in done.emitted for row in rows)
    assert drafted > 100
    if not temperature:
        assert done.ids == [decode(model, ids, params)[0] for ids in ([1, 2, 3], [4, 5])]
