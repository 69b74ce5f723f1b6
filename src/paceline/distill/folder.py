"""A small model as a folder in Hugging Face's layout: its config and its tokenizer's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.models.config import FAMILIES, Config, RopeScaling
from paceline.models.gguf_meta import read_metadata

_TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja",
    "generation_config.json",
)  # fmt: skip
_LLAMA3 = (8192, 1.0, 4.0)  # original context, low and high frequency factor: all that there are


def hf_config(config: Config) -> dict[str, Any]:
    """The `config.json` that `Config.from_hf` reads as `config` (without what norms are stored as).

    Raises PacelineError for rotary frequencies that cannot be written so.
    """
    architecture = next(name for name, family in FAMILIES.items() if family == config.family)
    gemma = config.family == "gemma3"
    raw: dict[str, Any] = {
        "architectures": [architecture],
        "model_type": {"gemma3": "gemma3_text"}.get(config.family, config.family),
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden,
        "intermediate_size": config.ffn,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.eps,
        "rope_theta": config.rope_theta,
        "tie_word_embeddings": config.tied,
        "torch_dtype": "float16",
        "hidden_activation" if gemma else "hidden_act": (
            "silu" if config.activation == "silu" else "gelu_pytorch_tanh"
        ),
    }
    if config.rope_scaling is not None:
        raw["rope_scaling"] = _scaling(config.rope_scaling)
    if config.qkv_bias and config.family != "qwen2":
        raw["attention_bias"] = True
    if gemma:
        raw["rope_local_base_freq"] = config.rope_local_theta
        raw["query_pre_attn_scalar"] = round(config.attn_scale**-2, 6)
    if config.sliding_window is not None:
        raw["sliding_window"] = config.sliding_window
        raw["use_sliding_window"] = True
        raw["layer_types"] = [
            "sliding_attention" if local else "full_attention" for local in config.local
        ]
    return raw


def _scaling(scaling: RopeScaling) -> dict[str, Any]:
    if scaling.kind == "linear":
        return {"rope_type": "linear", "factor": scaling.factor}
    factor, low, high = scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor
    context = scaling.original_context
    if scaling.kind == "factors":  # a GGUF file's: one number for each pair
        factor, (context, low, high) = max(scaling.factors), _LLAMA3
        if min(scaling.factors) != 1.0 or factor not in (8.0, 32.0):
            raise PacelineError(
                "this model's rotary frequencies cannot be written to a config.json; "
                "train on its Hugging Face folder instead of the GGUF file"
            )
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": int(context),
    }


def tokenizer_files(path: Path) -> dict[str, str]:
    """The text of the files that hold the tokenizer of the model at `path`, a folder or a GGUF
    file. Raises PacelineError where they cannot be had."""
    if path.is_dir():
        there = [path / name for name in _TOKENIZER_FILES if (path / name).is_file()]
        return {file.name: file.read_text(encoding="utf-8") for file in there}
    return _from_gguf(read_metadata(path), path)


def _from_gguf(metadata: dict[str, Any], path: Path) -> dict[str, str]:
    from tokenizers import AddedToken, decoders

    from paceline.text.gguf_vocab import byte_level_tokenizer, gguf_vocabulary
    from paceline.text.vocabulary import Kind

    if metadata.get("tokenizer.ggml.model") != "gpt2":
        raise PacelineError(
            f"{path.name} has a SentencePiece tokenizer, which is not written as tokenizer.json "
            "here; train on the model's Hugging Face folder"
        )
    vocabulary = gguf_vocabulary(metadata)
    tokens, kinds = vocabulary.tokens, vocabulary.kinds
    merges, pre = metadata["tokenizer.ggml.merges"], metadata.get("tokenizer.ggml.pre", "default")
    tokenizer = byte_level_tokenizer(tokens, merges, pre)
    tokenizer.decoder = decoders.ByteLevel()
    added = (Kind.CONTROL, Kind.USER, Kind.UNKNOWN)
    for token, kind in zip(tokens, kinds, strict=True):
        if kind in added:
            special = kind != Kind.USER
            entry = AddedToken(token, special=special, normalized=False)
            (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([entry])
    eos = list(vocabulary.eos_ids)
    config: dict[str, Any] = {"add_bos_token": vocabulary.add_bos}
    if vocabulary.bos_id is not None:
        config["bos_token"] = tokens[vocabulary.bos_id]
    if eos:
        config["eos_token"] = tokens[eos[0]]
    if vocabulary.chat_template:
        config["chat_template"] = vocabulary.chat_template
    return {
        "tokenizer.json": tokenizer.to_str(),
        "tokenizer_config.json": json.dumps(config, ensure_ascii=False, indent=2),
        "generation_config.json": json.dumps({"eos_token_id": eos}),
    }
