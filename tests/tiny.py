"""Tiny checkpoints on disk: random weights, one token per byte. For what needs files."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_tokenizer(folder: Path, swap: tuple[int, int] | None = None) -> None:
    """Byte-level, 256 bytes and "<|end|>" (256); `swap` exchanges the ids of two bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    ids = {char: i for i, char in enumerate(alphabet)}
    if swap:
        a, b = alphabet[swap[0]], alphabet[swap[1]]
        ids[a], ids[b] = ids[b], ids[a]
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|end|>"])
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|end|>", "chat_template": TEMPLATE})
    )


def write_llama(
    folder: Path,
    seed: int = 0,
    layers: int = 2,
    vocab: int = 257,
    context: int = 512,
    swap: tuple[int, int] | None = None,
) -> Path:
    """A random Llama of width 32 with its tokenizer, as a Hugging Face folder."""
    write_tokenizer(folder, swap)
    width, ffn, heads, kv, dim = 32, 64, 4, 2, 16
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": width,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": dim,
        "max_position_embeddings": context,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config))
    make = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=make) * shape[-1] ** -0.5

    tensors = {
        "model.embed_tokens.weight": random(vocab, width) * 4,
        "model.norm.weight": torch.ones(width),
    }
    for i in range(layers):
        at = f"model.layers.{i}."
        tensors |= {
            at + "input_layernorm.weight": torch.ones(width),
            at + "post_attention_layernorm.weight": torch.ones(width),
            at + "self_attn.q_proj.weight": random(heads * dim, width),
            at + "self_attn.k_proj.weight": random(kv * dim, width),
            at + "self_attn.v_proj.weight": random(kv * dim, width),
            at + "self_attn.o_proj.weight": random(width, heads * dim),
            at + "mlp.gate_proj.weight": random(ffn, width),
            at + "mlp.up_proj.weight": random(ffn, width),
            at + "mlp.down_proj.weight": random(width, ffn),
        }
    save_file(tensors, folder / "model.safetensors")
    return folder
