"""One door to every model: a .gguf file, a folder in Hugging Face's layout, any architecture."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from paceline import kernels
from paceline.errors import PacelineError, unknown
from paceline.models import native_weights
from paceline.models.config import Checkpoint, Config
from paceline.models.formats import DTYPES
from paceline.models.gguf import GgufCheckpoint
from paceline.models.linear import fbgemm
from paceline.models.native import NativeTransformer
from paceline.models.native_weights import NativeWeights
from paceline.models.packed import PackedWeights
from paceline.models.progress import Note, Progress
from paceline.models.store import packed_folder
from paceline.models.transformer import Transformer
from paceline.models.weights import HfCheckpoint

if TYPE_CHECKING:
    from paceline.core.protocols import Model
    from paceline.kernels._native import Engine

NATIVE_ONLY = ("native", "int4")
FORMATS = (*NATIVE_ONLY, *DTYPES)
"""What `--dtype` knows besides "auto"."""


def load(
    source: str | Path | GgufCheckpoint,
    dtype: str = "auto",
    device: str = "auto",
    cache_dir: str | Path | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
    engine: Engine | None = None,
) -> tuple[Model, str]:
    """The model of `source` (the path of a .gguf file or of a folder with config.json, or a GGUF
    checkpoint), ready, and the weight format that it is in (one of FORMATS).

    `dtype`: such a name, or "auto" (see `pick_dtype`). `device`: "cpu", "cuda", "cuda:N" or "auto"
    (CUDA where there is one). `cache_dir`: where packed weights are kept; None is $PACELINE_PACKED,
    else "packed" in Paceline's cache folder. `note` hears what "auto" picked and why. `engine`:
    what the native kernels run on (None: one of its own). An architecture that this package does
    not implement itself goes through transformers.

    Raises PacelineError for a model, a dtype or a device that cannot be had, in one line.
    """
    where = pick_device(device)
    if dtype != "auto" and dtype not in FORMATS:
        raise unknown("dtype", dtype, [*FORMATS, "auto"])
    checkpoint = source if isinstance(source, GgufCheckpoint) else open_checkpoint(Path(source))
    if checkpoint is None:
        from paceline.models.hf import HfModel

        picked = dtype if dtype != "auto" else "fp32" if where.type == "cpu" else "bf16"
        return HfModel(Path(source), picked, where), picked
    choice = pick_dtype(dtype, where, checkpoint)
    if note and dtype == "auto":
        note(f"dtype {choice.dtype}: {choice.why}")
    folder = Path(cache_dir) if cache_dir else packed_folder()
    if where.type == "cpu" and choice.dtype in native_weights.FORMATS and kernels.available():
        engine = engine or kernels.load().Engine(kernels.default_threads())
        with NativeWeights(checkpoint, choice.dtype, engine, folder, progress, note) as made:
            return NativeTransformer(checkpoint.config, made, engine), choice.dtype
    with PackedWeights(checkpoint, choice.dtype, where, folder, progress, note) as weights:
        return Transformer(weights), choice.dtype


@dataclass(frozen=True)
class Choice:
    """A dtype (one of FORMATS) and why it, for people, in a few words."""

    dtype: str
    why: str


def pick_dtype(requested: str, device: torch.device, checkpoint: Checkpoint) -> Choice:
    """The format for `requested` (one of FORMATS or "auto") on `device`.

    "auto" on a CPU is native for a GGUF file and int8 for other checkpoints; without the native
    kernels it is int8 where torch has the kernel, else fp32. On CUDA it is fp16 for a checkpoint in
    fp16 and bf16 for any other. Raises PacelineError for a format that cannot be had here.
    """
    cpu, own = device.type == "cpu", isinstance(checkpoint, GgufCheckpoint)
    if requested in NATIVE_ONLY:
        if not cpu:
            raise PacelineError(f"--dtype {requested} is for CPUs; use fp16, bf16 or int8 here")
        kernels.load()  # or says why not
        if requested == "native" and not own:
            raise PacelineError("--dtype native is for GGUF files; use int8, int4 or fp16 here")
    if requested != "auto":
        return Choice(requested, "as asked")
    if cpu and kernels.available():
        if own:
            return Choice("native", "the file's own weights")
        return Choice("int8", "fast on a CPU; fp16 is closer to the checkpoint, int4 smaller")
    if cpu:
        why = kernels.why_not()
        return Choice("int8" if fbgemm() else "fp32", f"the best that torch has here: {why}")
    # A quantised file's tensors come as float32: it has no 16-bit type of its own.
    own = checkpoint.tensor("model.layers.0.mlp.down_proj.weight").dtype
    if own is torch.float16:
        return Choice("fp16", "the checkpoint's own type")
    return Choice("bf16", "the checkpoint's own" if own is torch.bfloat16 else "what GPUs do best")


def pick_device(requested: str) -> torch.device:
    """The device for "cpu", "cuda", "cuda:N" or "auto". Raises PacelineError if it is not there."""
    if requested == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, index = requested.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdecimal()):
        raise unknown("device", requested, ["auto", "cpu", "cuda"])
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            raise PacelineError(f"device {requested!r} is not there ({count} GPUs); use cpu")
    return torch.device(requested)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without garbage collection. Loading makes some hundred thousand objects that stay; to look
    for garbage among those and all of torch's takes a tenth of a second each time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def open_checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint at `path` (a .gguf file or a folder with config.json); None for an
    architecture that is not implemented here. Raises PacelineError for one that cannot be read."""
    if path.is_file():
        return GgufCheckpoint(path)
    if not path.exists():
        raise PacelineError(f"no such file or folder: {path}")
    try:
        raw = json.loads((path / "config.json").read_text(encoding="utf-8"))
        Config.from_hf(raw)
    except (OSError, ValueError) as error:
        # An unreadable config is for HfCheckpoint to report; a readable one is another kind's.
        if isinstance(error, PacelineError):
            return None
    return HfCheckpoint(path)
