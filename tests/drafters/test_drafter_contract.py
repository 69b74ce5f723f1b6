"""What every drafter promises. A new one joins by a line in `DRAFTERS`."""

from __future__ import annotations

import pytest
import torch

from checks.trees import EITHER, branches, is_a_tree
from fake_heads import HashHead, Perfect, TappedLM
from fakes import HashLM, Scripted, liars, model_drafter, sequences
from paceline import kernels
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.shared import Shared
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.grow import Costs, TreeSize
from paceline.drafters.head import HeadDrafter
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.none import NoDraft
from paceline.drafters.suffix import Suffix
from tiny_jumps import jump_drafter
from translated import as_built, pieces

VOCAB = 7
VOCABULARIES = (
    pieces("a", "b", "ab", "c", "d", "cd", "e"),
    pieces("b", "a", "bc", "c", "d", "e", "x"),
)


def model() -> HashLM:
    return HashLM(VOCAB, seed=3)


def head(seqs: Sequences, confidence: float) -> HeadDrafter:
    target = CachedModel(TappedLM(VOCAB, seed=3), seqs.batch, 256)
    return HeadDrafter(target, HashHead([5, 0, 1, 4], confidence=confidence))


DRAFTERS = {
    "none": lambda seqs: NoDraft(),
    "lookup": lambda seqs: Lookup(3),
    "lookup, single tokens": lambda seqs: Lookup(1),
    "suffix": lambda seqs: Suffix(),
    "model": model_drafter(model()),
    "model at 0": model_drafter(model(), 0.0),
    "model at 1": model_drafter(model(), 1.0),
    "model, narrower": model_drafter(model(), vocab=5),
    "model over the target's cache": lambda seqs: ModelDrafter(
        Shared(CachedModel(HashLM(VOCAB, seed=4), seqs.batch, 256), model())
    ),
    "suffix, branches": lambda seqs: Suffix(branches=True),
    "branches": branches(model(), 3),
    "branches at 0": branches(model(), 3, EITHER[1], 0.0),
    "branches at 1": branches(model(), 2, EITHER[1], 1.0),
    "growing": lambda seqs: ModelDrafter(
        CachedModel(model(), seqs.batch, 256), tree=TreeSize(9, 3)
    ),
    "growing as it pays, over the target's cache": lambda seqs: ModelDrafter(
        Shared(CachedModel(HashLM(VOCAB, seed=4), seqs.batch, 256), model()),
        tree=TreeSize(Costs([1 + n / 9 for n in range(20)], [0.1] * 4), 4),
    ),
    "growing head": lambda seqs: HeadDrafter(
        CachedModel(TappedLM(VOCAB, seed=3), seqs.batch, 256), Perfect(model()), None, TreeSize(6)
    ),
    "chains and trees": lambda seqs: FirstOf(Lookup(3), branches(model(), 2)(seqs)),
    "first of": lambda seqs: FirstOf(
        Lookup(3), ModelDrafter(CachedModel(model(), seqs.batch, 256))
    ),
    "first of models": lambda seqs: FirstOf(
        Scripted(lambda ids, k: [1] * k if len(ids) % 2 else []), model_drafter(model())(seqs)
    ),
    "head": lambda seqs: head(seqs, 0.0),
    "head that may stop": lambda seqs: head(seqs, 0.5),
    "other vocabulary": as_built(model(), HashLM(7, seed=4), *VOCABULARIES)[0],
    "other vocabulary at 0": as_built(model(), HashLM(7, seed=4), *VOCABULARIES, 0.0)[0],
    "scripted": lambda seqs: Scripted(lambda ids, k: [2] * min(k, 2)),
}
if kernels.available():
    DRAFTERS["jump head"] = jump_drafter(VOCAB, (5, 0, 1, 4))
    DRAFTERS["growing jump head"] = jump_drafter(VOCAB, (5, 0, 1, 4), TreeSize(6, 3))

PROMPTS = [[1, 2, 3, 4, 2, 3], [5], [6, 6, 6, 6], [0, 1, 0, 1, 0]]
PARAMS = [
    SamplingParams(seed=4),
    SamplingParams(temperature=1, seed=5),
    SamplingParams(temperature=0.7, top_k=3, seed=6),
    SamplingParams(temperature=1.3, top_p=0.8, seed=7),
]


