"""GGUF files of one small layer, made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

T = GGMLQuantizationType
HIDDEN, HEADS, KV, FFN, VOCAB = 256, 4, 2, 512, 40
NAMES = {
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (HIDDEN // 2, HIDDEN),
    "attn_v": (HIDDEN // 2, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_gate": (FFN, HIDDEN),
    "ffn_up": (FFN, HIDDEN),
    "ffn_down": (HIDDEN, FFN),
}


def values(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def raw(kind: T, rows: int, columns: int) -> np.ndarray:
    """Bytes of a quantised matrix whose numbers are finite."""
    try:
        return quantize(values(7, rows, columns), kind)
    except (
        NotImplementedError
    ):  # K-quants: any bytes will do, but their float16 scales must be sane
        elements, size = GGML_QUANT_SIZES[kind]
        rng = np.random.default_rng(7)
        blocks = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
        scales = rng.uniform(0.001, 0.01, (rows, columns // elements, 2)).astype(np.float16)
        at = size - 2 if kind is T.Q6_K else 0
        width = 2 if kind is T.Q6_K else 4
        blocks[:, :, at : at + width] = scales.view(np.uint8)[:, :, :width]
        return blocks.reshape(rows, -1)


def write(
    path: Path,
    arch: str = "llama",
    kind: T | None = None,
    extra: dict[str, np.ndarray] | None = None,
    skip: tuple[str, ...] = (),
    **keys: Any,
) -> Path:
    """A one-layer file; `kind` is the type of blk.0.ffn_down."""
    writer = GGUFWriter(path, arch)
    settings = {
        "block_count": 1,
        "context_length": 128,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV,
        "attention.layer_norm_rms_epsilon": 1e-5,
    } | keys
    for key, value in settings.items():
        if value is None:
            continue
        add = {float: writer.add_float32, int: writer.add_uint32, str: writer.add_string}
        add.get(type(value), writer.add_array)(f"{arch}.{key}", value)
    tensors = {
        "token_embd.weight": values(1, VOCAB, HIDDEN),
        "output_norm.weight": values(2, HIDDEN),
        "blk.0.attn_norm.weight": values(3, HIDDEN),
        "blk.0.ffn_norm.weight": values(4, HIDDEN),
    }
    for i, (name, shape) in enumerate(NAMES.items()):
        tensors[f"blk.0.{name}.weight"] = values(10 + i, *shape)
    for name, value in (tensors | (extra or {})).items():
        if name in skip:
            continue
        if kind is not None and name == "blk.0.ffn_down.weight":
            writer.add_tensor(name, raw(kind, HIDDEN, FFN), raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
