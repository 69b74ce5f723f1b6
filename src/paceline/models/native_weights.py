"""A checkpoint's weights as the native kernels read them: a GGUF file's own, or quantised here.

Nothing is kept on disk. A file's quantised blocks are only laid out anew, as fast as they can be
read; floats are quantised on all threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from paceline import kernels
from paceline.models import gguf
from paceline.models.config import Checkpoint, weight_count
from paceline.models.progress import Progress
from paceline.models.workers import blocks

if TYPE_CHECKING:
    from paceline.kernels._native import Engine, Matrix

_BYTES = {"int4": 0.625, "int8": 1.0625, "fp16": 2.0}
FORMATS = ("native", *_BYTES)
"""The weight formats of the native kernels. "native": what the file holds."""


class NativeWeights:
    """The `Weights` of a `NativeTransformer`: `checkpoint` in the format `dtype` (of FORMATS).

    "native" keeps every value of a GGUF file's quantised and fp16 matrices; those in fp32 or bf16
    become fp16. The other formats round: int4 and int8 by groups of 32 with a searched scale, fp16
    to the nearest. Work is done on `engine`.
    """

    def __init__(
        self, checkpoint: Checkpoint, dtype: str, engine: Engine, progress: Progress | None = None
    ) -> None:
        self.config = checkpoint.config
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._engine = engine
        self._progress = progress
        self._done, self._total = 0, _size(checkpoint, dtype)

    def vector(self, name: str) -> Tensor:
        """A norm's weight [D] float32."""
        return self._checkpoint.tensor(name).float().contiguous()

    def bias(self, name: str) -> Tensor | None:
        """The bias `name` [out] float32, or None."""
        return self.vector(name) if name in self._checkpoint else None

    def matrix(self, name: str) -> Matrix:
        """The matrix `name` [out, in]."""
        checkpoint = self._checkpoint
        if isinstance(checkpoint, gguf.GgufCheckpoint):
            source = checkpoint.matrix(name)
            own = self._own(source)
            made = own if own and self._dtype == "native" else self._encode(source, own)
        else:
            made = self._encode(checkpoint.tensor(name), None)
        self._done += made.nbytes
        if self._progress:
            self._progress(min(self._done, self._total), self._total, "reading weights")
        return made

    def _own(self, source: gguf.Matrix) -> Matrix | None:
        """A GGUF matrix as it is; None where no kind of the kernels holds it."""
        if not source.native:
            return None
        return kernels.load().Matrix.from_gguf(
            self._engine, source.ggml_type, source.raw, source.shape[1], source.order
        )

    def _encode(self, source: gguf.Matrix | Tensor, own: Matrix | None) -> Matrix:
        """`source` in the format asked for, some rows at a time; through `own` where there is one
        (it dequantises faster)."""
        kind = "fp16" if self._dtype == "native" else self._dtype
        rows, cols = source.shape
        made = kernels.load().Matrix.empty(kind, rows, cols)
        for part in blocks((rows, cols), multiple_of=8):
            if own is None:
                values = source[part].float().contiguous().numpy()
            else:
                values = own.rows(np.arange(part.start, min(part.stop, rows)))
            made.fill(self._engine, part.start, values)
        return made


def _size(checkpoint: Checkpoint, dtype: str) -> int:
    """About what all matrices will take, in bytes."""
    if dtype == "native" and isinstance(checkpoint, gguf.GgufCheckpoint):
        return checkpoint.path.stat().st_size
    return int(weight_count(checkpoint.config) * _BYTES[dtype])
