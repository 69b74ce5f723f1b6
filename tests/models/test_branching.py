"""Models that read trees: every node comes out as if it were the end of a chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor

from checks.tree_laws import greedy_trees_say_what_the_target_would
from kernels import tiny_decoders as tiny
from paceline.core.protocols import Branching
from paceline.core.tree import ancestry
from paceline.models import trees
from paceline.models.native import NativeTransformer
from paceline.models.transformer import Transformer

Model = NativeTransformer | Transformer


class Alone(tiny.Weights):
    """Weights whose products on torch treat every row alike."""

    def linear(self, *names: str) -> Callable[..., Tensor]:
        return ByRows(super().linear(*names))


class ByRows:
    nbytes = 0

    def __init__(self, whole: tiny.Reference) -> None:
        self._whole = whole

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        y = torch.cat([self._whole(row) for row in x.split(1)])
        return y if add is None else y + add


def native(name: str, kind: str = "fp16") -> Model:
    return tiny.native(tiny.Weights(tiny.FAMILIES[name], kind))


def on_torch(name: str) -> Model:
    return Transformer(Alone(tiny.FAMILIES[name]))


MODELS: dict[str, Callable[[], Model]] = {
    "int8 llama": lambda: native("llama", "int8"),
    "gemma3": lambda: native("gemma3"),
    "llama on torch": lambda: on_torch("llama"),
    "gemma3 on torch": lambda: on_torch("gemma3"),
    "one query a head on torch": lambda: on_torch("llama-one-query-a-head-tied"),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest) -> Model:
    return MODELS[request.param]()


@pytest.fixture(scope="module", params=["gemma3", "gemma3 on torch"])
def one_of_each(request: pytest.FixtureRequest) -> Model:
    name = request.param.split()[0]
    return native(name) if name == request.param else on_torch(name)


def random_tree(nodes: int, seed: int) -> list[int]:
    """Parents: now bushy, now deep."""
    make = torch.Generator().manual_seed(seed)
    reach = [int(torch.randint(1, 9, (), generator=make)) for _ in range(nodes)]
    return [
        max(-1, j - int(torch.randint(1, reach[j] + 1, (), generator=make))) for j in range(nodes)
    ]


def chains(model: Model, before: Tensor, ids: Tensor, parents: Sequence[int]) -> Tensor:
    """What `model` gives for each node of a tree behind the chain `before` [P], read as a chain:
    logits and hidden states [M, V + D]."""
    cache, at = behind(model, before), len(before)
    found: dict[int, Tensor] = {}
    for leaf in reversed(range(len(parents))):
        if leaf in found:
            continue
        path = ancestry(parents, leaf)
        out = model.forward(ids[None, path], [at], cache, row=1)
        found |= dict(zip(path, torch.cat([out.logits, out.hidden], -1)[0], strict=True))
    return torch.stack([found[node] for node in range(len(parents))])


def behind(model: Model, before: Tensor) -> object:
    """A cache of three rows, the second of which has read `before`; the others hold anything."""
    cache = model.new_cache(3, len(before) + 128)
    model.forward(tiny.tokens(3, 30, 9), [0] * 3, cache, logits=False)
    if len(before):
        model.forward(before[None], [0], cache, row=1, logits=False)
    return cache


def read(
    model: Model, cache: object, base: int, ids: Tensor, parents: Sequence[int], cuts: Sequence[int]
) -> Tensor:
    """A tree in row 1, in passes that end at `cuts`: logits and hidden states [M, V + D]."""
    parts, start = [], 0
    for stop in cuts:
        known = torch.tensor([parents[:stop]])
        out = model.forward(ids[None, start:stop], [base + start], cache, row=1, parents=known)
        parts.append(torch.cat([out.logits, out.hidden], -1)[0])
        start = stop
    return torch.cat(parts)


@pytest.mark.parametrize(("before", "nodes"), [(0, 1), (0, 20), (5, 80), (180, 30), (370, 40)])
def test_a_node_is_the_end_of_a_chain(model: Model, before: int, nodes: int) -> None:
    """In one pass and in several (of nodes that follow those of an earlier one), at positions where
    windows begin to matter and where torch's products over the cache change their blocks."""
    ids, start = tiny.tokens(1, nodes, 1)[0], tiny.tokens(1, before)[0]
    parents = random_tree(nodes, seed=before)
    wanted = chains(model, start, ids, parents)
    cache = behind(model, start)
    for cuts in ([nodes], [*range(7, nodes, 7), nodes]):
        assert torch.equal(read(model, cache, before, ids, parents, cuts), wanted)


