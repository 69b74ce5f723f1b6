"""How weights are stored in each format, and how a checkpoint's tensors are brought into it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from paceline.models.workers import Workers, blocks

if TYPE_CHECKING:
    import numpy as np

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int8": torch.int8,
}
"""What `--dtype` knows besides "auto", and the storage of each."""

TURN = 64
"""Neighbouring inputs that int8 turns together, see `turn`."""


@dataclass(frozen=True)
class Rows:
    """A weight and its bias as they are stored: `codes` [out, in] in the format's storage, for int8
    alone `scale` [out] float32 (row i of the weight is turn(codes[i] * scale[i])), `bias` [out]
    float32 or None."""

    codes: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None

    @staticmethod
    def join(parts: Sequence[Rows]) -> Rows:
        """The rows of `parts`, of one format, one after the other. A missing bias is zero."""
        if len(parts) == 1:
            return parts[0]
        scales = [part.scale for part in parts if part.scale is not None]
        biases = None
        if any(part.bias is not None for part in parts):
            biases = [torch.zeros(len(p.codes)) if p.bias is None else p.bias for p in parts]
        return Rows(
            torch.cat([part.codes for part in parts]),
            torch.cat(scales) if scales else None,
            None if biases is None else torch.cat(biases),
        )


class Matrix(Protocol):
    """A tensor [out, in] that may still lie in a file: `matrix[a:b]` are its rows a..b-1."""

    @property
    def shape(self) -> Sequence[int]: ...

    def __getitem__(self, rows: slice, /) -> Tensor: ...


def encode(
    weight: Tensor | Matrix,
    dtype: str,
    bias: Tensor | None = None,
    workers: Workers | None = None,
) -> Rows:
    """Store `weight` [out, in] (any float type) and `bias` [out] in the format `dtype`.

    int8: codes in -127..127 of the turned weight and one scale a row. Two neighbouring codes of one
    sign never add up to more than 128: their products with activation codes of 0..255 then fit the
    16 bits that CPUs without VNNI add such pairs in. fp16 saturates at ±65504. A row of zeros stays
    exactly zero. `workers`: who does it, side by side; None is the caller alone.
    """
    bias = None if bias is None else bias.float()
    codes = torch.empty(tuple(weight.shape), dtype=DTYPES[dtype])
    scale = torch.empty(len(codes)) if dtype == "int8" else None

    def work(rows: slice) -> None:
        part = weight[rows]
        if scale is not None:
            part = turn(part.float())
            _quantize(part.numpy(), codes[rows].numpy(), scale[rows].numpy())
        else:
            codes[rows] = part.clamp(-65504, 65504) if dtype == "fp16" else part

    if workers:
        workers.by_blocks(weight.shape, work)
    else:
        for rows in blocks(weight.shape):
            work(rows)
    return Rows(codes, scale, bias)


def decode(rows: Rows) -> Tensor:
    """The weight that `rows` stands for, [out, in] float32."""
    weight = rows.codes.float()
    return weight if rows.scale is None else turn(weight * rows.scale[:, None])


def turn(x: Tensor) -> Tensor:
    """x [.., K] with every TURN neighbours multiplied by an orthogonal matrix that is its own
    inverse (Hadamard's, over the root of TURN); unchanged where TURN does not divide K.

    Turning inputs and weights alike leaves their product as it is and spreads a few large values
    over their neighbours, so that one scale a row suits all of them (Ashkboos et al. 2024, QuaRot).
    A row's result depends on that row alone, to the bit, for this TURN (not for any).
    """
    if x.shape[-1] % TURN:
        return x
    return (x.reshape(-1, TURN) @ hadamard(x.dtype, x.device)).view(x.shape)


@cache
def hadamard(dtype: torch.dtype, device: torch.device) -> Tensor:
    """The matrix of `turn`, [TURN, TURN]: symmetric and its own inverse."""
    matrix = torch.ones(1, 1)
    while len(matrix) < TURN:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / TURN**0.5).to(device, dtype)


def _quantize(weight: np.ndarray, codes: np.ndarray, scale: np.ndarray) -> None:
    import numpy as np

    def largest(values: np.ndarray) -> np.ndarray:
        return np.maximum(values.max(1), -values.min(1))

    top = largest(weight) / np.float32(127)
    even, odd = weight[:, 0::2], weight[:, 1::2]
    if odd.size:
        # Rounding adds up to 1 to a pair's sum: 127.5 keeps whole numbers at 128 or below. A pair
        # of two signs adds up to less than its larger half, which `top` holds already.
        pairs = largest(even[:, : odd.shape[1]] + odd)
        top = np.maximum(top, pairs / np.float32(127.5))
    scale[:] = np.where(top > 0, top, np.float32(1))
    with np.errstate(invalid="ignore"):  # a weight that is NaN: its row's scale is NaN too
        part = weight / scale[:, None]
        codes[:] = np.rint(part, out=part)
