"""Chains and trees of several drafters in one batch."""

from __future__ import annotations

import pytest
import torch

from checks import trees
from checks.trees import branches, is_a_tree
from fakes import HashLM, Scripted, model_drafter, sequences
from paceline.core.params import SamplingParams
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf, merge
from paceline.drafters.lookup import Lookup

TREE = Draft(
    torch.tensor([[0, 0, 0], [4, 5, 3]]),
    [0, 3],
    torch.eye(6)[torch.tensor([[0, 0, 0], [4, 5, 3]])],
    torch.tensor([[-1, -1, -1], [-1, -1, 0]]),
    torch.tensor([[[-1, -1], [-1, -1]], [[0, 2], [1, -1]]]),
)
CHAIN = Draft(torch.tensor([[1, 2, 1, 2], [0, 0, 0, 0]]), [4, 0])


@pytest.mark.parametrize("first", [True, False])
def test_a_chain_beside_a_tree_is_a_tree(first: bool) -> None:
    draft = merge(CHAIN, TREE) if first else merge(TREE, CHAIN)
    assert draft.lengths == [4, 3]
    assert draft.tokens.tolist() == [[1, 2, 1, 2], [4, 5, 3, 0]]
    assert draft.parents.tolist() == [[-1, 0, 1, 2], [-1, -1, 0, -1]]
    assert draft.draws.tolist() == [[[-1, -1], [-1, -1]], [[0, 2], [1, -1]]]
    assert torch.equal(draft.q[0], torch.eye(6)[[1, 2, 1, 2]])
    assert torch.equal(draft.q[1, :3], TREE.q[1])


def test_chains_stay_chains() -> None:
    other = Draft(torch.tensor([[0], [3]]), [0, 1])
    draft = merge(CHAIN, other)
    assert draft.parents is None
    assert draft.draws is None


def test_trees_of_other_sizes() -> None:
    """The wider, the longer and the more continuations; a point mass has no draws."""
    wide = Draft(
        torch.tensor([[1, 2, 3, 0], [0, 0, 0, 0]]),
        [4, 0],
        torch.eye(4)[torch.tensor([[1, 2, 3, 0], [0, 0, 0, 0]])],
        torch.tensor([[-1, -1, -1, 0], [-1, -1, -1, -1]]),
        torch.tensor([[[0, 3], [1, -1], [2, -1]], [[-1, -1]] * 3]),
    )
    draft = merge(wide, TREE)
    assert draft.draws.tolist() == [wide.draws[0].tolist(), [[0, 2], [1, -1], [-1, -1]]]
    assert draft.parents.tolist() == [[-1, -1, -1, 0], [-1, -1, 0, -1]]
    assert draft.q.shape == (2, 4, 6)
    point = Draft(TREE.tokens, TREE.lengths, None, TREE.parents)
    draft = merge(wide, point)
    assert draft.draws.tolist() == [wide.draws[0].tolist(), [[-1, -1]] * 3]
    assert torch.equal(draft.q[1, :3], torch.eye(6)[[4, 5, 3]])


def test_drawn_rows_keep_what_they_are() -> None:
    model, params = HashLM(6, seed=1), SamplingParams(temperature=1, seed=1)
    seqs = sequences([[1, 2, 3, 1, 2], [4, 5], [4]], params)
    alone = branches(model, 3)(seqs).propose(seqs, [3] * 3)
    draft = FirstOf(Lookup(2), branches(model, 3)(seqs)).propose(seqs, [3] * 3)
    is_a_tree(draft, [3] * 3)
    assert draft.tokens[0, :3].tolist() == [3, 1, 2]
    assert draft.parents[0, :3].tolist() == [-1, 0, 1]
    assert draft.draws[0].unique().tolist() == [-1]
    for b in (1, 2):
        n = draft.lengths[b]
        assert n == alone.lengths[b]
        for mine, theirs in (
            (draft.tokens, alone.tokens), (draft.q, alone.q), (draft.parents, alone.parents)
        ):  # fmt: skip
            assert torch.equal(mine[b, :n], theirs[b, :n])
        assert torch.equal(draft.draws[b], alone.draws[b])


def test_output_is_the_targets_own_beside_another_drafter() -> None:
    silly = Scripted(lambda ids, k: [len(ids) % 6] * k if len(ids) % 3 == 0 else [])
    drafting = HashLM(6, seed=1, jitter=0.8)
    wide = branches(drafting, 2)
    trees.output_is_the_targets_own(lambda seqs: FirstOf(silly, wide(seqs)))
    trees.output_is_the_targets_own(lambda seqs: FirstOf(wide(seqs), model_drafter(drafting)(seqs)))
