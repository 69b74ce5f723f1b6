"""Bad values are refused by the name of their field."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.core.params import SamplingParams
from paceline.errors import PacelineError

NOT_WHOLE = [2.5, "5", True, None, math.nan, math.inf, [1]]
NOT_REAL = ["1", True, None, math.nan, math.inf, -math.inf, 10**400, 1j, [1]]
BAD = {
    "max_tokens": [0, -1, *[v for v in NOT_WHOLE if v is not None]],
    "temperature": [-0.1, -1, *NOT_REAL],
    "top_k": [-1, *NOT_WHOLE],
    "top_p": [0, -0.5, 1.01, *NOT_REAL],
    "min_p": [-0.01, 1.01, *NOT_REAL],
    "repetition_penalty": [0, -1.0, *NOT_REAL],
    "frequency_penalty": NOT_REAL,
    "presence_penalty": NOT_REAL,
    "min_tokens": [-1, *NOT_WHOLE],
    "seed": [-(2**63) - 1, 2**64, *[v for v in NOT_WHOLE if v is not None]],
    "logprobs": [-1, *[v for v in NOT_WHOLE if v is not None]],
    "stop": ["", ["a", ""], [3], 5, None, b"x", [None]],
    "stop_token_ids": [[-1], [1.5], ["a"], [True], 5, None, "7"],
    "logit_bias": [
        {-1: 1.0},
        {"5": 1.0},
        {1.5: 1.0},
        {5: math.nan},
        {5: math.inf},
        {5: "1"},
        {5: None},
        [1],
        None,
        5,
    ],
}


@pytest.mark.parametrize("field", BAD)
def test_a_bad_value_names_its_field(field: str) -> None:
    for value in BAD[field]:
        with pytest.raises(PacelineError, match=field) as caught:
            SamplingParams(**{field: value})
        assert "\n" not in str(caught.value)


def test_values_at_the_edges_are_taken() -> None:
    params = SamplingParams(
        max_tokens=1,
        temperature=0,
        top_k=0,
        top_p=1,
        min_p=1,
        repetition_penalty=1e-3,
        frequency_penalty=-2,
        presence_penalty=2.5,
        logit_bias={0: -100, 7: -math.inf},
        min_tokens=0,
        seed=-(2**63),
        logprobs=0,
    )
    assert params.greedy
    assert SamplingParams(max_tokens=None, seed=2**64 - 1).max_tokens is None
    assert not SamplingParams(temperature=np.float32(0.7), top_k=np.int64(3)).greedy
    assert SamplingParams(stop="END").stop == ("END",)
    assert SamplingParams(stop=["a", "b"]).stop == ["a", "b"]


def test_every_field_that_changes_the_logits_says_so() -> None:
    plain = SamplingParams(temperature=1, top_k=4, top_p=0.5, min_p=0.1, stop_token_ids=[3])
    assert not plain.adjusts
    for change in (
        {"repetition_penalty": 1.1},
        {"frequency_penalty": -0.1},
        {"presence_penalty": 0.1},
        {"logit_bias": {3: 0.5}},
        {"min_tokens": 1},
    ):
        assert SamplingParams(**change).adjusts
