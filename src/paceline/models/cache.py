"""Keys and values of every layer, for a fixed number of rows of a fixed length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import torch
from torch import Tensor

from paceline.models.config import Config

STEP = 64
BLOCK = 192
"""Attention reads a multiple of STEP positions, up to BLOCK or from 2 * BLOCK on. Matrix kernels
sum over positions in blocks of BLOCK, except that they halve what is between one block and two; so
with these lengths what is read beyond a row's own positions changes no bit of its result."""


class Cache:
    """A static, right-padded cache with positions per row.

    `data` [layers, 2 (keys, values), rows, kv_heads, positions, head_dim]. Entries behind the last
    one read are zero at any time: a row that failed with NaN leaves nothing that could reach the
    next request in its slot (0 * NaN is NaN, even where the weight of a position is zero).
    """

    def __init__(
        self, config: Config, batch: int, length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.length = _readable(length)
        self.batch = batch
        self._filled = [0] * batch
        self.data = torch.zeros(
            (config.layers, 2, batch, config.kv_heads, self.length, config.head_dim),
            dtype=dtype,
            device=device,
        )

    def open(self, row: int, start: int, end: int) -> None:
        """Row `row` is about to be written from `start` to `end`; what lies behind is forgotten."""
        if not 0 <= start < end <= self.length:
            raise ValueError(f"positions {start}..{end} do not fit a cache of {self.length}")
        if self._filled[row] > end:
            self.data[:, :, row, :, end : self._filled[row]].zero_()
        self._filled[row] = end

    def move(self, row: int, source: Sequence[int], start: int) -> None:
        """The entries `source` of `row` become those at `start`, `start` + 1, … in all layers; each
        is at or behind its new place. Those left behind them have been read: `open` clears them.
        Raises ValueError for entries that cannot go there."""
        if not all(0 <= to <= entry < self.length for to, entry in enumerate(source, start)):
            raise ValueError(f"entries {list(source)} cannot move to {start} and behind")
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], enumerate(source, start)))
        if same < len(source):
            moved = self.data[:, :, row, :, source[same:]]  # a copy
            self.data[:, :, row, :, start + same : start + len(source)] = moved

    def copy(self, source: int, row: int, count: int) -> None:
        """Make the first `count` entries of `row` those of row `source`."""
        self.data[:, :, row, :, :count] = self.data[:, :, source, :, :count]
        self._filled[row] = max(self._filled[row], count)

    def visible(self, end: int) -> int:
        """How many positions attention must read to see positions 0..end-1."""
        return _readable(end)

    def keys_values(self, row: int, rows: int, end: int) -> tuple[list[Tensor], list[Tensor]]:
        """For each layer keys [rows * kv_heads, D, S] and values [.., S, D], S = visible(end)."""
        layers, _, _, heads, _, dim = self.data.shape
        flat = self.data.view(layers, 2, self.batch * heads, self.length, dim)
        seen = flat[:, :, row * heads : (row + rows) * heads, : self.visible(end)]
        return (
            list(seen[:, 0].transpose(-1, -2).unbind(0)),
            list(seen[:, 1].unbind(0)),
        )

    def slots(self, row: int, start: int, end: int) -> list[Tensor]:
        """For each layer where one row's [2, kv_heads, end - start, D] go: views."""
        return list(self.data[:, :, row, :, start:end].unbind(0))

    def flat(self) -> list[Tensor]:
        """For each layer all its vectors [2 * rows * kv_heads * positions, D]: views."""
        layers, dim = self.data.shape[0], self.data.shape[-1]
        return list(self.data.view(layers, -1, dim).unbind(0))

    def index(self, row: int, positions: Tensor) -> Tensor:
        """Where in `flat` the vectors of rows `row`.. at `positions` [B, T] are, in the order
        [B, T, 2, kv_heads], flattened; on the device of `positions`."""
        _, _, batch, heads, length, _ = self.data.shape
        rows = torch.arange(row, row + positions.shape[0])[:, None, None, None]
        part = torch.arange(2)[:, None]
        head = torch.arange(heads)
        where = ((part * batch + rows) * heads + head) * length
        return (where + positions[..., None, None]).flatten()


def _readable(end: int) -> int:
    steps = -(-max(end, 1) // STEP) * STEP
    return steps if steps <= BLOCK else max(steps, 2 * BLOCK)
