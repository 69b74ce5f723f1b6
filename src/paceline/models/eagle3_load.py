"""An EAGLE-3 head out of its folder, in either layout, for a target that it fits."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.errors import PacelineError
from paceline.models.eagle3 import Eagle3, Product
from paceline.models.eagle3_config import Eagle3Config, default_taps
from paceline.models.head_files import head_config, head_tensors
from paceline.models.native import NativeTransformer, joined
from paceline.models.native_weights import NativeWeights
from paceline.models.packed import PackedWeights
from paceline.models.store import packed_folder
from paceline.models.transformer import Transformer

if TYPE_CHECKING:
    from paceline.core.protocols import Model
    from paceline.kernels._native import Engine, Matrix
    from paceline.models.config import Config
    from paceline.models.progress import Note, Progress


def load_eagle3(
    folder: Path,
    name: str,
    target: Model,
    target_name: str,
    dtype: str = "int8",
    *,
    cache_dir: Path | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Eagle3:
    """The head in `folder`, which the user calls `name`, for `target`, called `target_name`.

    Beside a native target its matrices are in `dtype` ("int8", "int4" or "fp16") on the native
    kernels, on the target's threads; else in a `dtype` of `paceline.models.formats`, on the
    target's device. Packed weights are kept in `cache_dir` (None: Paceline's own). The embedding is
    the target's unless the head brings one that it has trained. Raises PacelineError, in one line,
    for files that cannot be read, a head that was made for another target, or a target whose states
    cannot be had.
    """
    if not isinstance(target, NativeTransformer | Transformer):
        raise PacelineError(
            f"{target_name} runs through transformers, where no head can look inside; "
            "use --draft lookup or model:NAME"
        )
    config = Eagle3Config.read(head_config(folder, name), name)
    config.made_for.check(name, target_name, target.config)
    taps = config.taps or default_taps(target.config.layers)
    if taps[-1] > target.config.layers:
        raise PacelineError(
            f"{name} reads layer {taps[-1]} and {target_name} has {target.config.layers}: "
            "it was made for another model"
        )
    config = replace(config, taps=taps)
    tensors = canonical(head_tensors(folder, name))
    ids = _ids(config, tensors, name)
    if ids is not None and not 0 <= int(ids.min()) <= int(ids.max()) < target.vocab_size:
        raise PacelineError(
            f"{name} drafts tokens that {target_name} has not (of {target.vocab_size}): "
            "it was made for another model"
        )
    _check(config, tensors, name)
    own = "embed_tokens.weight" in tensors and (
        config.trained_embedding or config.layer.hidden != target.config.hidden
    )
    if not own and config.layer.hidden != target.config.hidden:
        raise PacelineError(f"{name} has no embed_tokens.weight of its own width; get it again")
    kept = Tensors(config, tensors, own, _fingerprint(folder))
    where = cache_dir or packed_folder()
    if isinstance(target, NativeTransformer):
        with NativeWeights(kept, dtype, target.engine, where, progress, note) as weights:
            parts = NativeParts(weights, kept, target.engine)
            embed = parts.embedding("embed_tokens") if own else parts.rows(target.embedding)
            return Eagle3(config, parts, embed, ids)
    with PackedWeights(kept, dtype, target.device, where, progress, note) as packed:
        parts = TorchParts(packed, kept)
        return Eagle3(config, parts, parts.embedding("embed_tokens") if own else target.embed, ids)


def canonical(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of either layout under the same names: "layer.…" for those of the layer."""

    def called(name: str) -> str:
        name = name.removeprefix("model.")
        for prefix in ("midlayer.", "layers.0."):
            if name.startswith(prefix):
                return "layer." + name.removeprefix(prefix)
        return name

    return {called(name): tensor for name, tensor in tensors.items()}


def _ids(config: Eagle3Config, tensors: dict[str, Tensor], name: str) -> Tensor | None:
    """The target's id of each of the head's tokens; None: they are the same."""
    size = len(tensors["lm_head.weight"]) if "lm_head.weight" in tensors else None
    if "d2t" in tensors:
        offsets = tensors["d2t"].long()
        return torch.arange(len(offsets)) + offsets
    if "t2d" in tensors:
        return tensors["t2d"].bool().nonzero()[:, 0]
    if size is not None and size != config.layer.vocab_size:
        raise PacelineError(f"{name} has {size} tokens and no d2t that says which; get it again")
    return None


