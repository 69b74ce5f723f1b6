"""Deliberate breakages of what drafts trees, each with the check that catches it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch

from checks import trees
from checks.trees import EITHER, alone, levels_see_their_paths, paths
from fake_heads import HashHead, TappedLM
from paceline.core import cached, follower
from paceline.core.cached import CachedModel
from paceline.core.types import Draft
from paceline.drafters import branches, first_of, grow, suffix
from paceline.drafters.first_of import merge
from paceline.drafters.suffix import Suffix
from test_mutations import Mutation, mutate

DRAWN = trees.continuations_are_what_was_drawn
DRAWN_IN_ONE = partial(trees.continuations_are_what_was_drawn, EITHER[1])
SUREST = trees.the_surest_are_held


def followers_levels() -> None:
    def make() -> follower.Follower:
        target, head = CachedModel(TappedLM(5), 4, 64), HashHead([3, 0, 4])
        target.tap(head.taps)
        return head.over(target)

    levels_see_their_paths(make, 5)


def chains_beside_trees() -> None:
    chain = Draft(torch.tensor([[1, 2], [0, 0]]), [2, 0])
    tree = Draft(torch.tensor([[0, 0], [4, 5]]), [0, 2], None, torch.tensor([[-1, -1], [-1, -1]]))
    drawn = Draft(tree.tokens, tree.lengths, None, tree.parents, torch.tensor([[[-1]], [[0]]]))
    for other in (tree, drawn):
        for draft in (merge(chain, other), merge(other, chain)):
            assert draft.parents.tolist() == [[-1, 0], [-1, -1]]
            assert draft.draws is None or draft.draws.tolist() == [[[-1]], [[0]]]


def suffix_branches() -> None:
    ids = [5, 1, 5, 2, 5]
    found = paths(alone(lambda seqs: Suffix(1, factor=4.0, branches=True), ids, 8), 0)
    assert [2, 5, 2, 5] in found
    assert [1, 5, 2] in found


MUTATIONS = [
    Mutation("continuations share their noise", branches, "Repeated.draft_noise",
             "whole.transpose(1, 2)", "whole[..., :1].expand_as(whole).transpose(1, 2)", DRAWN),
    Mutation("noise that depends on k", branches, "Repeated.draft_noise",
             "view(-1, k, self.copies)\n    return whole.transpose(1, 2)",
             "view(-1, self.copies, k)\n    return whole", DRAWN),
    Mutation("q of the first token at every node", branches, "merged",
             "count * width, -1)[rows, index]", "count * width, -1)[rows, index * 0]", DRAWN),
    Mutation("a continuation ends where another one was", branches, "merged",
             "draws[b, c, j] = node", "draws[b, c, j] = node if node + 1 == len(nodes) else -1",
             DRAWN),
    Mutation("equal tokens behind different ones are one", branches, "merged",
             "nodes.setdefault((node, token)", "nodes.setdefault((-1, token)", DRAWN),
    Mutation("copies follow each other's tokens", branches, "Wide.extend",
             "torch.arange(behind * seqs.copies)", "torch.arange(behind * seqs.copies).flip(0)",
             DRAWN_IN_ONE),
    Mutation("a level is written over the one before", cached, "CachedModel.level",
             "place + before for", "place for", DRAWN_IN_ONE),
    Mutation("a node's state is the last committed token's", follower, "Follower.level",
             "(parents[:, before:, None] + 1)", "(parents[:, before:, None] * 0)",
             followers_levels),
    Mutation("grows at the first nodes that it found", grow, "_Tree.front",
             "self._surest(self._level)[", "[*self._level][", SUREST),
    Mutation("keeps the first nodes that it found", grow, "_Tree.kept",
             "among[: min(MOST, count)]", "range(min(MOST, count, len(among)))", SUREST),
    Mutation("every node is read as if it came first", grow, "_Tree.read",
             "self._place[self.parents[node]]", "-1", SUREST),
    Mutation("does not look where better ones may be", grow, "_Tree.front",
             "> kept[-1]", "> kept[len(kept) // 2]", SUREST),
    Mutation("a chain beside a tree is all siblings", first_of, "_parents",
             "parents_of(draft, b)", "[-1] * draft.lengths[b]", chains_beside_trees),
    Mutation("a chain beside a tree was drawn, too", first_of, "_draws",
             "*size), -1)", "*size), 0)", chains_beside_trees),
    Mutation("branches run into each other", suffix, "Suffix._follow",
             "text[end : end + drafted] = path.tokens", "text[end + drafted - 1] = path.tokens[-1]",
             suffix_branches),
]  # fmt: skip


@pytest.mark.parametrize("m", MUTATIONS, ids=lambda m: m.what)
def test_mutation_is_caught(m: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch, m)
    with pytest.raises(AssertionError):
        m.check()


@pytest.mark.parametrize("check", list(dict.fromkeys(m.check for m in MUTATIONS)))
def test_check_passes_without_a_mutation(check: Callable[[], None]) -> None:
    check()
