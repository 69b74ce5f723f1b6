"""Weight formats behind one call: fp32, bf16, fp16 and int8 on a CPU, and the same four on CUDA.

On a CPU every format here is *row invariant to the bit*: a row of the result depends on that row of
the input alone, never on how many rows there are or what they hold. Scoring one token and scoring
nine then give the very same numbers, which is what makes greedy speculation equal plain decoding
exactly. The price of each format, in time and in accuracy, stands at its class.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Optional, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.models.formats import TURN, Rows, hadamard, turn


class Linear(Protocol):
    """y = x Wᵀ + bias, for x [N, in] float with N >= 1, on the weight's device.

    `add` [N, out] is added to the result (a residual: it costs less here than afterwards).
    `nbytes`: what one call reads of the weight. Rows with NaN or infinity stay in their own row.
    """

    in_features: int
    out_features: int
    nbytes: int

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor: ...


def build(rows: Rows, device: torch.device) -> Linear:
    """The fastest exact `Linear` for these rows on `device`."""
    if device.type != "cpu":
        return Plain(rows, device)
    storage = rows.codes.dtype
    if storage is torch.float32:
        return Float32(rows) if torch.backends.mkldnn.is_available() else Plain(rows, device)
    if storage is torch.float16 and fbgemm():
        return Float16(rows)
    if storage is torch.int8 and fbgemm():
        return Int8(rows)
    return Widened(rows)


@cache
def fbgemm() -> bool:
    """Whether this torch carries the fp16 and int8 CPU kernels (x86-64 builds do).

    They work on quantized tensors, which torch calls deprecated the first time that a process makes
    one; that first time is here, so that the warning ends here too.
    """
    if not {"fbgemm", "x86"} & set(torch.backends.quantized.supported_engines):
        return False
    needed = (
        "linear_prepack",
        "linear_with_input_q_dq_qweight_dq_output_fp32",
        "linear_prepack_fp16",
        "linear_dynamic_fp16",
    )
    if not all(hasattr(torch.ops.quantized, name) for name in needed):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _quantized(torch.zeros(1, 1, dtype=torch.int8), torch.ones(1))
    return True


def _quantized(codes: Tensor, scale: Tensor) -> Tensor:
    """A quantized tensor over `codes` as they are: no copy."""
    zeros = torch.zeros(len(scale), dtype=torch.long)
    empty = torch._empty_per_channel_affine_quantized(
        (0,), scales=scale.double(), zero_points=zeros, axis=0, dtype=torch.qint8
    )
    return empty.set_(codes.untyped_storage(), codes.storage_offset(), codes.shape, codes.stride())


class _Weight:
    """What the formats have in common: shape and size."""

    def __init__(self, rows: Rows) -> None:
        self.out_features, self.in_features = rows.codes.shape
        self.nbytes = rows.codes.nbytes + (0 if rows.scale is None else rows.scale.nbytes)


class Plain(_Weight):
    """torch's own matrix product in the weight's type, for CUDA: not row invariant to the bit.

    int8 is for memory, not for speed: codes are widened to x's type at each call.
    """

    def __init__(self, rows: Rows, device: torch.device) -> None:
        super().__init__(rows)
        self._codes = rows.codes.to(device)
        self._scale = None if rows.scale is None else rows.scale.to(device)
        self._bias = None if rows.bias is None else rows.bias.to(device)

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        codes = self._codes
        if self._scale is None:
            bias = None if self._bias is None else self._bias.to(codes.dtype)
            y = F.linear(x.to(codes.dtype), codes, bias).to(x.dtype)
        else:
            y = F.linear(turn(x), codes.to(x.dtype)).float() * self._scale
            y = (y if self._bias is None else y + self._bias).to(x.dtype)
        return y if add is None else y + add


class Float32(_Weight):
    """fp32 through oneDNN, the weight laid out for it: exact for every N, and for few rows about
    1.5 times as fast as `F.linear`, whose last bits depend on N."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        # Laid out once for a few rows. A plain weight would go to another kernel at N = 1.
        self._weight = torch.ops.mkldnn._reorder_linear_weight(rows.codes, 8)
        self._bias = rows.bias
        self._multiply = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        y = self._multiply(x, self._weight, self._bias, "none", [], "")
        return y if add is None else y.add_(add)