def state(seqs: Sequences) -> tuple:
    return (seqs.tokens.tolist(), list(seqs.lengths), list(seqs.running), list(seqs.seeds))


def row(draft: Draft, b: int) -> tuple[list[int], object]:
    n = draft.lengths[b]
    return draft.tokens[b, :n].tolist(), None if draft.q is None else draft.q[b, :n]


@pytest.fixture(params=DRAFTERS)
def make(request: pytest.FixtureRequest):
    return DRAFTERS[request.param]


@pytest.mark.parametrize("k", [[0] * 4, [1] * 4, [4] * 4, [8] * 4, [3, 0, 1, 5], [0, 2, 0, 0]])
def test_shapes_windows_and_q(make, k: list[int]) -> None:
    seqs = sequences(PROMPTS, PARAMS)
    seqs.finish(2)
    before = state(seqs)
    draft = make(seqs).propose(seqs, k)
    assert state(seqs) == before
    assert len(draft.lengths) == 4
    assert all(
        type(n) is int and (n == 0 or most) for n, most in zip(draft.lengths, k, strict=True)
    )
    is_a_tree(draft, k)
    assert draft.lengths[2] == 0
    assert draft.tokens.dtype == torch.int64
    assert draft.tokens.dim() == 2
    assert draft.tokens.shape[0] == 4
    assert max(draft.lengths) <= draft.tokens.shape[1]
    if draft.parents is None:
        assert draft.tokens.shape[1] <= max(k)
    assert bool(((draft.tokens >= 0) & (draft.tokens < VOCAB)).all())  # padding too: it is read
    if draft.q is None:
        return
    assert draft.q.dtype == torch.float32
    assert draft.q.shape[:2] == draft.tokens.shape
    for b, n in enumerate(draft.lengths):
        q = draft.q[b, :n]
        assert torch.allclose(q.sum(-1), torch.ones(n), atol=1e-5)
        assert bool((q >= 0).all())
        assert bool((q.gather(-1, draft.tokens[b, :n, None]) > 0).all())


def test_the_same_tokens_get_the_same_draft(make) -> None:
    """A drafter is a function of what is committed (and of seeds): asking twice changes nothing."""
    seqs = sequences(PROMPTS, PARAMS)
    drafter = make(seqs)
    first, again = drafter.propose(seqs, [4] * 4), drafter.propose(seqs, [4] * 4)
    assert first.lengths == again.lengths
    for b in range(4):
        assert row(first, b)[0] == row(again, b)[0]
        assert first.q is None or torch.equal(row(first, b)[1], row(again, b)[1])


def test_a_row_is_drafted_alike_alone_and_beside_others(make) -> None:
    seqs = sequences(PROMPTS, PARAMS)
    together = make(seqs).propose(seqs, [4, 2, 3, 4])
    for b, k in enumerate([4, 2, 3, 4]):
        alone = sequences([PROMPTS[b]], PARAMS[b])
        draft = make(alone).propose(alone, [k])
        assert row(draft, 0)[0] == row(together, b)[0]
        if draft.q is not None:
            assert torch.equal(row(draft, 0)[1], row(together, b)[1])


def test_nothing_of_earlier_requests_is_left(make) -> None:
    """After other prompts, other windows and rows that did not run: as if it were new."""
    seqs = sequences(PROMPTS, PARAMS)
    drafter = make(seqs)
    for prompts, k in [([[6], [5] * 20, [1, 2], [3]], 3), ([[1, 2, 3], [5], [6] * 9, [0]], 8)]:
        other = sequences(prompts, PARAMS)
        other.finish(k % 4)
        drafter.propose(other, [k, 1, k, 0])
    used, new = drafter.propose(seqs, [4] * 4), make(seqs).propose(seqs, [4] * 4)
    assert used.lengths == new.lengths
    for b in range(4):
        assert row(used, b)[0] == row(new, b)[0]
        assert new.q is None or torch.equal(row(used, b)[1], row(new, b)[1])


def test_liars_know_their_rows_apart() -> None:
    seqs = sequences([[1, 2], [1, 3]], SamplingParams())
    draft = liars([[1, 2, 4, 4, 4], [1, 3, 5]], 1, VOCAB, beyond=2).propose(seqs, [3, 3])
    assert draft.tokens.tolist() == [[4, 5, 4], [5, 1, 0]]
