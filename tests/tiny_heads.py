"""Tiny random EAGLE-3 heads on disk, in both layouts, and what they compute, written out."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

HIDDEN, HEADS, SHARED, DIM, FFN, VOCAB = 32, 4, 2, 16, 64, 257
DRAFT_IDS = [*range(0, 60, 2), *range(97, 123), 200, 256]
TAPS = (2, 4, 5)  # the default of a target of eight layers


def tensors(seed: int = 0, taps: int = 3) -> dict[str, Tensor]:
    """A head's weights under plain names."""
    make = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=make) * shape[-1] ** -0.5

    def norm(width: int = HIDDEN) -> Tensor:
        return 1 + 0.2 * torch.randn(width, generator=make)

    n = len(DRAFT_IDS)
    known = torch.zeros(VOCAB, dtype=torch.bool)
    known[DRAFT_IDS] = True
    at = "midlayer."
    return {
        "fc.weight": random(HIDDEN, taps * HIDDEN) * 2,
        at + "input_layernorm.weight": norm(),
        at + "hidden_norm.weight": norm(),
        at + "post_attention_layernorm.weight": norm(),
        at + "self_attn.q_proj.weight": random(HEADS * DIM, 2 * HIDDEN) * 2,
        at + "self_attn.k_proj.weight": random(SHARED * DIM, 2 * HIDDEN) * 2,
        at + "self_attn.v_proj.weight": random(SHARED * DIM, 2 * HIDDEN) * 2,
        at + "self_attn.o_proj.weight": random(HIDDEN, HEADS * DIM),
        at + "mlp.gate_proj.weight": random(FFN, HIDDEN),
        at + "mlp.up_proj.weight": random(FFN, HIDDEN),
        at + "mlp.down_proj.weight": random(HIDDEN, FFN),
        "norm.weight": norm(),
        "lm_head.weight": random(n, HIDDEN) * 2,
        "d2t": torch.tensor([id - i for i, id in enumerate(DRAFT_IDS)]),
        "t2d": known,
    }


_SIZES = {
    "hidden_size": HIDDEN,
    "intermediate_size": FFN,
    "num_attention_heads": HEADS,
    "num_key_value_heads": SHARED,
    "head_dim": DIM,
    "num_hidden_layers": 1,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "max_position_embeddings": 64,
}


def write_head(
    folder: Path,
    style: str = "plain",
    seed: int = 0,
    *,
    file: str = "model.safetensors",
    weights: dict[str, Tensor] | None = None,
    **config: Any,
) -> Path:
    """A random head for `tiny.write_llama(layers=8)`, in a style ("plain" or "speculators")."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = tensors(seed) if weights is None else weights
    if style == "plain":
        raw: dict[str, Any] = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": len(DRAFT_IDS),
            **_SIZES,
        }
    else:
        weights = {key.replace("midlayer.", "layers.0."): t for key, t in weights.items()}
        raw = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "draft_vocab_size": len(DRAFT_IDS),
            "norm_before_residual": False,
            "transformer_layer_config": {"model_type": "llama", **_SIZES},
        }
    (folder / "config.json").write_text(json.dumps(raw | config))
    if file.endswith(".bin"):
        torch.save(weights, folder / file)
    else:
        save_file(weights, folder / file)
    return folder


def naive(
    weights: dict[str, Tensor],
    table: Tensor,
    features: Tensor,
    tokens: Sequence[int],
    own: int = 0,
    *,
    before_residual: bool = False,
    norm_output: bool = False,
) -> Tensor:
    """Logits [own + 1, V'] of an uncached pass, one formula after the other.

    `features` [n, 3 D] of positions 0..n-1; `tokens`: the n + `own` tokens that follow each of
    them and each of the `own` positions behind, which have nothing but the head's own states.
    """

    def w(name: str) -> Tensor:
        return weights[name if name in weights else f"midlayer.{name}"]

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * w(f"{name}.weight")

    def rotate(x: Tensor) -> Tensor:  # [T, heads, DIM]
        out = torch.empty_like(x)
        for t in range(len(x)):
            for i in range(DIM // 2):
                angle = t * 10000.0 ** (-2 * i / DIM)
                a, b = x[t, :, i], x[t, :, i + DIM // 2]
                out[t, :, i] = a * math.cos(angle) - b * math.sin(angle)
                out[t, :, i + DIM // 2] = b * math.cos(angle) + a * math.sin(angle)
        return out

    known = F.linear(features, w("fc.weight"))
    out: list[Tensor] = []
    for _ in range(own + 1):
        n = len(known)
        e = norm(table[torch.tensor(tokens[:n])], "input_layernorm")
        h = norm(known, "hidden_norm")
        x = torch.cat([e, h], -1)
        q = rotate(F.linear(x, w("self_attn.q_proj.weight")).view(n, HEADS, DIM))
        k = rotate(F.linear(x, w("self_attn.k_proj.weight")).view(n, SHARED, DIM))
        v = F.linear(x, w("self_attn.v_proj.weight")).view(n, SHARED, DIM)
        seen = torch.zeros(n, HEADS, DIM)
        for head in range(HEADS):
            group = head // (HEADS // SHARED)
            scores = q[:, head] @ k[:, group].T / math.sqrt(DIM)
            scores = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
            seen[:, head] = scores.softmax(-1) @ v[:, group]
        y = F.linear(seen.flatten(1), w("self_attn.o_proj.weight"))
        y = y + (h if before_residual else known)
        z = norm(y, "post_attention_layernorm")
        gate, up = (F.linear(z, w(f"mlp.{part}_proj.weight")) for part in ("gate", "up"))
        y = y + F.linear(F.silu(gate) * up, w("mlp.down_proj.weight"))
        last = norm(y[-1:], "norm")
        out.append(F.linear(last[0], w("lm_head.weight")))
        known = torch.cat([known, last if norm_output else y[-1:]])
    return torch.stack(out)
