"""Trees that grow where the drafter is sure: which tokens they hold, and how many pay."""

from __future__ import annotations

import math

import pytest

from checks import trees
from checks.trees import alone, growing, is_a_tree, paths
from fake_heads import Perfect, TappedLM
from fakes import Faulty, HashLM, TableModel, model_drafter, sequences
from paceline.core.cached import SLACK, CachedModel
from paceline.core.params import SamplingParams
from paceline.core.shared import Shared
from paceline.drafters.grow import Costs, TreeSize, pays, widest
from paceline.drafters.head import HeadDrafter
from paceline.drafters.model import ModelDrafter

FLAT = Costs([1.0] * 40, [0.01] * 8)


@pytest.mark.parametrize(
    ("depth", "nodes", "width"), [(1, 3, 4), (3, 7, 2), (4, 20, 3), (4, 60, 8), (6, 5, 2)]
)
@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(temperature=0.7, top_k=5, top_p=0.95)],
    ids=["greedy", "sampled"],
)
def test_it_holds_the_surest_tokens(
    depth: int, nodes: int, width: int, params: SamplingParams
) -> None:
    """Those that a search finds which looks behind every candidate of a level; with its own cache
    or over another's."""
    trees.the_surest_are_held(depth, nodes, width, params)


def test_rows_of_a_batch_grow_as_they_would_alone() -> None:
    model, size = HashLM(9, seed=2), TreeSize(9, 3)
    prompts, k = [[1, 2, 3], [4], [5] * 30, [6, 7]], [4, 1, 3, 2]
    params = [SamplingParams(), SamplingParams(temperature=1), SamplingParams(), SamplingParams()]
    seqs = sequences(prompts, params)
    seqs.finish(3)
    together = growing(model, size)(seqs).propose(seqs, k)
    is_a_tree(together, k)
    assert together.lengths[3] == 0
    for b in range(3):
        one = sequences([prompts[b]], params[b])
        assert paths(growing(model, size)(one).propose(one, [k[b]]), 0) == paths(together, b)


def test_a_deep_row_is_not_cut_for_a_wide_neighbour() -> None:
    """A level is as wide as its widest row: together they would not fit where each alone does."""
    model, size, k = HashLM(9, seed=2), TreeSize(1000, 8), 32
    params = [SamplingParams(temperature=1, top_k=top_k) for top_k in (1, 0)]
    together = growing(model, size)(seqs := sequences([[1, 2, 3], [4]], params))
    draft = together.propose(seqs, [k, k])
    is_a_tree(draft, [k, k])
    assert draft.lengths == [k, SLACK - 1]
    for b, prompt in enumerate([[1, 2, 3], [4]]):
        one = sequences([prompt], params[b])
        assert paths(growing(model, size)(one).propose(one, [k]), 0) == paths(draft, b)


def test_one_node_of_a_level_is_the_greedy_chain() -> None:
    model, seqs = HashLM(9, seed=2), sequences([[1, 2, 3], [4]], SamplingParams())
    for nodes in (8, FLAT):
        draft = growing(model, TreeSize(nodes, 1))(seqs).propose(seqs, [4, 3])
        chain = model_drafter(model)(seqs).propose(seqs, [4, 3])
        assert draft.parents is None
        assert draft.lengths == [4, 3]
        assert paths(draft, 0)[-1] == chain.tokens[0].tolist()
        assert paths(draft, 1)[-1] == chain.tokens[1, :3].tolist()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("nodes", [6, 40, FLAT], ids=["6", "40", "as many as pay"])
def test_the_best_path_of_the_targets_own_weights_is_accepted(nodes, shared: bool) -> None:
    """Greedily: what the target says next is the surest, so it is there wherever anything is."""

    def make(target: CachedModel, model: HashLM) -> ModelDrafter:
        own = CachedModel(model, 2, target.ids.shape[1])
        reads = Shared(target, model) if shared else own
        return ModelDrafter(reads, None, TreeSize(nodes, 3))

    accepted = trees.perfect(make, HashLM(5, seed=9, sharpness=4.0), 0.0)
    assert accepted == 4


