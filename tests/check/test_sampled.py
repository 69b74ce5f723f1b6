"""Sampled rounds: sound rules pass, broken ones do not."""

from __future__ import annotations

import pytest
import torch

from paceline.build.verify import make_verifier
from paceline.check.breakages import Chain, breakages
from paceline.check.contexts import One, synthetic, synthetic_two
from paceline.check.power import check_power
from paceline.check.sampled import check_sampled, count_one, count_two

ROUNDS = 2000


@pytest.mark.parametrize("name", ["rejection", "block", "kseq", "specinfer"])
def test_lossless_rules_pass(name: str) -> None:
    tests = check_sampled(make_verifier(name), [synthetic(300, 5)], [synthetic_two(6, 4)], ROUNDS)
    assert [test.tokens for test in tests] == [1, 2, 2, 2]
    assert all(test.ok for test in tests), tests


def test_p_values_of_a_sound_rule_are_spread_evenly() -> None:
    context = synthetic(60, 2)
    tests = [check_sampled(Chain(), [context], [], 1000, 7919 * i)[0] for i in range(60)]
    values = torch.tensor([test.fit.p_value for test in tests]).sort().values
    steps = torch.arange(1, 61) / 60
    assert float((values - steps).abs().max()) < 0.25  # Kolmogorov's: once in 1000 above that


def test_what_a_lossy_rule_does_is_seen() -> None:
    tests = check_sampled(make_verifier("typical"), [synthetic(300, 5)], [], ROUNDS)
    assert not tests[0].ok
    assert tests[0].fit.distance > tests[0].detectable


def test_a_copied_token_and_none() -> None:
    """A point mass follows p as well; where nothing is drafted the target's own token comes."""
    p = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]])
    for context in (One("", p, None, 1), One("", p)):
        counts = count_one(make_verifier("block"), context, ROUNDS, 3)
        assert counts.sum() == ROUNDS
        assert (counts / ROUNDS - p[0]).abs().max() < 0.04


def test_two_tokens_are_counted_in_their_order() -> None:
    context = synthetic_two(4, 9)
    right = context.first[:, None] * context.second
    for form in ("chain", "two candidates", "tree, drawn"):
        share = count_two(make_verifier("auto"), context, ROUNDS, 1, form) / ROUNDS
        assert (share - right).abs().max() < 0.05
        assert (share.T - right).abs().max() > 0.06  # the other way round it would be seen


def test_power_catches_each_breakage_and_passes_the_sound_rule() -> None:
    found = check_power([synthetic(300, 1)], [synthetic_two(8, 2)], ROUNDS)
    assert [each.breakage for each in found] == ["nothing", *(b.what for b in breakages())]
    assert all(each.ok for each in found)
    assert found[0].caught_by == []
    assert all("exact" in each.caught_by for each in found[1:])
    by_sampling = [each for each in found[1:] if len(each.caught_by) > 1]
    assert len(by_sampling) >= len(found) - 2  # lenience 0.9 is too slight for so few rounds
    assert 0 < found[0].detectable < 0.2