def test_a_chain_as_a_tree_is_a_chain(one_of_each: Model) -> None:
    ids = tiny.tokens(1, 20)[0]
    chain = list(range(-1, 19))
    wanted = chains(one_of_each, ids[:0], ids, chain)
    cache = one_of_each.new_cache(3, 64)
    assert torch.equal(read(one_of_each, cache, 0, ids, chain, [20]), wanted)


def test_siblings_stand_at_one_position_and_do_not_see_each_other(one_of_each: Model) -> None:
    """The same token twice, and a whole path twice, with others between them."""
    ids = torch.tensor([5, 7, 5, 3, 9, 3])
    parents = [-1, -1, -1, 0, 1, 2]
    cache = behind(one_of_each, tiny.tokens(1, 11)[0])
    found = read(one_of_each, cache, 11, ids, parents, [6])
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[3], found[5])


def test_rows_have_trees_of_their_own(one_of_each: Model) -> None:
    """Different ones, at different places, the shorter padded, in the middle of a larger cache."""
    at, nodes = [30, 2, 17], [12, 5, 9]
    start, ids = tiny.tokens(3, 30, 4), tiny.tokens(3, 12, 5)
    parents = [random_tree(n, seed=n) for n in nodes]
    padded = torch.tensor([row + [-1] * (12 - len(row)) for row in parents])
    cache = one_of_each.new_cache(5, 64)
    for b, n in enumerate(at):
        one_of_each.forward(start[b : b + 1, :n], [0], cache, row=b + 1, logits=False)
    out = one_of_each.forward(ids, at, cache, row=1, parents=padded)
    found = torch.cat([out.logits, out.hidden], -1)
    for b, n in enumerate(nodes):
        wanted = chains(one_of_each, start[b, : at[b]], ids[b, :n], parents[b])
        assert torch.equal(found[b, :n], wanted)
    # and so they do in two passes
    part = one_of_each.forward(ids[:, 8:], [p + 8 for p in at], cache, row=1, parents=padded).logits
    assert torch.equal(part, out.logits[:, 8:])


@pytest.mark.parametrize("kept", [[], [0], [1], [0, 2, 5], [1, 3, 7, 8]])
def test_the_accepted_path_goes_on_as_a_chain(one_of_each: Model, kept: list[int]) -> None:
    """Also if nothing was accepted; and what the tree leaves behind is not seen."""
    parents = [-1, -1, 0, 1, 1, 2, 0, 3, 7]
    ids, start = tiny.tokens(1, 9, 1)[0], tiny.tokens(1, 11)[0]
    cache = behind(one_of_each, start)
    read(one_of_each, cache, 11, ids, parents, [9])
    one_of_each.move(cache, 1, [11 + node for node in kept], 11)
    end, new = 11 + len(kept), tiny.tokens(1, 3, 2)
    found = one_of_each.forward(new, [end], cache, row=1).logits
    whole = torch.cat([start, ids[kept], new[0]])[None]
    fresh = one_of_each.forward(whole, [0], one_of_each.new_cache(1, 64)).logits
    assert torch.equal(found[0], fresh[0, end:])


