"""Keys and values of every layer, for a fixed number of rows of a fixed length."""

from __future__ import annotations

import torch
from torch import Tensor

from paceline.models.config import Config

STEP = 64
FLOOR = 384
"""Attention reads a multiple of STEP positions and no fewer than FLOOR: from there on, the matrix
kernels sum in an order that does not depend on how much is read, so results agree to the bit."""


class Cache:
    """A static, right-padded cache with positions per row.

    `data` [layers, 2 (keys, values), rows, kv_heads, positions, head_dim]. Entries behind the last
    one read are zero at any time: a row that failed with NaN leaves nothing that could reach the
    next request in its slot (0 * NaN is NaN, even where the weight of a position is zero).
    """

    def __init__(
        self, config: Config, batch: int, length: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.length = max(FLOOR, -(-length // STEP) * STEP)
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

    def visible(self, end: int) -> int:
        """How many positions attention must read to see positions 0..end-1."""
        return min(self.length, max(FLOOR, -(-end // STEP) * STEP))

    def keys_values(self, row: int, rows: int, end: int) -> tuple[list[Tensor], list[Tensor]]:
        """For each layer keys [rows * kv_heads, D, visible(end)], values [.., visible(end), D]: views."""
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
