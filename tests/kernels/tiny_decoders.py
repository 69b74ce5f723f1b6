"""Tiny random decoders of every family: the native one and torch's own of the same weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline import kernels
from paceline.models.config import Config
from paceline.models.native import NativeTransformer
from paceline.models.transformer import Transformer

VOCAB = 101  # blocks of 8 and what is left over
WINDOW = 7

_LLAMA = Config(
    family="llama",
    vocab_size=VOCAB,
    hidden=72,
    layers=2,
    heads=6,
    kv_heads=2,
    head_dim=16,
    ffn=52,
    context=512,
)
FAMILIES = {
    "llama": _LLAMA,
    "llama-one-query-a-head-tied": replace(_LLAMA, heads=3, kv_heads=3, tied=True),
    "llama-one-head": replace(_LLAMA, heads=1, kv_heads=1, head_dim=40),
    "mistral-window": replace(
        _LLAMA, family="mistral", sliding_window=WINDOW, local=(True, True), heads=8
    ),
    "qwen2": replace(_LLAMA, family="qwen2", qkv_bias=True),
    "qwen3": replace(_LLAMA, family="qwen3", qk_norm=True, head_dim=8, heads=10),
    "gemma3": replace(
        _LLAMA,
        family="gemma3",
        layers=3,
        qk_norm=True,
        tied=True,
        embed_scale=math.sqrt(72),
        activation="gelu_tanh",
        post_norms=True,
        sliding_window=WINDOW,
        local=(True, True, False),
        rope_theta=1e6,
        attn_scale=24**-0.5,
    ),
}
SUPER = replace(_LLAMA, hidden=256, ffn=512, heads=4, kv_heads=2, head_dim=64)
"""What K-quants can hold: multiples of 256."""

# GGUF's number of a type, bytes in a block of 256, and where its fp16 scales are and how large.
_K_QUANTS = {
    "q4_k": (12, 144, {0: 2e-4, 2: 2e-3}),
    "q6_k": (14, 210, {208: 1e-4}),
}


class Weights:
    """Random weights for `config` in `kind`, or in the kind that `kinds` has for a name's part.

    The `Weights` of native.py and, with every matrix as the float32 values that it stands for, of
    transformer.py. `matrices[name]` may be exchanged before a model is built.
    """

    device = torch.device("cpu")
    dtype = torch.float32
    nbytes = 0

    def __init__(
        self, config: Config, kind: str = "fp16", kinds: dict[str, str] | None = None
    ) -> None:
        self.config = config
        self.native = kernels.load()
        self.rounded = False  # whether `linear` rounds its input to codes as the kernels do
        self._engine = self.native.Engine(1)
        self._random = torch.Generator().manual_seed(0)
        self._vectors: dict[str, Tensor] = {}
        self._biases: dict[str, Tensor] = {}
        self.matrices: dict[str, object] = {}
        c = config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        sizes = {"model.embed_tokens": (c.vocab_size, c.hidden)}
        if not c.tied:
            sizes["lm_head"] = (c.vocab_size, c.hidden)
        norms = {"model.norm": c.hidden}
        for i in range(c.layers):
            at = f"model.layers.{i}."
            sizes |= {
                at + "self_attn.q_proj": (queries, c.hidden),
                at + "self_attn.k_proj": (keys, c.hidden),
                at + "self_attn.v_proj": (keys, c.hidden),
                at + "self_attn.o_proj": (c.hidden, queries),
                at + "mlp.gate_proj": (c.ffn, c.hidden),
                at + "mlp.up_proj": (c.ffn, c.hidden),
                at + "mlp.down_proj": (c.hidden, c.ffn),
            }
            norms[at + "input_layernorm"] = norms[at + "post_attention_layernorm"] = c.hidden
            if c.post_norms:
                norms[at + "pre_feedforward_layernorm"] = c.hidden
                norms[at + "post_feedforward_layernorm"] = c.hidden
            if c.qk_norm:
                norms[at + "self_attn.q_norm"] = norms[at + "self_attn.k_norm"] = c.head_dim
            if c.qkv_bias:  # one of the three has none
                self._biases[at + "self_attn.q_proj.bias"] = self.draw(queries) / 2
                self._biases[at + "self_attn.v_proj.bias"] = self.draw(keys) / 2
        for name, size in norms.items():
            self._vectors[name + ".weight"] = 1 + 0.2 * self.draw(size)
        for name, size in sizes.items():
            wanted = [k for part, k in (kinds or {}).items() if part in name]
            self.matrices[name + ".weight"] = self._matrix(wanted[0] if wanted else kind, *size)

    def draw(self, *size: int) -> Tensor:
        return torch.randn(*size, generator=self._random)

    def fill(self, kind: str, values: Tensor) -> object:
        matrix = self.native.Matrix.empty(kind, *values.shape)
        matrix.fill(self._engine, 0, values.numpy())
        return matrix

    def _matrix(self, kind: str, rows: int, cols: int) -> object:
        if kind not in _K_QUANTS:
            return self.fill(kind, self.draw(rows, cols) * 1.5 * cols**-0.5)
        number, size, scales = _K_QUANTS[kind]
        seed = int(torch.randint(1 << 30, (1,), generator=self._random))
        raw = np.random.default_rng(seed).integers(0, 256, (rows, cols // 256, size), np.uint8)
        for at, scale in scales.items():
            raw[..., at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)
        return self.native.Matrix.from_gguf(self._engine, number, raw.reshape(rows, -1), cols)

    def values(self, name: str) -> Tensor:
        """The matrix `name` as the float32 values that it stands for."""
        matrix = self.matrices[name]
        return torch.from_numpy(matrix.rows(np.arange(matrix.shape[0])))

    # native.py's

    def vector(self, name: str) -> Tensor:
        return self._vectors[name]

    def matrix(self, name: str) -> object:
        return self.matrices[name]

    def bias(self, name: str) -> Tensor | None:
        return self._biases.get(name)

    # transformer.py's

    def linear(self, *names: str) -> Reference:
        parts, rounded = [], []
        for name in names:
            matrix = self.matrices[name]
            bias = self._biases.get(name.removesuffix("weight") + "bias")
            parts.append((self.values(name), bias))
            rounded.append(self.rounded and matrix.kind != "fp16")
        return Reference(parts, rounded)

    def embedding(self, name: str) -> object:
        table = self.values(name)
        return lambda ids: table[ids].clone()


class Reference:
    """A `Linear` in float32, on inputs rounded to codes where the kernels round them."""

    def __init__(self, parts: list[tuple[Tensor, Tensor | None]], rounded: list[bool]) -> None:
        self._parts = parts
        self._rounded = rounded

    def __call__(self, x: Tensor, add: Tensor | None = None) -> Tensor:
        y = torch.cat(
            [
                F.linear(as_codes(x) if rounded else x, weight, bias)
                for (weight, bias), rounded in zip(self._parts, self._rounded, strict=True)
            ],
            -1,
        )
        return y if add is None else y + add


def as_codes(x: Tensor) -> Tensor:
    """x [N, D] as its codes stand for it: 32 values share the scale max|x| / 127."""
    rows, size = x.shape
    groups = F.pad(x, (0, -size % 32)).view(rows, -1, 32)
    scale = groups.abs().amax(-1, keepdim=True) / 127
    codes = (groups / scale.where(scale > 0, 1)).round()
    return (codes * scale).view(rows, -1)[:, :size]


def native(weights: Weights, threads: int = 1, isa: str | None = None) -> NativeTransformer:
    return NativeTransformer(weights.config, weights, weights.native.Engine(threads, isa))


def reference(weights: Weights) -> Transformer:
    return Transformer(weights)


def tokens(rows: int, count: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (rows, count), generator=torch.Generator().manual_seed(seed))


def read(model: NativeTransformer | Transformer, ids: Tensor, pieces: list[int]) -> Tensor:
    """Logits of one row, read in pieces of the given lengths."""
    cache = model.new_cache(1, ids.shape[1])
    out, start = [], 0
    for n in pieces:
        out.append(model.forward(ids[:, start : start + n], [start], cache).logits)
        start += n
    return torch.cat(out, 1)
