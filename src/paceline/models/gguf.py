"""Checkpoints in a GGUF file: llama (also Mistral), qwen2, qwen3 and gemma3.

The file is memory-mapped, and a tensor is dequantised a few rows at a time, as they are asked for.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.errors import PacelineError
from paceline.models.gguf_config import family_of, from_gguf
from paceline.models.gguf_meta import TensorInfo, read_header
from paceline.models.workers import blocks

if TYPE_CHECKING:
    import numpy as np

# The format's tensor types: number -> name, elements in a block, bytes in a block.
_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}
_FLOATS = {0: torch.float32, 1: torch.float16, 30: torch.bfloat16}
_UNHELD = (0, 30)  # F32 and BF16: no kind of the native kernels holds all of their values

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_GEMMA = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_ROPE_FACTORS = "rope_freqs.weight"


class GgufCheckpoint:
    """A `Checkpoint` over one GGUF file. `metadata`: what the file says besides its tensors.

    Raises PacelineError where the file is missing, truncated or in several parts, or where its
    architecture, a tensor or a tensor's type is none that is implemented (by its name).
    """

    def __init__(self, path: str | Path) -> None:
        import numpy as np

        self.path = Path(path)
        header = read_header(self.path)
        metadata = self.metadata = header.metadata
        if int(metadata.get("split.count", 1)) > 1:
            raise PacelineError(
                f"{self.path} is one of several parts; merge them first (llama-gguf-split --merge)"
            )
        family = family_of(metadata, self.path)
        self._check(header.tensors)
        self._data = np.memmap(self.path, np.uint8, "r")
        factors = header.tensors.get(_ROPE_FACTORS)
        vocab = header.tensors.get("token_embd.weight")
        if vocab is None:
            raise PacelineError(f"{self.path} has no tensor 'token_embd.weight'; fetch it again")
        self.config = from_gguf(
            metadata,
            vocab_size=vocab.shape[0],
            tied="output.weight" not in header.tensors,
            qkv_bias="blk.0.attn_q.bias" in header.tensors,
            rope_factors=tuple(Matrix(self._data, factors)[:].flatten().tolist())
            if factors
            else (),
        )
        layer = _LAYER | (_LAYER_GEMMA if family == "gemma3" else {})
        names = {name: _canonical(name, layer) for name in header.tensors if name != _ROPE_FACTORS}
        for name, canonical in names.items():
            if canonical is None:
                raise PacelineError(
                    f"{self.path} has a tensor {name!r} that no {family} model here uses; "
                    "use another file of this model"
                )
        self._tensors = {names[name]: header.tensors[name] for name in names}
        self.fingerprint = self._fingerprint(header.tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def tensor(self, name: str) -> Tensor:
        """The tensor under its canonical name: its own dtype where it is a float, else float32."""
        matrix = self.matrix(name)
        value = torch.empty(matrix.shape, dtype=matrix.dtype)
        for rows in blocks(matrix.shape):
            value[rows] = matrix[rows]
        return value.view(self._tensors[name].shape)

    def matrix(self, name: str) -> Matrix:
        """The same tensor, to be read some rows at a time; a vector is a matrix of one column."""
        if name not in self._tensors:
            raise PacelineError(f"{self.path} has no tensor for {name!r}; fetch it again")
        order = None
        if self.config.family == "llama" and (".q_proj." in name or ".k_proj." in name):
            heads = self.config.heads if ".q_proj." in name else self.config.kv_heads
            order = _halves(self._tensors[name].shape[0], heads)
        return Matrix(self._data, self._tensors[name], order)

    def _check(self, tensors: Mapping[str, TensorInfo]) -> None:
        size = self.path.stat().st_size
        for info in tensors.values():
            if info.ggml_type not in _TYPES:
                raise PacelineError(
                    f"{self.path}: tensor {info.name!r} has type {_type_name(info.ggml_type)}, "
                    f"which is not supported; known: {', '.join(t[0] for t in _TYPES.values())}"
                )
            kind, elements, _ = _TYPES[info.ggml_type]
            fits = info.shape[-1:] and info.shape[-1] % elements == 0 and math.prod(info.shape)
            if not fits or len(info.shape) > 2 or (len(info.shape) == 1 and elements > 1):
                raise PacelineError(
                    f"{self.path}: tensor {info.name!r} has shape {info.shape}, which {kind} "
                    "cannot hold; fetch the file again"
                )
            if info.offset + _size(info) > size:
                raise PacelineError(
                    f"{self.path} is cut short ({size:,} bytes): delete it and fetch it again"
                )

    def _fingerprint(self, tensors: Mapping[str, TensorInfo]) -> str:
        """Names the bytes cheaply: everything before the tensors, and the ends of each tensor."""
        first = min(info.offset for info in tensors.values())
        digest = hashlib.sha256(self._data[:first])
        digest.update(str(self._data.size).encode())
        for info in tensors.values():
            end = info.offset + _size(info)
            digest.update(self._data[info.offset : min(info.offset + 512, end)])
            digest.update(self._data[max(info.offset, end - 512) : end])
        return digest.hexdigest()


def _canonical(name: str, layer: Mapping[str, str]) -> str | None:
    """Hugging Face's name for a GGUF tensor; None where there is none."""
    if name in _TOP:
        return _TOP[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in layer:
        return None
    return f"model.layers.{match[1]}.{layer[match[2]]}.{match[3]}"


def _halves(rows: int, heads: int) -> np.ndarray:
    """Where in a llama file each row of a query or key matrix lies. The file keeps the two numbers
    that rotate together side by side; we keep them half a head apart, as Hugging Face does."""
    import numpy as np

    return np.arange(rows, dtype=np.int32).reshape(heads, -1, 2).swapaxes(1, 2).reshape(-1)


def _size(info: TensorInfo) -> int:
    _, elements, size = _TYPES[info.ggml_type]
    return math.prod(info.shape) // elements * size


def _type_name(number: int) -> str:
    from gguf import GGMLQuantizationType

    try:
        return GGMLQuantizationType(number).name
    except ValueError:
        return f"number {number}"


class Matrix:
    """One tensor of a file: `matrix[a:b]` are its rows a..b-1 [b-a, columns], read and dequantised
    when asked for; `dtype` is its own, or float32 where it is quantised.

    `raw` [rows, bytes]: the file's blocks, of type number `ggml_type`. `order`: row i lies where
    the file has row order[i]; None: as they come. `native`: whether the kernels hold its values
    without loss.
    """

    def __init__(self, data: np.ndarray, info: TensorInfo, order: np.ndarray | None = None) -> None:
        columns = info.shape[1] if len(info.shape) > 1 else 1
        self.shape = (info.shape[0], columns)
        self.dtype = _FLOATS.get(info.ggml_type, torch.float32)
        self.ggml_type = info.ggml_type
        self.native = info.ggml_type not in _UNHELD
        self.raw = data[info.offset : info.offset + _size(info)].reshape(info.shape[0], -1)
        self.order = order

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Tensor:
        import numpy as np

        raw = self.raw[rows if self.order is None else self.order[rows]]
        if self.ggml_type in _FLOATS:
            return torch.from_numpy(np.array(raw)).view(self.dtype)
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        with np.errstate(all="ignore"):  # scales that are no numbers: the file's fault, not ours
            return torch.from_numpy(dequantize(raw, GGMLQuantizationType(self.ggml_type)))