def test_torch_leaves_nothing_behind_the_last_entry_read() -> None:
    ours = on_torch("llama")
    cache = ours.new_cache(3, 64)
    read(ours, cache, 0, tiny.tokens(1, 30)[0], random_tree(30, 1), [30])
    ours.move(cache, 1, [3, 5], 0)
    ours.forward(tiny.tokens(1, 1), [2], cache, row=1)
    assert not cache.data[..., 3:, :].any()
    assert cache.data[:, :, 1, :, :3].ne(0).all()


def test_entries_move_at_once(one_of_each: Model) -> None:
    """Sources and places overlap; no other row is touched."""
    cache = behind(one_of_each, tiny.tokens(1, 40)[0])
    before = cache.data.clone()
    one_of_each.move(cache, 1, [10, 12, 13, 14, 20], 10)
    wanted = before.clone()
    wanted[:, :, 1, :, 11:15] = before[:, :, 1, :, [12, 13, 14, 20]]
    assert torch.equal(cache.data, wanted)
    for source, start in (([9], 10), ([10, 10], 10), ([cache.length], 3), ([-1], -1)):
        with pytest.raises(ValueError, match="cannot move"):
            one_of_each.move(cache, 1, source, start)


def test_states_in_between_and_fewer_layers(one_of_each: Model) -> None:
    """Tapped, without a layer, over a cache of the whole model's."""
    ids, start, parents = tiny.tokens(1, 15, 1)[0], tiny.tokens(1, 9)[0], random_tree(15, 2)
    part = one_of_each.with_layers([0, 2]).tapped([0, 1, 2])
    wanted = chains(part, start, ids, parents)
    cache = behind(one_of_each, start)
    part.forward(start[None], [0], cache, row=1)
    assert torch.equal(read(part, cache, 9, ids, parents, [4, 15]), wanted)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_masks_say_the_same_within_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a GPU reads a tree."""
    monkeypatch.setattr(trees, "Paths", trees.Masked)
    ours, start = on_torch(name), tiny.tokens(1, 40)[0]
    ids, parents = tiny.tokens(1, 30, 1)[0], random_tree(30, 7)
    wanted = chains(ours, start, ids, parents)
    for cuts in ([30], [4, 11, 30]):
        found = read(ours, behind(ours, start), 40, ids, parents, cuts)
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)


class TestRefusals:
    @pytest.mark.parametrize(("node", "parent"), [(0, 0), (1, 2), (3, 3), (2, -2), (3, 1 << 40)])
    def test_what_follows_no_earlier_node(self, one_of_each: Model, node: int, parent: int) -> None:
        parents = torch.tensor([[-1, 0, 1, 2]] * 2)
        parents[1, node] = parent
        cache = one_of_each.new_cache(2, 64)
        with pytest.raises(ValueError, match=f"node {node} cannot follow node {parent}"):
            one_of_each.forward(tiny.tokens(2, 4), [0, 0], cache, parents=parents)

    def test_fewer_parents_than_tokens_or_rows(self, one_of_each: Model) -> None:
        cache = one_of_each.new_cache(2, 64)
        for parents in (torch.tensor([[-1]] * 2), torch.tensor([[-1, 0]])):
            with pytest.raises(ValueError, match="parent"):
                one_of_each.forward(tiny.tokens(2, 2), [0, 0], cache, parents=parents)

    def test_a_tree_that_begins_before_the_cache(self, one_of_each: Model) -> None:
        cache, parents = one_of_each.new_cache(1, 64), torch.tensor([[-1, 0, 1]])
        with pytest.raises(ValueError, match="node 2 is not at position 1"):
            one_of_each.forward(tiny.tokens(1, 1), [1], cache, parents=parents)


def test_trees_through_the_loop(one_of_each: Model) -> None:
    """What is emitted is what plain decoding says."""
    assert isinstance(one_of_each, Branching)
    greedy_trees_say_what_the_target_would(lambda: one_of_each)
