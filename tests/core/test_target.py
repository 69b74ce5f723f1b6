"""p, position by position, each from the prefix of that very position."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
import torch

from checks import output
from fakes import HashLM, run
from naive import adjust, probabilities
from paceline.core.params import SamplingParams
from paceline.core.target import Prefix, target


def ids(tokens: Sequence[int]) -> torch.Tensor:
    return torch.tensor(tokens, dtype=torch.int64)


def random_params(rng: random.Random, vocab: int, temperature: float) -> SamplingParams:
    return SamplingParams(
        temperature=temperature,
        repetition_penalty=rng.choice([1.0, 1.3, 0.8]),
        frequency_penalty=rng.choice([0.0, 0.7, -0.4]),
        presence_penalty=rng.choice([0.0, 0.5, -0.2]),
        logit_bias=rng.choice([{}, {rng.randrange(vocab): 2.5, vocab + 3: 9.0}]),
        min_tokens=rng.choice([0, 3, 6]),
        top_k=rng.choice([0, 4]),
    )


@pytest.mark.parametrize("seed", range(25))
def test_p_equals_the_same_promise_worked_out_by_token(seed: int) -> None:
    rng, vocab = random.Random(seed), 8
    make = torch.Generator().manual_seed(seed)
    rows, logits = [], torch.randn(3, 6, vocab, generator=make) * 2
    raw = logits.clone()
    for temperature in (0, 0.8, 1.3):
        prompt, out, draft = (
            [rng.randrange(vocab) for _ in range(rng.randrange(low, 6))] for low in (1, 0, 0)
        )
        rows.append((random_params(rng, vocab, temperature), prompt, out, draft, {2, 5, vocab + 1}))
    p = target(logits, [Prefix(r[0], *map(ids, r[1:4]), r[4]) for r in rows])
    assert torch.equal(p.logits, raw)
    assert list(p.sampled) == [1, 2]
    for b, (params, prompt, out, draft, eos) in enumerate(rows):
        for t in range(len(draft) + 1):
            scores = adjust(raw[b, t].tolist(), params, prompt, out + draft[:t], eos)
            assert int(p.top[b, t]) == (-1 if b else scores.index(max(scores)))
            if b:
                right = torch.tensor(probabilities(scores, params))
                assert float((p.dense[b - 1, t] - right).abs().max()) < 1e-5


def test_greedy_rows_get_no_dense_distribution() -> None:
    row = Prefix(SamplingParams(), ids([]), ids([]), ids([]), ())
    p = target(torch.zeros(2, 3, 5), [row, None])
    assert p.dense is None
    assert list(p.sampled) == []


def test_the_lowest_id_wins_a_tie_and_nothing_wins_where_there_is_no_distribution() -> None:
    nan, inf = torch.nan, torch.inf
    logits = torch.tensor(
        [[[1.0, 3, 3, 2], [0, nan, 5, 1], [0, inf, 5, 1], [-inf] * 4, [-inf] * 3 + [0]]]
    )
    p = target(logits, [Prefix(SamplingParams(), ids([]), ids([]), ids([0] * 4), ())])
    assert p.top.tolist() == [[1, -1, -1, -1, 3]]


def test_known_sequences_under_penalties() -> None:
    output.penalties_see_their_own_prefix()


def test_everything_banned_is_an_error_and_not_a_token() -> None:
    params = SamplingParams(logit_bias={t: -float("inf") for t in range(5)}, max_tokens=4)
    for temperature in (0, 1):
        done = run(HashLM(5), [[1]], SamplingParams(**{**vars(params), "temperature": temperature}))
        assert done.ids == [[]]
        assert done.finish() == ["error"]
