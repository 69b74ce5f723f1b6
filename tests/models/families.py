"""Tiny random checkpoints of every family, written by transformers: what parity is against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

VOCAB = 96
WINDOW = 7  # shorter than every sequence of these tests

_SHAPE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 96,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LINEAR = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"head_dim": 16}),
    "llama-rope-llama3-tied": (
        "LlamaConfig",
        {"rope_parameters": _LLAMA3, "tie_word_embeddings": True},
    ),
    "llama-rope-linear-biases": (
        "LlamaConfig",
        {"rope_parameters": _LINEAR, "attention_bias": True, "mlp_bias": True},
    ),
    "llama-one-query-a-head": (
        "LlamaConfig",
        {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 16},
    ),
    "llama-one-head": (
        "LlamaConfig",
        {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32},
    ),
    "mistral": ("MistralConfig", {"sliding_window": None}),
    "mistral-window": ("MistralConfig", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2Config", {}),
    "qwen2-window-above": (
        "Qwen2Config",
        {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1},
    ),
    "qwen2-tied": ("Qwen2Config", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3Config", {"head_dim": 32}),
    "gemma3": (
        "Gemma3TextConfig",
        {
            "num_hidden_layers": 7,
            "head_dim": 16,
            "sliding_window": WINDOW,
            "query_pre_attn_scalar": 24,
        },
    ),
    "gemma3-rope-linear-untied": (
        "Gemma3TextConfig",
        {
            "layer_types": ["sliding_attention", "full_attention"],
            "head_dim": 16,
            "sliding_window": WINDOW,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "full_attention": {**_LINEAR, "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
}


def save(name: str, folder: Path, shard: str | None = None, **changes: Any) -> Any:
    """Write case `name` into `folder` and return transformers' own model of it.

    Every parameter is random, norms and biases too, and large enough for each to matter. `shard`
    is the size at which files are split ("20KB"); `changes` go into the config.
    """
    import transformers

    kind, extra = CASES[name]
    config = getattr(transformers, kind)(**{**_SHAPE, **extra, **changes})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    with torch.no_grad():
        for parameter_name, value in model.named_parameters():
            if "norm" in parameter_name:
                value.add_(torch.randn_like(value) * 0.2)
            elif value.dim() == 1:
                value.normal_(0, 0.5)
            else:
                value.mul_(4)
    model.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    return model.eval()


def tokens(rows: int, count: int, seed: int = 0) -> Tensor:
    return torch.randint(VOCAB, (rows, count), generator=torch.Generator().manual_seed(seed))
