"""A target that can tell its likeliest tokens alone is asked for no more where they suffice."""

from __future__ import annotations

import pytest

from fake_ranking import Ranking
from fakes import HashLM, run
from paceline.core.params import SamplingParams
from paceline.drafters.lookup import Lookup

PROMPTS = [[1, 2, 3], [4, 4, 4, 4]]
GREEDY = SamplingParams(max_tokens=20)


def asked(*params: SamplingParams) -> set[str]:
    """What a target is asked for while it reads a draft, "nothing" (of prompts) left out."""
    model = Ranking(5, seed=3)
    run(model, PROMPTS[: len(params)], list(params), Lookup(2), 4)
    return {*model.asked} - {"nothing"}


@pytest.mark.parametrize("vocab", [None, 4])
@pytest.mark.parametrize("k", [0, 1, 5])
def test_the_output_is_the_same(k: int, vocab: int | None) -> None:
    for seed in range(5):
        with_logits = run(HashLM(5, seed), PROMPTS, GREEDY, Lookup(2), k, vocab=vocab)
        alone = run(Ranking(5, seed), PROMPTS, GREEDY, Lookup(2), k, vocab=vocab)
        assert alone.ids == with_logits.ids
        assert [len(rows) for rows in alone.emitted] == [len(rows) for rows in with_logits.emitted]


def test_greedy_rows_need_no_logits() -> None:
    assert asked(GREEDY, GREEDY) == {"top"}


@pytest.mark.parametrize(
    "other",
    [
        SamplingParams(max_tokens=20, temperature=0.5),
        SamplingParams(max_tokens=20, repetition_penalty=1.1),
        SamplingParams(max_tokens=20, logit_bias={1: 2.0}),
        SamplingParams(max_tokens=20, min_tokens=2),
        SamplingParams(max_tokens=20, logprobs=0),
    ],
    ids=["temperature", "penalty", "bias", "min_tokens", "logprobs"],
)
def test_one_row_that_needs_more_gets_it(other: SamplingParams) -> None:
    assert asked(other) == {"logits"}
    assert "logits" in asked(GREEDY, other)
