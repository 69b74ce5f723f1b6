"""GGUF checkpoints: every tensor type, every family's names, and what is refused in one line."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from models.gguf_files import FFN, HEADS, HIDDEN, KV, NAMES, VOCAB, T, raw, values, write
from paceline.errors import PacelineError
from paceline.models.gguf import GgufCheckpoint

DOWN = "model.layers.0.mlp.down_proj.weight"
QUANTISED = [T.Q8_0, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q4_K, T.Q5_K, T.Q6_K]


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_a_quantised_tensor_is_what_the_reference_makes_of_its_bytes(tmp_path, kind):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf", kind=kind))
    expected = dequantize(raw(kind, HIDDEN, FFN), kind)
    assert np.isfinite(expected).all()
    np.testing.assert_array_equal(checkpoint.tensor(DOWN).numpy(), expected)
    np.testing.assert_array_equal(checkpoint.matrix(DOWN)[5:9].numpy(), expected[5:9])


@pytest.mark.parametrize(
    ("kind", "dtype"), [(T.F32, torch.float32), (T.F16, torch.float16), (T.BF16, torch.bfloat16)]
)
def test_floats_keep_their_type(tmp_path, kind, dtype):
    found = GgufCheckpoint(write(tmp_path / "m.gguf", kind=kind)).tensor(DOWN)
    assert found.dtype is dtype
    assert torch.equal(found, torch.from_numpy(values(7, HIDDEN, FFN)).to(dtype))


def test_every_name_has_its_tensor_and_llama_s_queries_are_put_in_order(tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf"))
    layer = "model.layers.0."
    plain = {
        "model.embed_tokens.weight": values(1, VOCAB, HIDDEN),
        "model.norm.weight": values(2, HIDDEN),
        layer + "input_layernorm.weight": values(3, HIDDEN),
        layer + "post_attention_layernorm.weight": values(4, HIDDEN),
        layer + "self_attn.v_proj.weight": values(12, *NAMES["attn_v"]),
        layer + "self_attn.o_proj.weight": values(13, *NAMES["attn_output"]),
        layer + "mlp.gate_proj.weight": values(14, *NAMES["ffn_gate"]),
        layer + "mlp.up_proj.weight": values(15, *NAMES["ffn_up"]),
        DOWN: values(16, *NAMES["ffn_down"]),
    }
    for name, expected in plain.items():
        assert name in checkpoint
        np.testing.assert_array_equal(checkpoint.tensor(name).numpy(), expected, err_msg=name)
    # As the converter does it: rows i and i + half of a head become neighbours.
    for name, seed, heads in (("q", 10, HEADS), ("k", 11, KV)):
        mixed = values(seed, *NAMES[f"attn_{name}"])
        found = checkpoint.tensor(f"{layer}self_attn.{name}_proj.weight").numpy()
        again = found.reshape(heads, 2, -1, HIDDEN).swapaxes(1, 2).reshape(mixed.shape)
        np.testing.assert_array_equal(again, mixed)
        assert not np.array_equal(found, mixed)
    assert "lm_head.weight" not in checkpoint
    assert checkpoint.config.tied


def test_other_families_keep_their_rows_and_have_their_own_names(tmp_path):
    biases = {"blk.0.attn_q.bias": values(20, HIDDEN), "output.weight": values(21, VOCAB, HIDDEN)}
    qwen = GgufCheckpoint(write(tmp_path / "q.gguf", "qwen2", extra=biases))
    layer = "model.layers.0."
    q = qwen.tensor(layer + "self_attn.q_proj.weight").numpy()
    np.testing.assert_array_equal(q, values(10, HIDDEN, HIDDEN))
    bias = qwen.tensor(layer + "self_attn.q_proj.bias").numpy()
    np.testing.assert_array_equal(bias, values(20, HIDDEN))
    assert (qwen.config.family, qwen.config.tied, qwen.config.qkv_bias) == ("qwen2", False, True)

    norms = {
        "blk.0.attn_q_norm.weight": values(22, 64),
        "blk.0.post_attention_norm.weight": values(23, HIDDEN),
        "blk.0.post_ffw_norm.weight": values(24, HIDDEN),
    }
    gemma = GgufCheckpoint(
        write(tmp_path / "g.gguf", "gemma3", extra=norms, **{"attention.sliding_window": 32})
    )
    for name, seed in {
        "self_attn.q_norm": 22,
        "post_attention_layernorm": 23,
        "post_feedforward_layernorm": 24,
        "pre_feedforward_layernorm": 4,
    }.items():
        found = gemma.tensor(f"{layer}{name}.weight").numpy()
        size = 64 if "q_norm" in name else HIDDEN
        np.testing.assert_array_equal(found, values(seed, size), err_msg=name)
    config = gemma.config
    assert (config.sliding_window, config.local, config.embed_scale) == (32, (True,), 16.0)
    assert (config.norm_offset, config.post_norms, config.qk_norm) == (False, True, True)
    assert (config.rope_theta, config.rope_local_theta) == (1e6, 1e4)


def test_rope_scaling_is_read(tmp_path):
    factors = {"rope_freqs.weight": np.linspace(1, 8, 32, dtype=np.float32)}
    scaled = GgufCheckpoint(write(tmp_path / "a.gguf", extra=factors)).config.rope_scaling
    assert scaled is not None
    assert scaled.kind == "factors"
    np.testing.assert_array_equal(np.float32(scaled.factors), factors["rope_freqs.weight"])
    keys = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
    scaled = GgufCheckpoint(write(tmp_path / "b.gguf", **keys)).config.rope_scaling
    assert (scaled.kind, scaled.factor) == ("linear", 4.0)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("architecture 'mamba' is not implemented", {"arch": "mamba"}),
        ("'blk.0.ssm_in.weight' that", {"extra": {"blk.0.ssm_in.weight": values(1, 2, 2)}}),
        ("no tensor 'token_embd.weight'", {"skip": ("token_embd.weight",)}),
        ("type Q2_K, which is not supported", {"kind": T.Q2_K}),
        ("rope scaling 'yarn' is not implemented", {"rope.scaling.type": "yarn"}),
        ("partial rotary", {"rope.dimension_count": 16}),
        ("mixtures of experts", {"expert_count": 8}),
        ("no llama.block_count", {"block_count": None}),
        ("attention.head_count differs by layer", {"attention.head_count": [4, 8]}),
    ],
)  # fmt: skip
def test_what_is_not_implemented_is_refused_by_name(tmp_path, message, arguments):
    path = write(tmp_path / "m.gguf", **arguments)
    with pytest.raises(PacelineError, match=message) as refusal:
        GgufCheckpoint(path)
    assert "\n" not in str(refusal.value)


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = write(tmp_path / "m.gguf")
    data = path.read_bytes()
    for size in (10, 200, len(data) // 2, len(data) - 40):
        path.write_bytes(data[:size])
        with pytest.raises(PacelineError, match="cut short"):
            GgufCheckpoint(path)


def test_a_missing_tensor_is_named_when_it_is_asked_for(tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf", skip=("blk.0.ffn_down.weight",)))
    with pytest.raises(PacelineError, match=f"no tensor for {re.escape(repr(DOWN))}"):
        checkpoint.tensor(DOWN)


def test_the_fingerprint_names_the_bytes_and_not_the_place(tmp_path):
    path = write(tmp_path / "a.gguf")
    (tmp_path / "b.gguf").write_bytes(path.read_bytes())
    one = GgufCheckpoint(path).fingerprint
    assert GgufCheckpoint(tmp_path / "b.gguf").fingerprint == one
    changed = {"blk.0.ffn_up.weight": values(99, FFN, HIDDEN)}
    assert GgufCheckpoint(write(tmp_path / "c.gguf", extra=changed)).fingerprint != one
