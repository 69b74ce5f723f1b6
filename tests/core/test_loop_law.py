"""Sampled output follows p: through the whole loop, whatever drafts."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from checks import laws
from exact import chi_square, loop_law
from fakes import HashLM, Scripted, TableModel, model_drafter, oracle, run
from naive import joint_law
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter

WARM = SamplingParams(temperature=1)


@pytest.mark.parametrize("name", laws.LAWS)
def test_first_token_after_the_prompt_exactly(name: str) -> None:
    laws.first_token_follows_p(name)


@pytest.mark.parametrize("k", [1, 2])
def test_first_two_tokens_exactly(k: int) -> None:
    laws.several_tokens_follow_p(k)


@pytest.mark.parametrize("drafted", [0, 1, 2])
def test_a_scripted_draft_leaves_p_exactly_as_it_is(drafted: int) -> None:
    model = TableModel.of_probs([0.5, 0.25, 0.25])
    script = Scripted(lambda ids, k: [drafted] * k)
    law = loop_law(model, lambda seqs: script, WARM, 1, (1, 4, 12), tokens=2)
    p = torch.tensor([0.5, 0.25, 0.25], dtype=law.dtype)
    assert float((law - p[:, None] * p).abs().max()) <= 1e-9


def test_a_broken_draft_model_leaves_p_exactly_as_it_is() -> None:
    laws.broken_drafts_leave_p_as_it_is()


def test_a_drafter_of_a_narrower_vocabulary_leaves_p_exactly_as_it_is() -> None:
    model = TableModel.of_probs([0.25, 0.25, 0.5])
    narrow = model_drafter(TableModel.of_probs([0.5, 0.5]))
    law = loop_law(model, narrow, WARM, 1, (2, 2, 2))
    assert law.tolist() == pytest.approx([0.25, 0.25, 0.5], abs=1e-9)


@pytest.mark.parametrize("padding", [(1, 3), (3, 1), (0, 2)])
def test_padding_of_either_head_leaves_p_exactly_as_it_is(padding: tuple[int, int]) -> None:
    """Ids past the tokenizer's 3 have a logit of +50 in both heads."""
    rows = torch.tensor([[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]).log().tolist()
    heads = [TableModel([law + [50.0] * n]) for law, n in zip(rows, padding, strict=True)]
    law = loop_law(heads[0], model_drafter(heads[1], vocab=3), WARM, 1, (4, 2, 4), vocab=3)
    assert law.tolist() == pytest.approx([0.25, 0.25, 0.5], abs=1e-9)


def test_a_looked_up_row_may_hold_ids_that_the_draft_model_does_not_know() -> None:
    """Lookup drafts from 6 ids, the draft model knows 4 of them; both in one batch."""
    model = HashLM(6, seed=1)
    params = SamplingParams(max_tokens=12, temperature=1, seed=1)

    def make(seqs):
        return FirstOf(Lookup(2), ModelDrafter(CachedModel(model, seqs.batch, 256, vocab=4)))

    prompts = [[5, 4, 5, 4, 5, 4], [0, 1, 2]]
    done = run(model, prompts, params, make, 3)
    draft = done.rounds[0].draft
    assert (draft.tokens[0].tolist(), draft.lengths) == ([5, 4, 5], [3, 3])
    assert torch.equal(draft.q[0], torch.eye(6)[[5, 4, 5]])
    assert done.ids[0] == run(model, prompts[:1], params, make, 3).ids[0]


CASES = {
    "model": (model_drafter(HashLM(4, 1, jitter=0.6)), 2, WARM),
    "wide window": (model_drafter(HashLM(4, 1, jitter=0.6)), 5, SamplingParams(temperature=1.4)),
    "shaped": (
        model_drafter(HashLM(4, 1, jitter=0.6)),
        2,
        SamplingParams(temperature=0.8, top_p=0.9, min_p=0.02),
    ),
    "penalties": (
        model_drafter(HashLM(4, 1, jitter=0.6)),
        2,
        SamplingParams(temperature=1, frequency_penalty=0.8, repetition_penalty=1.2),
    ),
    "cooler draft": (model_drafter(HashLM(4, 1, jitter=0.6), 0.4), 2, WARM),
    "greedy draft": (model_drafter(HashLM(4, 1, jitter=0.6), 0.0), 2, WARM),
    "lookup": (Lookup(2), 3, WARM),
    "first of": (lambda s: FirstOf(Lookup(2), oracle(HashLM(4, 1, jitter=0.9), s)), 2, WARM),
}


@pytest.mark.parametrize("case", CASES)
def test_joint_law_of_three_tokens(case: str) -> None:
    """1,000 requests, three tokens each, against every one of the 64 probabilities."""
    drafter, k, params = CASES[case]
    model, prompt, n = HashLM(4, 1, sharpness=1.0), [1, 2, 1], 1000
    each = [SamplingParams(**{**vars(params), "max_tokens": 3, "seed": seed}) for seed in range(n)]
    seen = Counter(map(tuple, run(model, [prompt] * n, each, drafter, k, length=16).ids))
    right = dict(joint_law(model, prompt, params, 3))
    assert all(right[tokens] > 0 for tokens in seen)
    statistic, edge = chi_square([seen[t] for t in right], [n * share for share in right.values()])
    assert statistic < edge
