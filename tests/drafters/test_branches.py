"""Several continuations at once: drawn apart, merged into one tree, and true in every q."""

from __future__ import annotations

import pytest
import torch

from checks import trees
from checks.trees import EITHER, alone, branches, is_a_tree, paths
from fakes import Faulty, HashLM, TableModel, model_drafter, sequences
from naive import fresh_logits, fresh_pass
from paceline.core.cached import SLACK, CachedModel
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.drafters.branches import Branches, Repeated, Wide
from paceline.verifiers.coupled import Coupled

PROMPTS = [[1, 2, 3, 4, 2, 3], [5], [6, 6, 6, 6], [0, 1, 0, 1, 0]]
PARAMS = [
    SamplingParams(seed=4),
    SamplingParams(temperature=1, seed=5),
    SamplingParams(temperature=0.7, top_k=3, seed=6),
    SamplingParams(temperature=1.3, top_p=0.8, seed=7),
]


@pytest.mark.parametrize("temperature", [None, 0.0, 0.5])
@pytest.mark.parametrize("kind", EITHER)
def test_one_continuation_is_the_chain_to_the_bit(kind: str, temperature: float | None) -> None:
    model = HashLM(7, seed=3)
    for k in ([4, 2, 3, 4], [0, 5, 0, 1]):
        seqs = sequences(PROMPTS, PARAMS)
        chain = model_drafter(model, temperature)(seqs).propose(seqs, k)
        one = branches(model, 1, kind, temperature)(seqs).propose(seqs, k)
        assert one.parents is None
        assert one.draws is None
        assert one.lengths == chain.lengths
        assert torch.equal(one.tokens, chain.tokens)
        assert (one.q is None) == (chain.q is None)
        assert one.q is None or torch.equal(one.q, chain.q)


@pytest.mark.parametrize("temperature", [None, 0.0, 1.0])
def test_one_cache_drafts_what_a_cache_for_each_does(temperature: float | None) -> None:
    seqs, model = sequences(PROMPTS, PARAMS), HashLM(7, seed=3)
    seqs.finish(2)
    each, one = (branches(model, 3, kind, temperature)(seqs) for kind in EITHER)
    for k in ([4, 2, 3, 4], [0, 5, 0, 1], [1] * 4):
        a, b = each.propose(seqs, k), one.propose(seqs, k)
        assert a.lengths == b.lengths
        for x, y in ((a.tokens, b.tokens), (a.parents, b.parents), (a.q, b.q), (a.draws, b.draws)):
            assert (x is None) == (y is None)
            assert x is None or torch.equal(x, y)


@pytest.mark.parametrize("kind", EITHER)
def test_each_continuation_is_drawn_by_itself_from_its_own_q(kind: str) -> None:
    trees.continuations_are_what_was_drawn(kind)


def test_greedy_rows_begin_with_the_likeliest_tokens_and_go_on_greedily() -> None:
    model, ids = HashLM(9, seed=4), [1, 2, 3]
    draft = alone(branches(model, 3), ids, 4)
    is_a_tree(draft, [4])
    assert draft.q is None
    assert draft.draws is None
    assert draft.lengths == [12]
    first = torch.tensor(fresh_logits(model, ids)).topk(3).indices.tolist()
    lines = [path for path in paths(draft, 0) if len(path) == 4]
    assert [line[0] for line in lines] == first
    for line in lines:
        right = fresh_pass(model, [*ids, *line[:3]])[-3:].argmax(-1).tolist()
        assert line[1:] == right


def test_more_continuations_than_tokens() -> None:
    draft = alone(branches(HashLM(2, seed=1), 5), [1, 0], 3)
    is_a_tree(draft, [3])
    assert sorted(path for path in paths(draft, 0) if len(path) == 1) == [[0], [1]]
    draft = alone(branches(HashLM(2, seed=1), 8), [1, 0], 2, SamplingParams(temperature=1, seed=5))
    is_a_tree(draft, [2])
    assert draft.draws.shape == (1, 8, 2)