def test_a_perfect_heads_best_path_is_accepted() -> None:
    def make(target: CachedModel, model: HashLM) -> HeadDrafter:
        return HeadDrafter(target, Perfect(model), None, TreeSize(8, 3))

    assert trees.perfect(make, TappedLM(5, seed=9, sharpness=4.0), 0.0) == 4


@pytest.mark.parametrize("nodes", [9, FLAT], ids=["9", "as many as pay"])
def test_greedy_output_is_the_targets_own(nodes) -> None:
    drafting = HashLM(6, seed=1, jitter=0.8)
    trees.output_is_the_targets_own(growing(drafting, TreeSize(nodes, 3)))


@pytest.mark.parametrize("temperature", [None, 0.0, 0.5])
def test_two_tokens_follow_p(temperature: float | None) -> None:
    drafting = HashLM(4, seed=8, sharpness=0.7)
    trees.pairs_follow_p(growing(drafting, TreeSize(6, 2), temperature), 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nothing_is_drafted_from_broken_logits(value: float) -> None:
    make = growing(Faulty(HashLM(5), value=value), TreeSize(6, 3))
    assert alone(make, [1, 2], 3).lengths == [0]
    assert alone(make, [1, 2], 3, SamplingParams(temperature=1, seed=5)).lengths == [0]


def test_what_truncation_forbids_is_not_drafted() -> None:
    model = TableModel.of_probs([0.5, 0.3, 0.15, 0.05])
    draft = alone(growing(model, TreeSize(20, 4)), [0], 2, SamplingParams(temperature=1, top_k=2))
    assert {*draft.tokens[0].tolist()} == {0, 1}
    assert draft.lengths == [2 + 4]


def test_a_tree_is_no_larger_than_a_cache_has_room_for() -> None:
    length = 40
    seqs = sequences([[1] * 38, [2]], SamplingParams(), (), length)
    model = HashLM(11, seed=1, sharpness=0.1)
    draft = growing(model, TreeSize(1000, 8))(seqs).propose(seqs, [32, 32])
    assert draft.lengths == [SLACK - 1] * 2
    CachedModel(model, 2, length).score(seqs, draft)  # or the model finds no room


def test_tokens_that_the_target_has_not_are_never_drafted() -> None:
    target = CachedModel(TappedLM(5, seed=1), 1, 64, vocab=4)
    drafter = HeadDrafter(target, Perfect(HashLM(5, seed=1)), None, TreeSize(30, 5))
    draft = drafter.propose(sequences([[1, 2]], SamplingParams()), [2])
    assert sorted({*draft.tokens[0].tolist()}) == [0, 1, 2, 3]


def test_no_deeper_pass_than_the_last_tokens_need() -> None:
    """What lies behind others that are cut is not looked at; the tree is the same."""
    model = HashLM(9, seed=2, sharpness=0.1)  # nearly uniform: no second token beats a first
    seqs = sequences([[1, 2, 3]], SamplingParams())
    drafter = growing(model, TreeSize(3, 3))(seqs)
    drafter.propose(seqs, [6])
    before = model.reads
    assert drafter.propose(seqs, [6]).lengths == [3]
    assert model.reads - before == 3  # the pending token, and two: the third's would be cut


# how many pay


def test_a_step_in_the_costs_is_where_a_tree_ends() -> None:
    r = [1.0] * 8 + [2.0] * 24  # the ninth token of a pass doubles it
    assert pays(r, [0.02] * 40) == 7
    assert pays(r, [0.9] * 40) == 31  # unless so many more are as good
    assert pays(r, [0.9] * 5) == 5


def test_the_best_number_by_hand() -> None:
    r = [1.0, 1.25, 1.5, 1.75]  # (1 + .5) / 1.25 = 1.2; 1.75 / 1.5 = 1.17
    assert pays(r, [0.5, 0.25, 0.125]) == 1
    assert pays(r, [0.2, 0.2, 0.2]) == 0  # 1.2 / 1.25 < 1
    assert pays(r, [0.5, 0.25, 0.125], spent=1.0) == 2  # drafting is paid for: 1.75 / 2.5
    assert pays(r, [0.25]) == 0  # a tie: the smaller
    assert pays(r, [1.0] * 9) == 3  # no further than is known
    assert pays([1.0], [0.9]) == 0
    assert pays(r, []) == 0


def test_how_much_of_a_level_pays() -> None:
    steep = Costs([1.0, 1.6, 2.2, 2.8, 3.4], [0.1, 0.2, 0.4, 0.8])
    # where each further token costs more than half a step, only a likely one is worth it
    assert widest(steep, [0.9, 0.05], [0.9, 0.05], 1, 1, 0.1) == 1
    assert widest(steep, [0.3, 0.3], [0.3, 0.3], 1, 1, 0.1) == 0
    flat = Costs([1.0] * 30, [0.01] * 4)
    assert widest(flat, [0.5, 0.4], [0.5, 0.4], 1, 1, 0.01) == 2
    assert widest(flat, [0.4] * 8, [0.4] * 8, 1, 1, 0.01) == 4  # no wider than is known
    assert widest(flat, [0.5], [0.5], 1, 0, 0.01) == 0  # nothing may follow
    dear = Costs([1.0] * 30, [0.01, 5.0])
    assert widest(dear, [0.5, 0.5], [0.5, 0.5], 1, 1, 0.01) == 1


def test_two_more_levels_may_pay_where_one_does_not() -> None:
    """A pass over 2 or 3 tokens costs what one over 4 does."""
    stairs = Costs([1.0, 1.6, 1.6, 1.6], [0.01])
    assert widest(stairs, [0.8, 0.1], [0.8], 1, 2, 0.01) == 1
    late = Costs([1.0, 1.1, 1.7, 1.7, 1.7], [0.01])
    assert widest(late, [0.8], [0.8], 1, 1, 0.01) == 0  # (1 + .8 + .64) / 1.7 < 1.8 / 1.1
    assert widest(late, [0.8], [0.8], 1, 3, 0.01) == 1  # (2.44 + .51 + .41) / 1.7


def test_where_branches_do_not_pay_the_draft_is_a_chain() -> None:
    """By itself, at the costs of a machine that scores 4 tokens for the price of 3."""
    model = HashLM(9, seed=2, sharpness=4.0)
    costs = Costs([1.0, 1.3, 1.6, 1.9, 2.2, 2.5], [0.2, 0.3, 0.4, 0.5])
    seqs = sequences([[b, 1, 2] for b in range(9)], SamplingParams())
    draft = growing(model, TreeSize(costs, 4))(seqs).propose(seqs, [5] * 9)
    chain = model_drafter(model)(seqs).propose(seqs, [5] * 9)
    alike = [paths(draft, b)[-1] for b, n in enumerate(draft.lengths) if n]
    best = [chain.tokens[b, : len(path)].tolist() for b, path in enumerate(alike)]
    assert max(draft.lengths) >= 2
    assert sum(path == right for path, right in zip(alike, best, strict=False)) >= 5


def test_cheap_branches_are_taken() -> None:
    model = HashLM(9, seed=2, sharpness=0.5)
    draft = alone(growing(model, TreeSize(FLAT, 4)), [1, 2], 4)
    assert draft.parents is not None
    assert draft.lengths[0] > 20


def test_a_reader_of_chains_is_refused() -> None:
    class Chains:
        def read(self, seqs): ...
        def extend(self, seqs, tokens, behind): ...

    with pytest.raises(ValueError, match="a Chains reads chains alone"):
        ModelDrafter(Chains(), None, TreeSize(4))
