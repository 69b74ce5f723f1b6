"""A checkpoint's weights as the native kernels read them: a GGUF file's own, or quantised here.

What comes out is kept on disk, in the layout that is multiplied with: a later start maps that file
and is ready, and the system may drop its pages and read them again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from paceline import kernels
from paceline.models import gguf
from paceline.models.config import Checkpoint, weight_count
from paceline.models.packfile import PackReader, PackWriter
from paceline.models.progress import Note, Progress
from paceline.models.workers import blocks

if TYPE_CHECKING:
    from paceline.kernels._native import Engine, Matrix

_BYTES = {"int4": 0.625, "int8": 1.0625, "fp16": 2.0}
FORMATS = ("native", *_BYTES)
"""The weight formats of the native kernels. "native": what the file holds."""
_TABLES = ("model.embed_tokens.weight", "lm_head.weight")
LAYOUT = 1  # goes up when the same checkpoint and format would give other bytes


class NativeWeights:
    """The `Weights` of a `NativeTransformer`: `checkpoint` in the format `dtype` (of FORMATS), kept
    in `folder` (None: nowhere).

    "native" keeps every value of a GGUF file's quantised and fp16 matrices; those in fp32 or bf16
    become fp16. The other formats round: int4 and int8 by groups of 32 with a searched scale, fp16
    to the nearest. In int4 the embedding and the output layer are int8: 4 bits there cost as much
    as 4 bits everywhere else. Work is done on `engine`. What cannot be written is said once, to
    `note`. A context manager: the file appears, whole, after a block that raised nothing.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: str,
        engine: Engine,
        folder: Path | None = None,
        progress: Progress | None = None,
        note: Note | None = None,
    ) -> None:
        self._checkpoint = checkpoint
        self._dtype = dtype
        self._engine = engine
        self._progress = progress
        self._done, self._total = 0, _size(checkpoint, dtype)
        self._reader: PackReader | None = None
        self._writer: PackWriter | None = None
        if folder is None:
            return
        path = folder / f"{checkpoint.fingerprint[:32]}-{dtype}-n{LAYOUT}.packed"
        self._reader = PackReader.open(path)
        if self._reader is None:
            self._writer = PackWriter(path, self._total, note or (lambda line: None))

    def __enter__(self) -> NativeWeights:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._writer:
            self._writer.close(keep=kind is None)

    def vector(self, name: str) -> Tensor:
        """A norm's weight [D] float32."""
        return self._checkpoint.tensor(name).float().contiguous()

    def bias(self, name: str) -> Tensor | None:
        """The bias `name` [out] float32, or None."""
        return self.vector(name) if name in self._checkpoint else None

    def matrix(self, name: str) -> Matrix:
        """The matrix `name` [out, in]."""
        made = self._kept(name) or self._made(name)
        if self._writer:
            rows, cols = made.shape
            data = torch.from_numpy(made.data)
            self._writer.add(name, {"data": data}, kind=made.kind, rows=rows, cols=cols)
        self._done += made.nbytes
        if self._progress:
            what = "reading weights" if self._reader else "packing weights"
            self._progress(min(self._done, self._total), self._total, what)
        return made

    def _kept(self, name: str) -> Matrix | None:
        """The matrix as an earlier start left it."""
        if self._reader is None:
            return None
        facts, data = self._reader.facts(name), self._reader.tensor(name, "data", mapped=True)
        assert data is not None
        packed = kernels.load().Matrix.packed
        return packed(facts["kind"], facts["rows"], facts["cols"], data.numpy())

    def _made(self, name: str) -> Matrix:
        """The matrix out of the checkpoint."""
        if not isinstance(self._checkpoint, gguf.GgufCheckpoint):
            return self._encoded(name, self._checkpoint.tensor(name), None)
        source = self._checkpoint.matrix(name)
        own = None
        if source.native:
            raw, cols, order = source.raw, source.shape[1], source.order
            from_gguf = kernels.load().Matrix.from_gguf
            own = from_gguf(self._engine, source.ggml_type, raw, cols, order)
        return own if own and self._dtype == "native" else self._encoded(name, source, own)

    def _encoded(self, name: str, source: gguf.Matrix | Tensor, own: Matrix | None) -> Matrix:
        """`source` in the format asked for, some rows at a time; through `own`, its exact twin,
        where there is one (it dequantises faster)."""
        kind = "fp16" if self._dtype == "native" else self._dtype
        if kind == "int4" and name in _TABLES:
            kind = "int8"
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
