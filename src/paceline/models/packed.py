"""A checkpoint's weights in the format that they are used in, kept on disk for the next start.

Dequantising and encoding a model takes tens of seconds and depends on the file and the format
alone, so what comes out is written down as it is made. A later start reads it back and lays it out
for the kernels on all cores, which takes a few seconds.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from paceline.models.config import Checkpoint, Config, weight_count
from paceline.models.formats import DTYPES, Matrix, Rows, encode, turn
from paceline.models.linear import Linear, build, fbgemm
from paceline.models.packfile import PackReader, PackWriter
from paceline.models.progress import Note, Progress
from paceline.models.workers import Workers

VERSION = 2  # goes up when the same checkpoint and dtype would give other bytes


class PackedWeights:
    """The `Weights` of a transformer: `checkpoint` in the format `dtype` (a key of DTYPES) on
    `device`, kept in `folder` (None: kept nowhere; so is fp32, which is large and quickly made).

    `nbytes`: what the linears made so far hold, which is what one pass reads of them. What cannot
    be written (a full disk, a read-only folder) is said once, to `note`, and the weights are made
    all the same. A context manager: the file appears, whole, after a block that raised nothing.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        dtype: str,
        device: torch.device,
        folder: Path | None = None,
        progress: Progress | None = None,
        note: Note | None = None,
    ) -> None:
        self.config = checkpoint.config
        self.device = device
        self.dtype = compute_dtype(dtype, device)
        self.nbytes = 0
        self._checkpoint = checkpoint
        self._format = dtype
        self._steps = _Steps(progress, weight_bytes(checkpoint.config, dtype))
        self._tied: dict[str, Rows] = {}
        self._ready: dict[str, Future[Linear]] = {}
        self._reader: PackReader | None = None
        self._writer: PackWriter | None = None
        self._workers = Workers()
        if folder is None or dtype == "fp32":
            return
        path = folder / f"{checkpoint.fingerprint[:32]}-{dtype}-{VERSION}.packed"
        self._reader = PackReader.open(path)
        if self._reader is None:
            total = weight_bytes(checkpoint.config, dtype)
            self._writer = PackWriter(path, total, note or (lambda line: None))
            return
        self._steps.what = "reading weights"
        fbgemm()  # here and not in the threads, which would each ask
        # The largest first, so that no thread is left alone with it at the end.
        reader = self._reader
        linears = [key for key in reader.keys() if reader.facts(key)["linear"]]  # noqa: SIM118
        for key in sorted(linears, key=lambda key: reader.elements(key, "codes"), reverse=True):
            self._ready[key] = self._workers.submit(self._restore, reader, key)

    def __enter__(self) -> PackedWeights:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._workers.close()
        self._ready.clear()
        self._tied.clear()
        if self._writer:
            self._writer.close(keep=kind is None)

    def vector(self, name: str) -> Tensor:
        """A norm's weight, in the compute dtype."""
        return self._checkpoint.tensor(name).to(self.device, self.dtype)

    def linear(self, *names: str) -> Linear:
        """The rows of the matrices `names` ("X.weight"), one after the other, as one `Linear`; the
        biases "X.bias" join in where there are any."""
        key = "+".join(names)
        if key in self._ready:
            linear = self._ready.pop(key).result()
        else:
            linear = build(self._encoded(names, linear=True), self.device)
        self.nbytes += linear.nbytes
        self._steps.advance(linear.nbytes)
        return linear

    def embedding(self, name: str) -> Embedding:
        """ids [..] int64 -> their rows of `name`, [.., D] in the compute dtype."""
        if self._reader and name in self._reader:
            rows = _rows(self._reader, name, mapped=self.device.type == "cpu")
        else:
            rows = self._encoded((name,), linear=self.config.tied)
            if self.config.tied:
                self._tied[name] = rows  # the output layer will ask for the same
        if not self.config.tied:
            self._steps.advance(rows.codes.nbytes)
        return Embedding(rows, self.dtype, self.device)

    def _restore(self, reader: PackReader, key: str) -> Linear:
        return build(_rows(reader, key), self.device)

    def _encoded(self, names: tuple[str, ...], linear: bool) -> Rows:
        """The rows of `names` out of the checkpoint; they go into the file too."""
        if names[0] in self._tied:
            return self._tied.pop(names[0])
        rows = Rows.join([self._encode(name) for name in names])
        if self._writer:
            parts = {"codes": rows.codes, "scale": rows.scale, "bias": rows.bias}
            self._writer.add("+".join(names), parts, linear=linear)
        return rows

    def _encode(self, name: str) -> Rows:
        checkpoint, bias = self._checkpoint, name.removesuffix("weight") + "bias"
        lazy = isinstance(checkpoint, _Lazy)
        return encode(
            checkpoint.matrix(name) if lazy else checkpoint.tensor(name),
            self._format,
            checkpoint.tensor(bias) if bias in checkpoint else None,
            self._workers,
        )


def _rows(reader: PackReader, key: str, mapped: bool = False) -> Rows:
    """The rows that were packed as `key`. `mapped`: their codes stay in the file."""
    codes = reader.tensor(key, "codes", mapped)
    assert codes is not None
    return Rows(codes, reader.tensor(key, "scale"), reader.tensor(key, "bias"))


@runtime_checkable
class _Lazy(Protocol):
    """A checkpoint that need not make a whole tensor at once."""

    def matrix(self, name: str) -> Matrix: ...


class Embedding:
    """Rows of a table by id, widened as they are taken: the table itself is never widened."""

    def __init__(self, rows: Rows, dtype: torch.dtype, device: torch.device) -> None:
        self._codes = rows.codes.to(device)
        self._scale = None if rows.scale is None else rows.scale.to(device, dtype)
        self._dtype = dtype

    def __call__(self, ids: Tensor) -> Tensor:
        flat = ids.flatten()
        rows = self._codes.index_select(0, flat).to(self._dtype)
        if self._scale is not None:
            rows = turn(rows.mul_(self._scale.index_select(0, flat)[:, None]))
        return rows.view(*ids.shape, -1)


class _Steps:
    """Tells `progress` how far the weights are."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self.what = "packing weights"

    def advance(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress:
            self._progress(min(self._done, self._total), self._total, self.what)


def compute_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """The type of activations and cache for the format `dtype`: float32 on a CPU, elsewhere the
    weights' own, bf16 for int8."""
    if device.type == "cpu":
        return torch.float32
    return torch.bfloat16 if dtype == "int8" else DTYPES[dtype]


def weight_bytes(config: Config, dtype: str) -> int:
    """About what all matrices of a model take in the format `dtype`."""
    return weight_count(config) * DTYPES[dtype].itemsize