class Float16(_Weight):
    """fp16 weights, fp32 arithmetic (fbgemm): half the bytes of fp32, and as exact as the weights.

    A bf16 checkpoint fits fp16 without loss from 2^-14 up to 65504. Nearly flat in N up to 6 rows.
    """

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._packed = torch.ops.quantized.linear_prepack_fp16(rows.codes.float(), rows.bias)
        self._multiply = torch.ops.quantized.linear_dynamic_fp16.default

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        n = len(x)
        y = self._multiply(_padded(x, good_rows(n)), self._packed)[:n]
        return y if add is None else y.add_(add)


def good_rows(n: int) -> int:
    """The least number of rows >= n for which fbgemm's fp16 kernel rounds every row alike.

    It works in blocks of rows, and its blocks of one and two rows round differently from the
    others; these counts are those that leave no such block.
    """
    while n in (1, 2, 7, 14) or (n > 30 and n % 6 in (1, 2)):
        n += 1
    return n


def _padded(x: Tensor, rows: int) -> Tensor:
    """`x` with at least `rows` rows, contiguous; what the further rows hold does not matter."""
    if len(x) == rows:
        return x.contiguous()
    if len(x) == 1:
        return x.expand(rows, -1).contiguous()
    return F.pad(x, (0, 0, 0, rows - len(x)))


class Int8(_Weight):
    """8-bit codes for weights (a scale a row) and activations (a scale a row of x), fbgemm: a
    quarter of the bytes of fp32; perplexity within 1% of it.

    Inputs and weights are turned (`formats.turn`), or a few large values would cost the others
    their precision. The kernel has one scale for all of x, so each row is divided by its largest
    magnitude, and codes are -127..127 around the zero point 128. A row of zeros divides to NaN,
    whose codes are finite and are then multiplied by zero: it gives exact zeros without a branch.
    """

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        assert rows.scale is not None
        quantized = _quantized(rows.codes, rows.scale)
        self._packed = torch.ops.quantized.linear_prepack(quantized, None)
        self._bias = rows.bias
        self._turn = None if self.in_features % TURN else hadamard(torch.float32, rows.codes.device)
        self._multiply = _int8_script()

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        return self._multiply(x, self._packed, self._turn, self._bias, add)


def _int8(
    x: Tensor,
    packed: torch.classes.quantized.LinearPackedParamsBase,
    turned: Optional[Tensor],  # noqa: UP045 (the compiler's language)
    bias: Optional[Tensor],  # noqa: UP045
    add: Optional[Tensor],  # noqa: UP045
) -> Tensor:
    if turned is not None:  # `formats.turn`
        x = torch.mm(x.reshape(-1, turned.size(0)), turned).view(x.size(0), x.size(1))
    top = x.abs().amax([1], True)
    y = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32(
        x / top, 1.0 / 127.0, 128, packed
    )
    # addcmul is one pass where a product and a sum would be two
    if bias is not None:
        y = torch.addcmul(bias, y, top)
        return y if add is None else y.add_(add)
    return y.mul_(top) if add is None else torch.addcmul(add, y, top)


@cache
def _int8_script() -> Callable[..., Tensor]:
    """`_int8` compiled to TorchScript: one call from Python instead of six, a quarter of a step on
    a small model. torch calls it deprecated and has nothing else that compiles in milliseconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(_int8)


class Widened(_Weight):
    """Any storage, widened to fp32 a block at a time as it is used: bf16 on a CPU, and int8 and
    fp16 where their kernels are missing.

    It saves memory and gives fp32's result for the stored weights, and it is slow: about 2 to 4
    times fp32's time for few rows, hardly more for many.
    """

    _BLOCK = 8 << 20  # bytes of fp32: a block is read again from the cache, not from memory

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._rows = rows
        self._bias = rows.bias
        self._onednn = torch.backends.mkldnn.is_available()
        self._step = max(1, self._BLOCK // (4 * self.in_features))

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        n, codes = len(x), self._rows.codes
        x = x.float() if self._rows.scale is None else turn(x.float())
        x = _padded(x, max(n, 2))  # oneDNN has another kernel for one row
        y = x.new_empty(n, self.out_features)
        block = x.new_empty(min(self._step, self.out_features), self.in_features)
        for start in range(0, self.out_features, self._step):
            end = min(start + self._step, self.out_features)
            weight = block[: end - start].copy_(codes[start:end])
            y[:, start:end] = self._product(x, weight)[:n]
        if self._rows.scale is not None:
            y.mul_(self._rows.scale)
        if self._bias is not None:
            y.add_(self._bias)
        return y if add is None else y.add_(add)

    def _product(self, x: Tensor, weight: Tensor) -> Tensor:
        if self._onednn:
            return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
        return F.linear(x, weight)
