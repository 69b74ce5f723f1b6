"""Typical acceptance: the bar, the longest path, and what comes behind it."""

from __future__ import annotations

import math

import pytest
import torch

from exact import midpoints
from paceline.core.noise import Noise
from paceline.core.target import Target
from paceline.core.types import Draft
from paceline.verifiers.typical import Typical


def target(*rows: list[list[float]]) -> Target:
    dense = torch.tensor(rows)
    return Target(dense.log(), dense.argmax(-1), range(len(rows)), dense)


def noise(rows: int, k: int, last: float = 0.5) -> Noise:
    half = torch.full((rows, k + 1), last, dtype=torch.float64)
    return Noise(half[:, :k], half)


def test_the_bar() -> None:
    """p(x) > min(ε, δ exp(-H)): of a sure p ε counts, of a flat one its entropy."""
    sure = [0.9, 0.0901, 0.0099, 0.0]  # exp(-H) = .70, so that δ exp(-H) = .21 and ε = .09 counts
    flat = [0.25] * 4  # δ exp(-H) = .3 / 4 = .075
    for law, right in ((sure, [1, 1, 0, 0]), (flat, [1, 1, 1, 1])):
        p = target(*[[law, law]] * 4)
        draft = Draft(torch.arange(4)[:, None], [1] * 4)
        assert Typical().verify(p, draft, noise(4, 1)).accepted.tolist() == right
    entropy = -sum(x * math.log(x) for x in (0.5, 0.25, 0.25))
    p = target([[0.5, 0.25, 0.25, 0.0]] * 2)
    draft = Draft(torch.tensor([[1]]), [1])
    for step, right in ((-1e-6, 1), (1e-6, 0)):
        rule = Typical(epsilon=1.0, delta=(0.25 + step) * math.exp(entropy))
        assert rule.verify(p, draft, noise(1, 1)).accepted.tolist() == [right]


def test_a_chain_ends_at_the_first_token_below_the_bar() -> None:
    law = [0.6, 0.39, 0.01]
    p = target([law] * 5, [law] * 5, [law] * 5)
    draft = Draft(torch.tensor([[0, 1, 2, 0], [1, 1, 1, 1], [0, 0, 0, 0]]), [4, 4, 2])
    verdict = Typical().verify(p, draft, noise(3, 4, 0.7))
    assert verdict.accepted.tolist() == [2, 4, 2]
    assert verdict.path is None
    said = [row[: n + 1] for row, n in zip(verdict.tokens.tolist(), [2, 4, 2], strict=True)]
    assert said == [[0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 1]]


def test_the_longest_path_and_of_equals_the_likeliest() -> None:
    """Two paths of two tokens and a likelier one of one; then the two alone, p the other way."""
    parents = torch.tensor([[-1, -1, -1, 0, 1, 3]])
    draft = Draft(torch.tensor([[0, 1, 2, 1, 1, 3]]), [6], parents=parents)
    root, sure, behind = [0.2, 0.3, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.6, 0.4, 0.0]
    laws = [root, behind, [0.4, 0.6, 0.0, 0.0], sure, [0.0, 0.0, 1.0, 0.0], sure, sure]
    verdict = Typical().verify(target(laws), draft, noise(1, 6))
    assert verdict.path.tolist() == [[1, 4, -1, -1, -1, -1]]  # .3 * .6 beats .2 * .6
    assert (verdict.accepted.tolist(), verdict.tokens[0, :3].tolist()) == ([2], [1, 1, 3])
    laws[2] = [0.7, 0.3, 0.0, 0.0]  # .3 * .3 does not
    verdict = Typical().verify(target(laws), draft, noise(1, 6))
    assert verdict.path.tolist() == [[0, 3, -1, -1, -1, -1]]
    assert (verdict.accepted.tolist(), verdict.tokens[0, :3].tolist()) == ([2], [0, 1, 2])


def test_what_follows_is_drawn_from_p() -> None:
    cells, law = 16, [0.0625, 0.5, 0.4375]
    p = target(*[[law, law]] * cells)
    for drafted in (0, 1):  # refused and accepted
        u = midpoints(cells)[:, None].expand(-1, 2)
        draft = Draft(torch.full((cells, 1), drafted), [1] * cells)
        verdict = Typical().verify(p, draft, Noise(u[:, :1], u))
        assert verdict.accepted.tolist() == [drafted] * cells
        tokens = verdict.tokens[:, drafted]
        assert torch.bincount(tokens, minlength=3).tolist() == [1, 8, 7]


@pytest.mark.parametrize("tree", [False, True])
def test_greedy_rows_take_the_likeliest(tree: bool) -> None:
    top = torch.tensor([[1, 2, 0, 3]] * 2)
    dense = torch.full((1, 4, 4), 0.25)
    parents = torch.tensor([[-1, 0, 1], [-1, 0, 1]]) if tree else None
    draft = Draft(torch.tensor([[1, 2, 3], [3, 3, 3]]), [3, 3], parents=parents)
    verdict = Typical().verify(Target(dense.log(), top, [1], dense), draft, noise(2, 3))
    assert verdict.accepted.tolist() == [2, 3]
    assert verdict.tokens[0, :3].tolist() == [1, 2, 0]
