"""What a checkpoint becomes on the native kernels: its own values, or those rounded as asked."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf.quants import dequantize

from models import families
from models.gguf_files import FFN, HIDDEN, T, raw, write
from paceline import kernels
from paceline.errors import PacelineError
from paceline.models.gguf import GgufCheckpoint
from paceline.models.load import load
from paceline.models.native import NativeTransformer
from paceline.models.native_weights import NativeWeights
from paceline.models.weights import HfCheckpoint

DOWN = "model.layers.0.mlp.down_proj.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"
LOSSLESS = [T.F16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K]


@pytest.fixture(scope="module")
def engine():
    return kernels.load().Engine(2)


def rows(matrix) -> np.ndarray:
    return matrix.rows(np.arange(matrix.shape[0]))


@pytest.mark.parametrize("kind", LOSSLESS, ids=lambda kind: kind.name)
def test_native_keeps_every_value_of_the_file(kind, engine, tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf", kind=kind))
    found = rows(NativeWeights(checkpoint, "native", engine).matrix(DOWN))
    expected = dequantize(raw(kind, HIDDEN, FFN), kind)
    assert np.array_equal(found.view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("kind", [T.F32, T.BF16], ids=lambda kind: kind.name)
def test_native_rounds_what_no_kind_holds_to_fp16(kind, engine, tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf", kind=kind))
    found = rows(NativeWeights(checkpoint, "native", engine).matrix(DOWN))
    expected = checkpoint.tensor(DOWN).float().half().float().numpy()
    assert np.array_equal(found, expected)


def test_a_llama_file_s_queries_are_put_in_order(engine, tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf"))
    found = rows(NativeWeights(checkpoint, "native", engine).matrix(QUERY))
    assert np.array_equal(found, checkpoint.tensor(QUERY).half().float().numpy())


@pytest.mark.parametrize("kind", [None, T.Q4_K, T.BF16])
@pytest.mark.parametrize("dtype", ["fp16", "int8", "int4"])
def test_other_formats_round_the_file_s_values(kind, dtype, engine, tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf", kind=kind))
    exact = checkpoint.tensor(DOWN).float()
    found = torch.from_numpy(rows(NativeWeights(checkpoint, dtype, engine).matrix(DOWN)))
    groups = exact.view(HIDDEN, -1, 32)
    step = {
        "fp16": groups.abs() * 2.0**-11 + 2.0**-25,
        "int8": groups.abs().amax(-1, keepdim=True) / 127,
        "int4": (groups.amax(-1, keepdim=True) - groups.amin(-1, keepdim=True)) / 15,
    }[dtype]
    # a searched scale may round a single weight by more than the plain one's half a step
    assert bool(((found.view_as(groups) - groups).abs() <= step * 1.01).all())


def test_int4_keeps_the_embedding_in_int8(engine, tmp_path):
    weights = NativeWeights(GgufCheckpoint(write(tmp_path / "m.gguf")), "int4", engine)
    names = ("model.embed_tokens.weight", DOWN)
    assert [weights.matrix(name).kind for name in names] == ["int8", "int4"]


@pytest.mark.parametrize("dtype", ["fp16", "int8", "int4"])
def test_a_folder_s_logits_are_fp32_s_but_for_rounding(dtype, tmp_path):
    families.save("qwen2", tmp_path)
    exact, _ = load(tmp_path, "fp32", "cpu")
    found, picked = load(tmp_path, dtype, "cpu")
    assert (picked, type(found)) == (dtype, NativeTransformer)
    ids = families.tokens(2, 12)
    scores = [m.forward(ids, [0, 0], m.new_cache(2, 12)).logits for m in (exact, found)]
    error = (scores[0] - scores[1]).norm() / scores[0].norm()
    assert float(error) < {"fp16": 1e-3, "int8": 0.05, "int4": 0.5}[dtype]


def test_progress_ends_at_the_total(engine, tmp_path):
    seen: list[tuple[int, int]] = []
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf"))
    weights = NativeWeights(
        checkpoint, "int8", engine, progress=lambda a, b, what: seen.append((a, b))
    )
    NativeTransformer(checkpoint.config, weights, engine)
    done, total = seen[-1]
    assert sorted(seen) == seen
    assert math.isclose(done, total, rel_tol=0.05)
    assert all(a <= b for a, b in seen)


def test_a_checkpoint_s_vectors_and_biases(engine, tmp_path: Path):
    families.save("qwen2", tmp_path)
    checkpoint = HfCheckpoint(tmp_path)
    weights = NativeWeights(checkpoint, "fp16", engine)
    norm, bias = "model.norm.weight", "model.layers.0.self_attn.q_proj.bias"
    assert torch.equal(weights.vector(norm), checkpoint.tensor(norm).float())
    assert torch.equal(weights.bias(bias), checkpoint.tensor(bias).float())
    assert weights.bias("model.layers.0.mlp.down_proj.bias") is None


@pytest.mark.parametrize(
    ("kind", "dtype"), [(T.Q4_K, "native"), (T.Q6_K, "native"), (None, "int4")]
)
def test_a_later_start_maps_the_same_bytes(kind, dtype, engine, tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf", kind=kind))

    def matrices(folder: Path | None) -> list[tuple[str, tuple[int, int], bytes]]:
        with NativeWeights(checkpoint, dtype, engine, folder) as weights:
            found = [weights.matrix(name) for name in (DOWN, QUERY)]
        return [(m.kind, m.shape, m.data.tobytes()) for m in found]

    first = matrices(tmp_path / "packed")
    kept = [*(tmp_path / "packed").iterdir()]
    stamp = kept[0].stat().st_mtime_ns
    assert len(kept) == 1
    assert matrices(tmp_path / "packed") == first == matrices(None)
    assert kept[0].stat().st_mtime_ns == stamp


def test_a_start_that_fails_leaves_no_file(engine, tmp_path):
    checkpoint = GgufCheckpoint(write(tmp_path / "m.gguf"))

    def start() -> None:
        with NativeWeights(checkpoint, "int8", engine, tmp_path / "packed") as weights:
            weights.matrix(DOWN)
            weights.matrix("model.layers.1.mlp.down_proj.weight")

    with pytest.raises(PacelineError, match="no tensor"):
        start()
    assert not [*(tmp_path / "packed").iterdir()]


def test_bytes_of_another_size_are_refused():
    packed = kernels.load().Matrix.packed
    with pytest.raises(ValueError, match="has 160 bytes, not 159"):
        packed("int4", 8, 32, np.zeros(159, np.uint8))
    with pytest.raises(ValueError, match="unknown kind 'int5'"):
        packed("int5", 8, 32, np.zeros(160, np.uint8))


def test_packed_bytes_outlive_whoever_gave_them(engine):
    values = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    made = kernels.load().Matrix.empty("int8", 16, 64)
    made.fill(engine, 0, values)
    again = kernels.load().Matrix.packed("int8", 16, 64, made.data.copy())
    assert np.array_equal(rows(again), rows(made))
    with pytest.raises(ValueError, match="cannot be filled"):
        again.fill(engine, 0, values)