def _check(config: Eagle3Config, tensors: dict[str, Tensor], name: str) -> None:
    """All matrices are there, in the sizes that the config says."""
    c = config.layer
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
    assert config.taps is not None
    known = "d2t" if "d2t" in tensors else "lm_head.weight"
    rows = len(tensors[known]) if known in tensors else config.draft_vocab
    sizes: dict[str, tuple[int | None, int]] = {
        "fc.weight": (c.hidden, len(config.taps) * config.features),
        "layer.self_attn.q_proj.weight": (queries, 2 * c.hidden),
        "layer.self_attn.k_proj.weight": (keys, 2 * c.hidden),
        "layer.self_attn.v_proj.weight": (keys, 2 * c.hidden),
        "layer.self_attn.o_proj.weight": (c.hidden, queries),
        "layer.mlp.gate_proj.weight": (c.ffn, c.hidden),
        "layer.mlp.up_proj.weight": (c.ffn, c.hidden),
        "layer.mlp.down_proj.weight": (c.hidden, c.ffn),
        "lm_head.weight": (rows, c.hidden),
    }
    for key, wanted in sizes.items():
        if key not in tensors:
            raise PacelineError(f"{name} has no tensor {key}; is it an EAGLE-3 head?")
        if tuple(tensors[key].shape) != wanted:
            raise PacelineError(
                f"{name}: {key} is {[*tensors[key].shape]} where its config makes it {[*wanted]}; "
                "it is no EAGLE-3 head for this target, or damaged"
            )


def _fingerprint(folder: Path) -> str:
    """Names the bytes cheaply: the files, their sizes and times."""
    digest = hashlib.sha256((folder / "config.json").read_bytes())
    for path in sorted([*folder.glob("*.safetensors"), *folder.glob("*.bin")]):
        state = path.stat()
        digest.update(f"{path.name} {state.st_size} {state.st_mtime_ns} ".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Tensors:
    """A head's tensors as a `paceline.models.config.Checkpoint`."""

    head: Eagle3Config
    tensors: dict[str, Tensor]
    own_embedding: bool
    fingerprint: str

    @property
    def config(self) -> Config:
        """Sizes that say about how much there is to pack."""
        vocab = len(self.tensors["lm_head.weight"])
        return replace(self.head.layer, vocab_size=vocab, tied=not self.own_embedding)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise PacelineError(f"the head has no tensor {name}; get it again")
        return self.tensors[name]


class NativeParts:
    """`Parts` on the native kernels."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, weights: NativeWeights, kept: Tensors, engine: Engine) -> None:
        self._weights, self._kept, self._engine = weights, kept, engine

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def vector(self, name: str) -> Tensor:
        return self._weights.vector(name)

    def linear(self, *names: str) -> Product:
        product, engine = joined(self._weights, *names), self._engine
        return lambda x: torch.from_numpy(product(engine, x.contiguous().numpy()))

    def embedding(self, name: str) -> Product:
        return self.rows(self._weights.matrix(f"{name}.weight"))

    @staticmethod
    def rows(matrix: Matrix) -> Product:
        """ids [N] -> those rows of a native matrix."""
        return lambda ids: torch.from_numpy(matrix.rows(ids.contiguous().numpy()))


class TorchParts:
    """`Parts` in torch, on any device."""

    def __init__(self, weights: PackedWeights, kept: Tensors) -> None:
        self._weights, self._kept = weights, kept
        self.device, self.dtype = weights.device, weights.dtype

    def __contains__(self, name: str) -> bool:
        return name in self._kept

    def vector(self, name: str) -> Tensor:
        return self._weights.vector(name)

    def linear(self, *names: str) -> Product:
        return self._weights.linear(*(f"{name}.weight" for name in names))

    def embedding(self, name: str) -> Product:
        return self._weights.embedding(f"{name}.weight")
