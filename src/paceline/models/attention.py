"""Where one pass reads and writes the cache, and attention over it: rows that agree to the bit.

A position's result depends on its own row and on nothing else: not on how many positions are read
in the same pass, nor on the other rows. Batched matrix products give that for 4 query rows or more
over a multiple of 64 keys, 384 or more (measured on CPUs); `scaled_dot_product_attention` does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.cache import Cache
from paceline.models.config import Config

TILE = 128
"""Query positions scored at a time (over all rows): bounds the score matrix of a long prompt."""
MIN_ROWS = 4
"""Fewer query rows than this go through kernels that sum in another order."""

Sees = Callable[[range, Tensor], list[Tensor]]
"""Which of the cache's `entries` [n] (0, 1, …) the positions of a tile see: [rows, positions, n]
booleans on their device, for global layers and, where those may see less, for local ones."""


def chain(config: Config, at: Sequence[int]) -> Sees:
    """What positions see that follow each other from `at` on."""

    def sees(tile: range, entries: Tensor) -> list[Tensor]:
        last = torch.tensor(at)[:, None, None] + torch.arange(tile.start, tile.stop)[:, None]
        last = to_device(last, entries.device)
        seen = entries <= last
        window = config.sliding_window
        if window is None or max(at) + tile.stop <= window:
            return [seen]
        return [seen, seen & (entries > last - window)]

    return sees


class Tile:
    """Query positions `start`..`end`-1 of every row, scored in one product."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        row: int,
        at: Sequence[int],
        count: int,
        tile: range,
        sees: Sees,
    ) -> None:
        rows, heads, dim = len(at), config.kv_heads, config.head_dim
        group = config.heads // heads
        width = (config.heads + 2 * heads) * dim
        self.count = len(tile)
        self.start = tile.start
        self.rows = rows
        self.keys, self.values = cache.keys_values(row, rows, max(at) + tile.stop)
        wanted = max(MIN_ROWS, self.count * group)
        spare = wanted - self.count * group
        strides = (count * width, group * dim, width, dim, 1)
        if self.count > 1 or spare > 2 * heads:
            self.size, self.stride = (rows, heads, self.count, group, dim), strides
            self.pad = spare
        else:
            # One position: rows that are missing overlap the next heads; their results are dropped.
            self.size, self.stride = (rows, heads, wanted, dim), strides[:2] + strides[3:]
            self.pad = 0
        if rows == 1 and self.count == 1:
            self.size, self.stride = self.size[-3:], self.stride[-3:]
        self.query_shape = (rows * heads, self.count * group if self.pad else wanted, dim)
        self.offset = self.start * width
        self.out_size = (rows, self.count, heads, group, dim)
        self.out_stride = (heads * wanted * dim, group * dim, wanted * dim, dim, 1)
        self.out_shape = (rows * self.count, config.heads * dim)
        like = self.values[0]
        entries = torch.arange(like.shape[1], device=like.device)
        masks = [self._fold(config, s, wanted, like.dtype) for s in sees(tile, entries)]
        self.masks = [masks[0], masks[-1]]
        """What is added to the scores, 0 or -inf, for global and for local layers."""

    def _fold(self, config: Config, seen: Tensor, wanted: int, dtype: torch.dtype) -> Tensor:
        """[rows, count, S] booleans -> what broadcasts over [rows * kv_heads, wanted, S]."""
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device)
        mask.masked_fill_(~seen, -math.inf)
        heads = config.kv_heads if self.rows > 1 else 1
        group = config.heads // config.kv_heads if self.count > 1 else 1
        size = (self.rows, heads, self.count, group, mask.shape[-1])
        mask = mask[:, None, :, None].expand(size).reshape(-1, self.count * group, mask.shape[-1])
        return F.pad(mask, (0, 0, 0, wanted - mask.shape[1])) if self.count > 1 else mask

    def attend(self, layer: int, qkv: Tensor, local: bool) -> Tensor:
        """[rows * count, heads * D]: the values that this tile's positions attend to.

        Scores carry their scale already, see `Rope`.
        """
        q = qkv.as_strided(self.size, self.stride, qkv.storage_offset() + self.offset)
        if q.dim() > 3:
            q = q.reshape(self.query_shape)
        if self.pad:
            q = F.pad(q, (0, 0, 0, self.pad))
        scores = torch.baddbmm(self.masks[local], q, self.keys[layer])
        out = torch.bmm(torch.softmax(scores, -1), self.values[layer])
        return out.as_strided(self.out_size, self.out_stride).reshape(self.out_shape)


class Writing:
    """Where `count` new entries of some rows go from `at` on, made once and used by every layer.
    `positions`: the places of the rope's tables that they take."""

    def __init__(
        self, config: Config, cache: Cache, row: int, at: Sequence[int], count: int
    ) -> None:
        rows, heads, dim = len(at), config.kv_heads, config.head_dim
        for b, start in enumerate(at):
            cache.open(row + b, start, start + count)
        width = (config.heads + 2 * heads) * dim
        self._rows = rows
        self._skip = config.heads * dim
        self._dim = dim
        if rows == 1:
            self.positions: Tensor | slice = slice(at[0], at[0] + count)
            self._slots = cache.slots(row, at[0], at[0] + count)
            self._size, self._stride = (2, heads, count, dim), (heads * dim, dim, width, 1)
        else:
            positions = torch.tensor(at)[:, None] + torch.arange(count)
            index = cache.index(row, positions)
            self.positions = to_device(positions.flatten(), cache.data.device)
            self._index = to_device(index, cache.data.device)
            self._slots = cache.flat()
            self._size, self._stride = (rows * count, 2 * heads, dim), (width, dim, 1)

    def write(self, layer: int, qkv: Tensor) -> None:
        """Put the keys and values among `qkv` [N, (heads + 2 kv_heads) * D] into the cache."""
        new = qkv.as_strided(self._size, self._stride, qkv.storage_offset() + self._skip)
        if self._rows == 1:
            self._slots[layer].copy_(new)
        else:
            self._slots[layer].index_copy_(0, self._index, new.reshape(-1, self._dim))


class Reading(Writing):
    """One pass over `count` new positions of some rows, from `at` on. `sees`: what each of them
    does; None: they are a chain."""

    def __init__(
        self,
        config: Config,
        cache: Cache,
        row: int,
        at: Sequence[int],
        count: int,
        sees: Sees | None = None,
    ) -> None:
        super().__init__(config, cache, row, at, count)
        step = max(1, TILE // len(at))
        sees = sees or chain(config, at)
        self._tiles = [
            Tile(config, cache, row, at, count, range(count)[i : i + step], sees)
            for i in range(0, count, step)
        ]

    def attend(self, layer: int, qkv: Tensor, local: bool) -> Tensor:
        """[N, heads * D] for the queries among `qkv`, whose keys and values have been written."""
        tiles = self._tiles
        if len(tiles) == 1:
            return tiles[0].attend(layer, qkv, local)
        parts = [tile.attend(layer, qkv, local) for tile in tiles]
        if self._rows == 1:
            return torch.cat(parts)
        parts = [part.view(self._rows, -1, part.shape[1]) for part in parts]
        return torch.cat(parts, 1).view(-1, parts[0].shape[2])


def to_device(made: Tensor, device: torch.device) -> Tensor:
    """What was made on the host, without a stall."""
    if device.type != "cuda":
        return made
    return made.pin_memory().to(device, non_blocking=True)
