"""What a GGUF file's metadata says about its model."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from paceline.errors import PacelineError
from paceline.models.config import Config, RopeScaling

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
"""What `general.architecture` may say: the name of a family. Mistral's files say "llama"."""


def from_gguf(
    metadata: Mapping[str, Any],
    *,
    vocab_size: int,
    tied: bool,
    qkv_bias: bool = False,
    rope_factors: tuple[float, ...] = (),
) -> Config:
    """The config in a GGUF file's metadata; the rest is what the file's tensors tell.

    Raises PacelineError where a needed entry is missing or asks for what is not implemented.
    """
    arch = family_of(metadata, "the GGUF file")

    def get(key: str, default: Any = None) -> Any:
        value = metadata.get(f"{arch}.{key}", default)
        if value is None:
            raise PacelineError(f"the GGUF file has no {arch}.{key}; fetch it again")
        if isinstance(value, list):
            raise PacelineError(
                f"{arch}.{key} differs by layer: not implemented; use another model"
            )
        return value

    if get("expert_count", 0):
        raise PacelineError("mixtures of experts are not implemented; use a dense model")
    gemma = arch == "gemma3"
    hidden, layers = int(get("embedding_length")), int(get("block_count"))
    heads = int(get("attention.head_count"))
    head_dim = int(get("attention.key_length", hidden // heads))
    if int(get("rope.dimension_count", head_dim)) != head_dim:
        raise PacelineError("partial rotary positions are not implemented; use another model")
    if int(get("attention.value_length", head_dim)) != head_dim:
        raise PacelineError("keys and values of different sizes are not implemented")
    theta = float(get("rope.freq_base", 1e6 if gemma else 1e4))
    window = int(get("attention.sliding_window", 0)) if gemma else 0
    # Gemma 3's largest model, 62 layers, scales its scores by another size than head_dim.
    scale = hidden // heads if gemma and layers == 62 else head_dim
    return Config(
        family=arch,
        vocab_size=vocab_size,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=int(get("attention.head_count_kv", heads)),
        head_dim=head_dim,
        ffn=int(get("feed_forward_length")),
        context=int(get("context_length")),
        eps=float(get("attention.layer_norm_rms_epsilon")),
        rope_theta=theta,
        rope_local_theta=float(get("rope.freq_base_swa", 1e4)) if gemma else theta,
        rope_scaling=_scaling(get, rope_factors),
        sliding_window=window or None,
        local=tuple(bool(window) and (i + 1) % 6 != 0 for i in range(layers)),
        qkv_bias=qkv_bias,
        qk_norm=arch in ("qwen3", "gemma3"),
        tied=tied,
        embed_scale=math.sqrt(hidden) if gemma else 1.0,
        activation="gelu_tanh" if gemma else "silu",
        norm_offset=False,  # the file's norms hold 1 + w already
        post_norms=gemma,
        attn_scale=1 / math.sqrt(scale),
    )


def _scaling(get: Any, factors: tuple[float, ...]) -> RopeScaling | None:
    if factors:
        return RopeScaling("factors", factors=factors)
    kind = get("rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return RopeScaling("linear", factor=float(get("rope.scaling.factor", 1.0)))
    raise PacelineError(f"rope scaling {kind!r} is not implemented; known: none, linear, llama3")


def family_of(metadata: Mapping[str, Any], path: Any) -> str:
    arch = str(metadata.get("general.architecture"))
    if arch not in ARCHITECTURES:
        raise PacelineError(
            f"{path}: architecture {arch!r} is not implemented; known: {', '.join(ARCHITECTURES)}"
        )
    return arch
