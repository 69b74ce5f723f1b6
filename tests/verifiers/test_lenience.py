"""Lenience: more is accepted, within a bound that is known."""

from __future__ import annotations

import math

import pytest

from checks import chains
from fake_ranking import Ranking
from fakes import HashLM, Scripted, TableModel, run
from paceline.core.params import SamplingParams
from paceline.errors import PacelineError
from paceline.verifiers.greedy import Greedy
from paceline.verifiers.rejection import Rejection


@pytest.mark.parametrize(
    ("lenience", "alpha"), [(1.0, 0.6110), (0.5, 0.6870), (0.3, 0.6909), (0.1, 0.7106)]
)
def test_acceptance(lenience: float, alpha: float) -> None:
    found = chains.first_tokens(chains.LENIENT_P, chains.LENIENT_Q, lenience)[1]
    assert found == pytest.approx(alpha, abs=5e-5)


def test_no_token_comes_much_too_often() -> None:
    chains.lenience_keeps_its_bound()


@pytest.mark.parametrize("lenience", [0.5, 0.3, 0.1])
def test_the_law_of_a_lenient_token(lenience: float) -> None:
    """min(q, p/l), and the refused rest by norm(max(0, p - q)); its distance from p is what
    acceptance alone makes it."""
    p, q = chains.LENIENT_P, chains.LENIENT_Q
    taken = [min(a / lenience, b) for a, b in zip(p, q, strict=True)]
    rest = [max(0.0, a - b) for a, b in zip(p, q, strict=True)]
    right = [t + (1 - sum(taken)) * r / sum(rest) for t, r in zip(taken, rest, strict=True)]
    first, _ = chains.first_tokens(p, q, lenience)
    assert first == pytest.approx(right, abs=1e-9)
    distance = sum(max(0.0, share - a) for share, a in zip(first, p, strict=True))
    excess = sum(max(0.0, t - a) for t, a in zip(taken, p, strict=True))
    assert distance == pytest.approx(excess, abs=1e-9)


def test_greedy_rows() -> None:
    chains.lenient_greedy_rows_say_what_is_nearly_as_likely()


@pytest.mark.parametrize("lenience", [0, -0.5, 1.5, math.nan])
def test_what_is_no_lenience(lenience: float) -> None:
    for make in (Rejection, Greedy):
        with pytest.raises(PacelineError, match="lenience must be above 0 and at most 1"):
            make(lenience)


def test_only_without_lenience_is_it_lossless() -> None:
    assert (Rejection().lossless, Rejection(1).lossless, Rejection(0.9).lossless) == (
        True,
        True,
        False,
    )


def test_a_model_that_ranks_is_asked_for_logits() -> None:
    """A draft that is second to the target's choice everywhere passes if the rule is lenient."""
    params = SamplingParams(max_tokens=8)
    plain = run(HashLM(11), [[1, 2]], params, k=0).ids
    for lenience, asked in ((1.0, "top"), (1e-9, "logits")):
        model = Ranking(11)
        drafter = Scripted(lambda ids, k: [3] * k)
        done = run(model, [[1, 2]], params, drafter, 3, verifier=Rejection(lenience))
        assert set(model.asked) - {"nothing"} == {asked}
        assert (done.ids == plain) == (lenience == 1)
        assert done.ids[0].count(3) >= (0 if lenience == 1 else 6)


def test_penalties_count() -> None:
    """Nearness is asked after the penalties. Of the drafted 1, 1, … the first passes
    (1.9 beside 2.0); the next one would stand at 1.3 beside 2.0, and once 0 was said at 1.3 beside
    1.4."""
    model = TableModel([[2.0, 1.9, 1.0, -9.0]])
    drafter = Scripted(lambda ids, k: [1] * k)
    lenient = Rejection(math.exp(-0.2))
    for penalty, right in ((0.6, [1, 0, 1, 0]), (0.0, [1, 1, 0, 0])):
        params = SamplingParams(max_tokens=4, frequency_penalty=penalty)
        assert run(model, [[3]], params, drafter, 2, verifier=lenient).ids == [right]
