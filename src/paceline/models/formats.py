"""How weights are stored in each format, and how a checkpoint's tensors are brought into it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

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

_BLOCK = 256 * 1024  # elements worked on at a time: a few temporaries of it fit a core's cache
_GRAIN = 32 * 1024  # elements that torch works on without starting threads


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


def encode(weight: Tensor | Matrix, dtype: str, bias: Tensor | None = None) -> Rows:
    """Store `weight` [out, in] (any float type) and `bias` [out] in the format `dtype`.

    int8: codes in -127..127 of the turned weight and one scale a row. Two neighbouring codes of one
    sign never add up to more than 128: their products with activation codes of 0..255 then fit the
    16 bits that CPUs without VNNI add such pairs in. fp16 saturates at ±65504. A row of zeros stays
    exactly zero.
    """
    bias = None if bias is None else bias.float()
    codes = torch.empty(tuple(weight.shape), dtype=DTYPES[dtype])
    if dtype != "int8":
        by_blocks(weight.shape, lambda rows: _convert(weight[rows], codes[rows]))
        return Rows(codes, None, bias)
    scale = torch.empty(len(codes))
    to = codes.numpy(), scale.numpy()
    by_blocks(
        weight.shape,
        lambda rows: _quantize(turn(weight[rows].float()).numpy(), to[0][rows], to[1][rows]),
    )
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
    return (x.reshape(-1, TURN) @ _hadamard(x.dtype, x.device)).view(x.shape)


@cache
def _hadamard(dtype: torch.dtype, device: torch.device) -> Tensor:
    matrix = torch.ones(1, 1)
    while len(matrix) < TURN:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (matrix / TURN**0.5).to(device, dtype)


def by_blocks(shape: Sequence[int], work: Callable[[slice], None]) -> None:
    """`work(rows)` for all rows of a matrix of this shape, a block that fits a core's cache at a
    time, on as many threads as torch may use.

    `work` should start no threads of its own: parallel regions wait for every thread, many times
    over, which takes long where another program keeps a core busy.
    """
    step = max(1, _BLOCK // shape[1])
    blocks = [slice(start, start + step) for start in range(0, shape[0], step)]
    if len(blocks) == 1:
        return work(blocks[0])
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        list(pool.map(work, blocks))


def _convert(weight: Tensor, codes: Tensor) -> None:
    step = max(1, _GRAIN // weight.shape[1])
    for part, to in zip(weight.split(step), codes.split(step), strict=True):
        to.copy_(part.clamp(-65504, 65504) if codes.dtype is torch.float16 else part)


def _quantize(weight: np.ndarray, codes: np.ndarray, scale: np.ndarray) -> None:
    import numpy as np

    top = np.abs(weight).max(1) / np.float32(127)
    # rounding adds up to 1 to a pair's sum: 127.5 keeps whole numbers at 128 or below
    pairs = weight[:, : weight.shape[1] // 2 * 2].reshape(len(weight), -1, 2)
    for sign in (pairs.clip(0), -pairs.clip(None, 0)) if pairs.size else ():
        top = np.maximum(top, sign.sum(2).max(1) / np.float32(127.5))
    scale[:] = np.where(top > 0, top, np.float32(1))
    with np.errstate(invalid="ignore"):  # a weight that is NaN: its row's scale is NaN too
        part = weight / scale[:, None]
        codes[:] = np.clip(np.rint(part, out=part), -127, 127, out=part)
