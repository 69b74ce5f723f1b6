"""Drafts that are trees: each rule's output law, enumerated exactly."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from checks import tree_laws
from checks.tree_laws import (
    ACCEPTED,
    LATE,
    LEAF,
    MIXED,
    P4,
    Q4,
    any_law,
    fixed,
)
from exact import tree
from exact_trees import Drafted, independent, merged, tree_law, without_replacement
from paceline.core.noise import draw
from paceline.core.params import SamplingParams
from paceline.core.shape import distribution
from paceline.verifiers.candidates import divisor, kseq, one_by_one
from paceline.verifiers.tree import walk

RULES = {"kseq": kseq, "specinfer": one_by_one}

OTHERS = {
    "without replacement": [0.611017, 0.782277, 0.984467],
    "fixed": [P4[3], P4[3] + P4[0], P4[3] + P4[0] + P4[2]],
}


def candidates(kind: str, k: int) -> tuple[list[Drafted], object]:
    q = {(): Q4}
    if kind == "fixed":
        return [fixed([[3], [0], [2]][:k])], one_by_one
    if kind == "without replacement":
        return list(without_replacement(q, (LEAF,) * k)), one_by_one
    return list(independent(q, [1] * k)), RULES[kind]


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("kind", [*ACCEPTED, *OTHERS])
def test_acceptance_of_several_candidates(kind: str, k: int) -> None:
    """The residual never lands on a refused sibling, so these are all the accepted tokens."""
    p = dict.fromkeys(tree(0, 4, 1), P4)
    share = {**ACCEPTED, **OTHERS}[kind][k - 1]
    found = tree_law(p, *candidates(kind, k))
    assert found.error <= 1e-9
    assert found.hit == found.accepted == pytest.approx(share, abs=1e-6)


def test_the_divisor_is_the_smallest_that_loses_nothing() -> None:
    make = torch.Generator().manual_seed(0)
    for k, width, sharpness in product([2, 3, 8], [4, 40], [0.1, 1.0, 5.0]):
        p, q = (torch.randn(2, 40, generator=make).double() * sharpness).softmax(-1)
        q = q[:width] / q[:width].sum()

        def slack(r: float, p=p, q=q, k=k) -> float:
            each = float(torch.minimum(p[: len(q)] / r, q).sum())
            return r * each - (1 - (1 - each) ** k)

        r = divisor(p, q, k)
        assert 1 <= r <= k
        assert 0 <= slack(r) <= 1e-7
        assert slack(0.99 * r) < 0
    assert divisor(p, p, 3) == pytest.approx(1, abs=1e-3)  # and then nothing is refused
    assert divisor(torch.eye(4)[0], torch.eye(4)[1], 5) == 1  # nothing could be accepted
    assert divisor(torch.eye(4)[0], torch.full((4,), 0.25), 3) == pytest.approx(3 - 0.6875)


SHAPES = {"mixed": (MIXED, 3), "late": (LATE, 3), "wide": ((LEAF, (LEAF,), LEAF), 2)}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
def test_siblings_without_replacement(shape: str, seed: int) -> None:
    tree_laws.siblings_leave_p_as_it_is(100 + seed, *SHAPES[shape])


def test_siblings_without_replacement_in_no_round_numbers() -> None:
    p, q = any_law(0, 4, 2, 2.0), any_law(1, 4, 1, 2.0)
    assert tree_law(p, without_replacement(q, ((LEAF, LEAF), LEAF, LEAF)), one_by_one).error <= 1e-9


@pytest.mark.parametrize("lengths", [[1, 1, 1], [2, 2], [2, 1, 2], [2, 0], [1, 2, 1, 1]])
@pytest.mark.parametrize("rule", RULES)
def test_independent_continuations(rule: str, lengths: list[int]) -> None:
    """Every way in which they can agree or not, also of several lengths."""
    depth = max(lengths)
    vocab = 3 if sum(lengths) < 5 else 2
    for p, q in (
        (any_law(2, vocab, depth), any_law(3, vocab, depth - 1)),
        (tree(4, vocab, depth), tree(5, vocab, depth - 1)),
    ):
        tree_laws.continuations_leave_p_as_it_is(rule, p, q, lengths)


@pytest.mark.parametrize("rule", RULES)
def test_agreeing_continuations_go_on_together(rule: str) -> None:
    """Three levels, two tokens: nearly every token was drawn more than once."""
    p, q = any_law(8, 2, 3, 0.5), any_law(9, 2, 2, 0.5)
    tree_laws.continuations_leave_p_as_it_is(rule, p, q, [3, 3])
    tree_laws.continuations_leave_p_as_it_is(rule, p, q, [2, 2, 2])


@pytest.mark.parametrize("seed", range(6))
def test_fixed_candidates(seed: int) -> None:
    p = tree(200 + seed, 4, 3)
    paths = [[1], [0, 2, 1], [0, 3], [3, 3, 3], [3, 3, 0]]
    found = tree_law(p, [fixed(paths)], one_by_one)
    assert found.error <= 1e-9
    assert found.hit == pytest.approx(p[()][0] + p[()][1] + p[()][3], abs=1e-9)
    same = Drafted(1.0, *merged(paths)[:2])
    same.q = torch.eye(4)[same.tokens].tolist()  # a point mass is a q that is one-hot
    assert tree_law(p, [same], one_by_one).hit == pytest.approx(found.hit, abs=1e-9)


@pytest.mark.parametrize("rule", [*RULES, "without replacement"])
def test_a_narrower_vocabulary(rule: str) -> None:
    p, q = any_law(10, 4, 2), any_law(11, 3, 1)
    if rule == "without replacement":
        assert tree_law(p, without_replacement(q, ((LEAF, LEAF), LEAF)), one_by_one).error <= 1e-9
    else:
        tree_laws.continuations_leave_p_as_it_is(rule, p, q, [2, 2])


@pytest.mark.parametrize("rule", [*RULES, "without replacement"])
@pytest.mark.parametrize("params", [{"top_k": 2}, {"top_p": 0.8}, {"min_p": 0.4}])
def test_truncated_p_and_raw_q(rule: str, params: dict) -> None:
    make = torch.Generator().manual_seed(12)
    p, q = any_law(13, 3, 2), any_law(14, 3, 1)
    for x in p:
        scores = torch.randn(1, 3, generator=make)
        law = distribution(scores, SamplingParams(temperature=1, **params), 1.0)[0].double()
        p[x] = (law / law.sum()).tolist()
    assert any(0 in law for law in p.values())
    if rule == "without replacement":
        assert tree_law(p, without_replacement(q, ((LEAF, LEAF), LEAF)), one_by_one).error <= 1e-9
    else:
        tree_laws.continuations_leave_p_as_it_is(rule, p, q, [2, 2])


@pytest.mark.parametrize("rule", [*RULES, "without replacement"])
def test_nothing_is_refused_where_q_is_p(rule: str) -> None:
    p = any_law(15, 3, 2)
    q = {x: law for x, law in p.items() if len(x) < 2}
    if rule == "without replacement":
        found = tree_law(p, without_replacement(q, ((LEAF, LEAF), LEAF)), one_by_one)
        assert found.error <= 1e-9
    else:
        found = tree_laws.continuations_leave_p_as_it_is(rule, p, q, [2, 2])
    assert found.hit == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("rule", [*RULES, "without replacement"])
def test_sure_tokens(rule: str) -> None:
    """p knows one token: it is emitted, and accepted if it was drafted."""
    p = {x: [0.0, 1.0, 0.0] for x in tree(0, 3, 2)}
    q = any_law(16, 3, 1)
    if rule == "without replacement":
        found = tree_law(p, without_replacement(q, (LEAF, LEAF, (LEAF,))), one_by_one)
        assert found.hit == pytest.approx(1, abs=1e-9)
    else:
        found = tree_laws.continuations_leave_p_as_it_is(rule, p, q, [2, 2])
        assert found.hit == pytest.approx(1 - (1 - q[()][1]) ** 2, abs=1e-7)
    assert found.error <= 1e-9


@pytest.mark.parametrize("rule", RULES)
def test_an_empty_residual_is_a_draw_from_p(rule: str) -> None:
    """Refused where q is at least p everywhere (rounding alone can do that), also twice."""
    p = torch.tensor([[0.25, 0.75], [0.5, 0.5]], dtype=torch.float64)
    q = p[:1] + 1e-7
    for offers in ([[0], []], [[0, 0], []]):
        path, weights = walk(p, offers, [1], q, [1 - 2.0**-53], RULES[rule])
        assert path == []
        assert weights.tolist() == p[0].tolist()


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
@pytest.mark.parametrize("rule", RULES)
def test_broken_rows(rule: str, broken: float) -> None:
    """A NaN of the drafter leaves p as it is; where p has none there is no token."""
    p = torch.tensor([[0.25, 0.75], [0.5, 0.5], [0.5, 0.5]])
    q = torch.full((2, 2), broken)
    for offers in ([[0, 1], [], []], [[0, 1, 0], [], []]):
        path, weights = walk(p, offers, [0, 1], q, [0.5, 0.5], RULES[rule])
        assert path == []
        assert weights.tolist() == [0.25, 0.75]
        path, weights = walk(p * torch.nan, offers, [0, 1], p[1:], [0.5, 0.5], RULES[rule])
        assert path == []
        assert draw(weights[None], torch.tensor([0.5])).tolist() == [-1]
