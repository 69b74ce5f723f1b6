"""A pass over the nodes of trees: what each of them attends to, in the order of a chain.

On a CPU a node's result is that of a chain to the bit, so what it attends to must be summed over in
the chain's order: a tree is read path by path, and while one is, its entries lie in its order. On a
GPU one product scores all nodes over the cache as it lies, and a mask says what each of them sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.core.tree import ancestry, depths
from paceline.models.attention import Reading, Sees, Tile, Writing, chain, to_device
from paceline.models.cache import Cache
from paceline.models.config import Config


def up_to(parents: Tensor | None, count: int, stop: int) -> Tensor | None:
    """Of `parents` (see `Branching`), for a pass over `count` nodes, what one over the first `stop`
    of them alone needs."""
    if parents is None:
        return None
    return parents[:, : parents.shape[1] - count + min(stop, count)]


def reading(
    config: Config, cache: Cache, row: int, at: Sequence[int], count: int, parents: Tensor | None
) -> Reading | Paths:
    """One pass over `count` new entries of some rows from `at` on, made once and used by every
    layer. Raises ValueError for positions that do not fit, and for parents that are no tree."""
    if parents is None:
        return Reading(config, cache, row, at, count)
    trees = _trees(at, count, parents)
    return (Masked if cache.data.is_cuda else Paths)(config, cache, row, at, count, trees)


class Tree(NamedTuple):
    """One row's nodes, of which the first lies at `base`."""

    base: int
    parents: list[int]
    depths: list[int]


def _trees(at: Sequence[int], count: int, parents: Tensor) -> list[Tree]:
    before = parents.shape[1] - count
    if before < 0 or parents.shape[0] != len(at):
        raise ValueError("a tree has a parent for each of its tokens")
    rows: list[list[int]] = parents.tolist()
    for start, nodes in zip(at, rows, strict=True):
        if start < before:
            raise ValueError(f"a tree's node {before} is not at position {start}")
        for j, parent in enumerate(nodes):
            if not -1 <= parent < j:
                raise ValueError(f"node {j} cannot follow node {parent}")
    return [
        Tree(start - before, nodes, depths(nodes)) for start, nodes in zip(at, rows, strict=True)
    ]


def _positions(trees: Sequence[Tree], count: int, device: torch.device) -> Tensor:
    places = [tree.base + depth for tree in trees for depth in tree.depths[-count:]]
    return to_device(torch.tensor(places), device)


class Masked(Reading):
    """A `Reading` of the last `count` nodes of `trees`, all at once: within rounding of a chain."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        row: int,
        at: Sequence[int],
        count: int,
        trees: Sequence[Tree],
    ) -> None:
        super().__init__(config, cache, row, at, count, _masked(config, trees, count))
        self.positions = _positions(trees, count, cache.data.device)


def _masked(config: Config, trees: Sequence[Tree], count: int) -> Sees:
    before = len(trees[0].parents) - count
    window = config.sliding_window

    def sees(tile: range, entries: Tensor) -> list[Tensor]:
        n = len(entries)
        seen = torch.zeros(len(trees), len(tile), n, dtype=torch.bool)
        near = seen.clone()
        for b, tree in enumerate(trees):
            own = torch.tensor(tree.depths)[: n - tree.base]
            positions = torch.cat([torch.arange(tree.base), tree.base + own, torch.full((n,), n)])
            for t, i in enumerate(tile):
                path = ancestry(tree.parents, before + i)
                seen[b, t, : tree.base] = True
                seen[b, t, [tree.base + node for node in path]] = True
                last = tree.base + len(path) - 1
                near[b, t] = seen[b, t] & (positions[:n] > last - (window or n))
        return [to_device(mask, entries.device) for mask in (seen, near)]

    return sees


class _Path(NamedTuple):
    """Nodes that follow each other: `queries` [n] of a pass, at the end of `nodes` of the tree."""

    queries: Tensor
    nodes: Tensor
    tile: Tile


class Paths(Writing):
    """Like `Reading`, for the last `count` nodes of `trees`, path by path: each node comes out as
    in a chain, to the bit on a CPU."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        row: int,
        at: Sequence[int],
        count: int,
        trees: Sequence[Tree],
    ) -> None:
        super().__init__(config, cache, row, at, count)
        self.positions = _positions(trees, count, cache.data.device)
        self._width = config.heads * config.head_dim
        self._paths: list[tuple[list[Tensor], list[_Path]]] = []
        for b, tree in enumerate(trees):
            slots = cache.slots(row + b, tree.base, tree.base + len(tree.parents))
            first = b * count + count - len(tree.parents)  # where node 0 would stand among `qkv`
            paths = [
                _path(config, cache, row + b, tree, run, first)
                for run in _runs(tree.parents, count)
            ]
            self._paths.append((slots, paths))

    def attend(self, layer: int, qkv: Tensor, local: bool) -> Tensor:
        """See `Reading`."""
        out = qkv.new_empty(len(qkv), self._width)
        for slots, paths in self._paths:
            entries = slots[layer].clone()
            for path in paths:
                slots[layer][:, :, : len(path.nodes)] = entries[:, :, path.nodes]
                out[path.queries] = path.tile.attend(layer, qkv[path.queries], local)
            slots[layer].copy_(entries)
        return out


def _runs(parents: Sequence[int], count: int) -> list[list[int]]:
    """The last `count` nodes, as runs in which each follows the one before."""
    left = set(range(len(parents) - count, len(parents)))
    runs: list[list[int]] = []
    while left:
        node = max(left)  # a leaf of what is left
        run: list[int] = []
        while node in left:
            left.remove(node)
            run.append(node)
            node = parents[node]
        runs.append(run[::-1])
    return runs


def _path(
    config: Config, cache: Cache, row: int, tree: Tree, run: Sequence[int], first: int
) -> _Path:
    at = [tree.base + tree.depths[run[0]]]
    tile = Tile(config, cache, row, at, len(run), range(len(run)), chain(config, at))
    nodes = torch.tensor(ancestry(tree.parents, run[-1]))
    return _Path(torch.tensor(run) + first, nodes, tile)
