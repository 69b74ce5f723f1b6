"""What a checkpoint says about its model, in one vocabulary for every file format."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from torch import Tensor

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Gemma3ForCausalLM": "gemma3",
}
"""Hugging Face's architecture names and the family that reads each."""

_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


@dataclass(frozen=True)
class RopeScaling:
    """How rotary frequencies are stretched beyond the context a model was first trained for.

    `kind`: "linear" (every frequency / `factor`), "llama3" (long waves only, see `rope.py`) or
    "factors" (frequency i / `factors[i]`, as GGUF files store it; head_dim / 2 numbers).
    """

    kind: str
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class Config:
    """A decoder-only transformer of one of the families this package implements.

    `local[i]`: layer i sees only the last `sliding_window` positions and rotates with
    `rope_local_theta`, unscaled. `norm_offset`: the checkpoint stores w where the norm multiplies
    by 1 + w. `tied`: the output layer is the embedding. `attn_scale` multiplies the scores.
    """

    family: str
    vocab_size: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    context: int
    eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_local_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    sliding_window: int | None = None
    local: tuple[bool, ...] = ()
    qkv_bias: bool = False
    qk_norm: bool = False
    tied: bool = False
    embed_scale: float = 1.0
    activation: str = "silu"
    norm_offset: bool = False
    post_norms: bool = False
    attn_scale: float = 0.0

    def __post_init__(self) -> None:
        if not self.local:
            object.__setattr__(self, "local", (False,) * self.layers)
        if not self.attn_scale:
            object.__setattr__(self, "attn_scale", 1 / math.sqrt(self.head_dim))
        if len(self.local) != self.layers:
            raise PacelineError(
                f"the config names {len(self.local)} layer types for {self.layers} layers; fix it"
            )
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise PacelineError(
                f"{self.heads} heads cannot share {self.kv_heads} key/value heads; fix the config"
            )
        if self.head_dim % 2:
            raise PacelineError(f"head_dim {self.head_dim} is odd: rotary positions need pairs")

    @staticmethod
    def from_hf(raw: Mapping[str, Any]) -> Config:
        """Read the dictionary of a `config.json`.

        Raises PacelineError where the architecture, the rope kind, the activation or another
        feature is none that is implemented (by its name), or where a needed entry is missing.
        """
        try:
            return _from_hf(raw)
        except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError) as e:
            if isinstance(e, PacelineError):
                raise
            what = f"has no {e}" if isinstance(e, KeyError) else f"makes no sense ({e})"
            raise PacelineError(f"config.json {what}; download the model again") from None


def weight_count(config: Config) -> int:
    """How many weights all matrices of a model have."""
    attention = config.hidden * config.head_dim * 2 * (config.heads + config.kv_heads)
    layer = attention + 3 * config.hidden * config.ffn
    tables = (1 if config.tied else 2) * config.vocab_size * config.hidden
    return config.layers * layer + tables


class Checkpoint(Protocol):
    """A model's weights in a file or a folder, read one tensor at a time.

    Names are Hugging Face's ("model.layers.0.self_attn.q_proj.weight", ...), norm weights are what
    the norm multiplies by. `fingerprint` names the file's bytes and not its place.
    """

    config: Config
    fingerprint: str

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str) -> Tensor:
        """The tensor in its own dtype or float32; matrices are [out, in]."""
        ...


