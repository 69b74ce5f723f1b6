"""Whatever drafts trees sees, at each node, what stands on the path to it and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from checks.trees import levels_see_their_paths
from fake_heads import HashHead, Perfect, TappedLM
from fakes import HashLM, drive, sequences
from kernels import tiny_decoders
from paceline import kernels
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Branching
from paceline.core.shared import Shared
from paceline.drafters.grow import TreeSize
from paceline.drafters.head import HeadDrafter
from paceline.drafters.none import NoDraft
from paceline.drafters.sampling import Grows, growing
from paceline.models.skip import skip_layers
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.tree import Trees
from tiny_jumps import jump


def head(model: HashLM, head) -> Grows:
    target = CachedModel(model, 4, 64)
    target.tap(head.taps)
    return growing(head.over(target))


FAKES: dict[str, Callable[[], Grows]] = {
    "cached": lambda: CachedModel(HashLM(5), 4, 64),
    "shared": lambda: Shared(CachedModel(HashLM(5), 4, 64), HashLM(5, seed=4)),
    "head": lambda: head(TappedLM(5), HashHead([3, 0, 4])),
    "perfect head": lambda: head(TappedLM(5), Perfect(HashLM(5, seed=2))),
}


@pytest.mark.parametrize("kind", FAKES)
def test_a_node_sees_its_path(kind: str) -> None:
    levels_see_their_paths(FAKES[kind], 5)


def native():
    if not kernels.available():
        pytest.skip("no native kernels")
    weights = tiny_decoders.Weights(tiny_decoders.FAMILIES["gemma3"], "int8")
    return tiny_decoders.native(weights)


def test_native_nodes_see_their_paths_to_the_bit() -> None:
    model = native()
    levels_see_their_paths(lambda: CachedModel(model, 4, 64), 20)
    part = skip_layers(model, [0, 2])

    def over() -> Shared:
        target = CachedModel(model, 4, 64)
        part.reach(target.cache.length)
        return Shared(target, part)

    levels_see_their_paths(over, 20)


@pytest.mark.parametrize("early", [0, 1])
def test_a_jump_heads_nodes_see_their_paths_to_the_bit(early: int) -> None:
    if not kernels.available():
        pytest.skip("no native kernels")
    target, trained = jump(7, early, (5, 0, 1, 4))
    levels_see_their_paths(lambda: head(target, trained), 7)


def test_a_growing_jump_heads_output_is_the_targets_own() -> None:
    if not kernels.available():
        pytest.skip("no native kernels")
    target, trained = jump(7, 1, (5, 0, 1, 4))
    assert isinstance(target, Branching)
    params = SamplingParams(max_tokens=40)
    done = []
    for tree in (None, TreeSize(12, 3)):
        cached = CachedModel(target, 2, 96)
        drafter = HeadDrafter(cached, trained, tree=tree) if tree else NoDraft()
        loop = Loop(cached, drafter, Trees(Rejection()), Fixed(4))
        done.append(drive(loop, sequences([[1, 2, 3], [4, 5]], params, (), 96)))
    assert done[0].ids == done[1].ids
    assert len(done[1].rounds) < len(done[0].rounds)