def test_a_tree_is_no_larger_than_a_cache_has_room_for() -> None:
    length = 40
    seqs = sequences([[1] * 38, [2]], SamplingParams(temperature=1, seed=1), (), length)
    model = HashLM(11, seed=1, sharpness=0.1)
    for kind in EITHER:
        draft = branches(model, 4, kind)(seqs).propose(seqs, [32, 32])
        assert max(draft.lengths) < SLACK
        assert max(len(path) for path in paths(draft, 0)) == (SLACK - 1) // 4
        CachedModel(model, 2, length).score(seqs, draft)  # or the model finds no room


def test_the_noise_of_a_copy_is_its_own() -> None:
    """That of token j of copy c, whatever k is; and other copies and tokens have others."""
    seqs = sequences(PROMPTS, PARAMS)
    short, long = (Repeated(seqs, 3).draft_noise(k) for k in (2, 5))
    assert torch.equal(short, long[:, :2])
    assert len({*long.flatten().tolist()}) == 4 * 3 * 5
    assert torch.equal(Repeated(seqs, 1).draft_noise(4), seqs.draft_noise(4))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("kind", EITHER)
def test_the_targets_own_weights_are_always_accepted(kind: str, temperature: float) -> None:
    def make(target: CachedModel, model: HashLM) -> Branches:
        batch, length = target.ids.shape
        if kind == EITHER[0]:
            return Branches(CachedModel(model, batch * 3, length), 3)
        return Branches(Wide(CachedModel(model, batch, length)), 3)

    assert trees.perfect(make, HashLM(5, seed=9), temperature) == 4


@pytest.mark.parametrize("kind", EITHER)
def test_greedy_output_is_the_targets_own(kind: str) -> None:
    trees.output_is_the_targets_own(branches(HashLM(6, seed=1, jitter=0.8), 3, kind))


@pytest.mark.parametrize("rule", ["kseq", "specinfer"])
def test_two_tokens_follow_p(rule: str) -> None:
    trees.pairs_follow_p(branches(HashLM(4, seed=8, sharpness=0.7), 3, EITHER[1]), 2, rule)


def test_greedy_continuations_of_sampled_rows_follow_p() -> None:
    """A draft temperature of 0: the tree is a function of the prompt, a point mass at each node."""
    trees.pairs_follow_p(branches(HashLM(4, seed=8, sharpness=0.7), 2, EITHER[1], 0.0))


def test_broken_logits_leave_p_as_it_is() -> None:
    for value in (torch.nan, torch.inf, -torch.inf):
        make = branches(Faulty(HashLM(4), value=value), 2)
        trees.pairs_follow_p(make, 1, rows=300)


def coupled(prompts: list[list[int]], params: list[SamplingParams]) -> Sequences:
    seqs = Sequences(len(prompts), 64, coupled=True)
    for b, ids in enumerate(prompts):
        seqs.admit(b, ids, params[b])
    return seqs


def test_coupled_copies_begin_with_the_first_tokens_to_arrive() -> None:
    """Of one model, the first of them is the target's own token; and no two are the same."""
    model = HashLM(7, seed=3)
    seqs = coupled(PROMPTS, PARAMS)
    chain = model_drafter(model)(seqs).propose(seqs, [3] * 4)
    draft = branches(model, 3)(seqs).propose(seqs, [3] * 4)
    is_a_tree(draft, [3] * 4)
    for b in range(4):
        assert paths(draft, b)[2] == chain.tokens[b].tolist()
        assert len([path for path in paths(draft, b) if len(path) == 1]) == 3
    p = seqs.probs(CachedModel(model, 4, 64).score(seqs, draft), draft)
    assert Coupled().verify(p, draft, seqs.noise(draft)).accepted.tolist() == [3] * 4


def test_a_tie_is_drafted_in_both_ways() -> None:
    model = TableModel([[1.0, 0.0, 1.0, 0.5]])
    draft = alone(branches(model, 2), [0], 1)
    assert draft.tokens.tolist() == [[0, 2]]
    assert draft.parents.tolist() == [[-1, -1]]


def test_a_row_beside_others_that_draft_nothing() -> None:
    model = HashLM(7, seed=3)
    seqs = sequences(PROMPTS, PARAMS)
    draft = branches(model, 2)(seqs).propose(seqs, [0, 0, 2, 0])
    assert [bool(n) for n in draft.lengths] == [False, False, True, False]
    assert draft.draws[[0, 1, 3]].unique().tolist() == [-1]
    assert draft.parents[[0, 1, 3]].unique().tolist() == [-1]
