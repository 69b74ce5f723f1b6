"""A copy of a model in fewer bits: it says almost the same, and a pass of it reads less."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline import kernels
from paceline.core.protocols import Model
from paceline.errors import PacelineError
from paceline.models.load import load, open_checkpoint
from paceline.models.native import NativeTransformer
from paceline.models.native_weights import NativeWeights
from paceline.models.packed import weight_bytes
from paceline.models.progress import Note, Progress
from paceline.models.store import packed_folder
from paceline.models.transformer import Transformer

if TYPE_CHECKING:
    from paceline.kernels._native import Matrix

FORMATS = ("int8", "int4")
"""What a copy may be in. int4 needs the native kernels; without them, and on CUDA, it is int8."""


@dataclass(frozen=True)
class Copy:
    """A `model` in the format `dtype`, and how many bytes of weights it `added` to those that were
    in memory: 0 where it is the very model that was to be copied."""

    model: NativeTransformer | Transformer
    dtype: str
    added: int


def quantised(
    target: Model,
    own: str,
    path: Path,
    wanted: str,
    folder: Path | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Copy:
    """`target`, which was loaded from `path` in the format `own`, once more in `wanted` (of
    FORMATS), from the same checkpoint and on the same device and threads.

    Nothing is there twice: in its own format the copy is `target` itself, and a native one takes
    over the target's embedding (looked up, not read) and its output layer where that is no larger
    than one of its own. Packed weights are kept in `folder` (None: Paceline's own). Raises
    PacelineError for a model of transformers, by its class, and for a checkpoint that is gone.
    """
    if not isinstance(target, NativeTransformer | Transformer):
        raise PacelineError(
            f"self:{wanted}: a {type(target).__name__}, which runs through transformers, has no "
            "copy in fewer bits; use --draft lookup or model:NAME"
        )
    native = target.device.type == "cpu" and kernels.available()
    dtype = wanted if native else "int8"
    if dtype == own:
        return Copy(target, dtype, 0)
    folder = folder or packed_folder()
    if not native:
        model, _ = load(path, dtype, str(target.device), folder, progress, note)
        assert isinstance(model, Transformer)
        return Copy(model, dtype, weight_bytes(model.config, dtype))
    checkpoint = open_checkpoint(path)
    assert checkpoint is not None  # the target came from it
    if isinstance(target, NativeTransformer):
        engine = target.engine
    else:
        engine = kernels.load().Engine(torch.get_num_threads())
    with NativeWeights(checkpoint, dtype, engine, folder, progress, note) as made:
        weights = _Sharing(made, target)
        return Copy(NativeTransformer(checkpoint.config, weights, engine), dtype, weights.added)


def same_cache(target: Model, model: Model) -> bool:
    """Whether `model` can read and write a cache that `target` made: both of one kind, shape and
    arithmetic. (One of each kind would leave entries that the other does not know of.)"""
    if isinstance(target, NativeTransformer) and isinstance(model, NativeTransformer):
        return target.config == model.config
    if isinstance(target, Transformer) and isinstance(model, Transformer):
        alike = target.dtype == model.dtype and target.device == model.device
        return alike and target.config == model.config
    return False


class _Sharing:
    """The `Weights` of a native copy: `own`, but for the tables that can be `target`'s. `added`:
    the bytes of matrices that are its own."""

    def __init__(self, own: NativeWeights, target: NativeTransformer | Transformer) -> None:
        self._own = own
        self._target = target if isinstance(target, NativeTransformer) else None
        self.added = 0

    def vector(self, name: str) -> Tensor:
        return self._own.vector(name)

    def bias(self, name: str) -> Tensor | None:
        return self._own.bias(name)

    def matrix(self, name: str) -> Matrix:
        made = self._own.matrix(name)  # shared or not: the packed file wants it
        if theirs := self._shared(name, made.nbytes):
            return theirs
        self.added += made.nbytes
        return made

    def _shared(self, name: str, limit: int) -> Matrix | None:
        """The target's own table in the place of one of `limit` bytes, if that costs nothing."""
        target = self._target
        if target is None or name not in ("model.embed_tokens.weight", "lm_head.weight"):
            return None
        if name == "lm_head.weight" or target.config.tied:  # read whole in every pass
            return target.head if target.head.nbytes <= limit else None
        return target.embedding
