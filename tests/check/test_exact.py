"""Laws enumerated through the loop: right for every rule, wrong where the rule is."""

from __future__ import annotations

import pytest

from paceline.build.verify import make_verifier
from paceline.check.breakages import Chain
from paceline.check.exact import ERROR, enumerate_laws
from paceline.check.kinds import CHAINS, PLAIN, PROCESSORS, plans
from paceline.verifiers.greedy import Greedy

FEW = ("top-p", "penalties", "bias, minimum")


@pytest.mark.parametrize("name", ["rejection", "block"])
@pytest.mark.parametrize("draft", ["model, hotter", "few tokens", "lookup"])
def test_chains(name: str, draft: str) -> None:
    for law in enumerate_laws(make_verifier(name), name, draft, FEW):
        assert law.error <= ERROR, law
        assert law.outcomes > 0


@pytest.mark.parametrize("draft", ["two candidates", "tree, drawn", "tree, likeliest"])
def test_trees(draft: str) -> None:
    (law,) = enumerate_laws(make_verifier("auto"), "auto", draft, ("top-k",))
    assert law.error <= ERROR, law


def test_a_second_round_on_the_caches_of_the_first() -> None:
    (law,) = enumerate_laws(make_verifier("block"), "block", "model", (PLAIN,), rounds=2)
    (once,) = enumerate_laws(make_verifier("block"), "block", "model", (PLAIN,))
    assert law.error <= ERROR
    assert law.outcomes > once.outcomes


def test_every_outcome_of_a_chain_is_found() -> None:
    """A greedy draft of two tokens from three: refused at the first one (two tokens are left), at
    the second one (two), or accepted (three)."""
    (law,) = enumerate_laws(make_verifier("rejection"), "", "model, greedy", (PLAIN,))
    assert law.outcomes == 7


@pytest.mark.parametrize("name", ["typical", "rejection"])
def test_what_is_lossy_shows(name: str) -> None:
    lossy = make_verifier(name, 0.5 if name == "rejection" else 1.0)
    (law,) = enumerate_laws(lossy, name, "model", (PLAIN,))
    assert law.error > 1e-3
    assert len(law.worst) > 0


def test_the_rule_that_they_break_is_sound() -> None:
    for draft in ("few tokens", "lookup"):
        for law in enumerate_laws(Chain(), "", draft, (PLAIN, "top-k")):
            assert law.error <= ERROR, law


def test_the_greedy_rule_is_no_rule_for_sampling() -> None:
    (law,) = enumerate_laws(Greedy(), "", "lookup", (PLAIN,))
    assert law.error > 0.1


def test_the_plans_leave_nothing_out() -> None:
    found = plans()
    for draft in CHAINS:
        asked = {each for plan in found if plan.draft == draft for each in plan.processors}
        assert asked == set(PROCESSORS)
        assert any(plan.rounds > 1 for plan in found if plan.draft == draft)