def _from_hf(raw: Mapping[str, Any]) -> Config:
    family = _family(raw)
    gemma = family == "gemma3"
    layers, heads, hidden = (
        int(raw[k]) for k in ("num_hidden_layers", "num_attention_heads", "hidden_size")
    )
    head_dim = int(raw.get("head_dim") or hidden // heads)
    if quantized := raw.get("quantization_config"):
        method = quantized.get("quant_method", "unnamed")
        raise PacelineError(
            f"quantisation {method!r} is not implemented; use the model's 16-bit files"
        )
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if raw.get(key):
            raise PacelineError(f"{key} is not implemented; use a model without it")
    if raw.get("use_bidirectional_attention"):
        raise PacelineError("use_bidirectional_attention is not implemented; use a causal model")
    name = raw.get("hidden_activation" if gemma else "hidden_act") or (
        "gelu_pytorch_tanh" if gemma else "silu"
    )
    if name not in _ACTIVATIONS:
        raise PacelineError(f"activation {name!r} is not implemented; known: {[*_ACTIVATIONS]}")
    window, local = _windows(raw, family, layers)
    theta, scaling, local_theta = _rope(raw, gemma)
    scalar = raw.get("query_pre_attn_scalar", 256) if gemma else head_dim
    return Config(
        family=family,
        vocab_size=int(raw["vocab_size"]),
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        ffn=int(raw["intermediate_size"]),
        context=int(raw.get("max_position_embeddings") or 2048),
        eps=float(raw.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_local_theta=local_theta,
        rope_scaling=scaling,
        sliding_window=window,
        local=local,
        qkv_bias=family == "qwen2" or bool(raw.get("attention_bias")),
        qk_norm=family in ("qwen3", "gemma3"),
        tied=bool(raw.get("tie_word_embeddings", gemma)),
        embed_scale=math.sqrt(hidden) if gemma else 1.0,
        activation=_ACTIVATIONS[name],
        norm_offset=gemma,
        post_norms=gemma,
        attn_scale=1 / math.sqrt(scalar),
    )


def _family(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures") or []
    for name in names:
        if name in FAMILIES:
            return FAMILIES[name]
    name = ", ".join(names) or str(raw.get("model_type"))
    raise PacelineError(f"architecture {name!r} is not implemented; known: {', '.join(FAMILIES)}")


def _windows(
    raw: Mapping[str, Any], family: str, layers: int
) -> tuple[int | None, tuple[bool, ...]]:
    """The window and which layers it binds (Mistral: all; Gemma: all but every sixth)."""
    window = raw.get("sliding_window")
    if family == "llama" or (family.startswith("qwen") and not raw.get("use_sliding_window")):
        window = None
    if not window:
        return None, (False,) * layers
    kinds = raw.get("layer_types") if family != "mistral" else None
    if kinds:
        odd = {*kinds} - {"sliding_attention", "full_attention"}
        if odd:
            raise PacelineError(f"layer type {min(odd)!r} is not implemented; use another model")
        return int(window), tuple(kind == "sliding_attention" for kind in kinds)
    if family == "mistral":
        return int(window), (True,) * layers
    if family == "gemma3":
        every = int(raw.get("sliding_window_pattern", 6))
        return int(window), tuple((i + 1) % every != 0 for i in range(layers))
    first = int(raw.get("max_window_layers", layers))
    return int(window), tuple(i >= first for i in range(layers))


def _rope(raw: Mapping[str, Any], gemma: bool) -> tuple[float, RopeScaling | None, float]:
    """Theta and scaling of global layers, theta of local ones, from either of the two spellings."""
    base = 1_000_000.0 if gemma else 10_000.0
    theta = float(raw.get("rope_theta") or base)
    local = float(raw.get("rope_local_base_freq") or 10_000.0) if gemma else theta
    entry = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if gemma and "full_attention" in entry:
        near = entry.get("sliding_attention") or {}
        local = float(near.get("rope_theta") or local)
        if _kind(near) != "default":
            raise PacelineError(f"rope kind {_kind(near)!r} on local layers is not implemented")
        entry = entry["full_attention"]
    theta = float(entry.get("rope_theta") or theta)
    if not gemma:
        local = theta
    if float(entry.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise PacelineError("partial_rotary_factor is not implemented; use a model without it")
    kind = _kind(entry)
    if kind == "default":
        return theta, None, local
    if kind == "linear":
        return theta, RopeScaling("linear", factor=float(entry["factor"])), local
    if kind == "llama3":
        return (
            theta,
            RopeScaling(
                "llama3",
                factor=float(entry["factor"]),
                low_freq_factor=float(entry["low_freq_factor"]),
                high_freq_factor=float(entry["high_freq_factor"]),
                original_context=int(
                    entry.get("original_max_position_embeddings") or raw["max_position_embeddings"]
                ),
            ),
            local,
        )
    raise PacelineError(f"rope kind {kind!r} is not implemented; known: default, linear, llama3")


def _kind(entry: Mapping[str, Any]) -> str:
    return str(entry.get("rope_type") or entry.get("type") or "default")
