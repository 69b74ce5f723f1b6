"""GGUF bytes in the kernels' layout: every value is the file's, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader
from gguf.quants import dequantize

from paceline.kernels import load
from paceline.models.catalog import find
from paceline.models.store import present

native = load()
T = GGMLQuantizationType
# Where in a type's block the fp16 scales are.
SCALES = {
    T.F16: (),
    T.Q4_0: (0,),
    T.Q4_1: (0, 2),
    T.Q5_0: (0,),
    T.Q5_1: (0, 2),
    T.Q8_0: (0,),
    T.Q4_K: (0, 2),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
}
BYTES = {  # a weight's, in the layout
    T.F16: 2,
    T.Q4_0: 18 / 32,
    T.Q4_1: 20 / 32,
    T.Q5_0: 26 / 32,
    T.Q5_1: 28 / 32,
    T.Q8_0: 34 / 32,
    T.Q4_K: 148 / 256,
    T.Q5_K: 212 / 256,
    T.Q6_K: 210 / 256,
}
types = pytest.mark.parametrize("kind", SCALES, ids=lambda kind: kind.name)


@pytest.fixture(scope="module")
def engine():
    return native.Engine(2)


def halves(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """fp16 bits of either sign: ordinary, subnormal, zero, and as large as a scale may be."""
    groups = (
        rng.uniform(1e-4, 1, shape).astype(np.float16).view(np.uint16),
        rng.integers(1, 0x400, shape, dtype=np.uint16),
        np.zeros(shape, np.uint16),
        rng.integers(0x400, 0x7C00, shape, dtype=np.uint16),
    )
    bits = np.choose(rng.integers(0, len(groups), shape), groups)
    return bits | rng.integers(0, 2, shape, dtype=np.uint16) << 15


def blocks(kind: T, rows: int, cols: int, seed: int) -> np.ndarray:
    """A tensor's bytes [rows, row_bytes]: any at all, but no scale is infinite or NaN."""
    rng = np.random.default_rng(seed)
    if kind is T.F16:
        return halves(rng, (rows, cols)).view(np.uint8)
    inputs, size = GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, (rows, cols // inputs, size), dtype=np.uint8)
    for at in SCALES[kind]:
        raw[..., at : at + 2] = halves(rng, (*raw.shape[:2], 1)).view(np.uint8)
    return raw.reshape(rows, -1)


def values(raw: np.ndarray, kind: T) -> np.ndarray:
    """gguf's own reading of the bytes."""
    if kind is T.F16:
        return raw.view(np.float16).astype(np.float32)
    return dequantize(raw, kind)


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype == np.float32
    np.testing.assert_array_equal(found.view(np.int32), expected.view(np.int32))


def all_rows(matrix) -> np.ndarray:
    return matrix.rows(np.arange(matrix.shape[0]))


@types
@pytest.mark.parametrize("rows", [1, 7, 8, 29])
@pytest.mark.parametrize("units", [1, 3])
def test_every_value_is_the_files_own(engine, kind, rows, units):
    inputs = max(GGML_QUANT_SIZES[kind][0], 32)
    raw = blocks(kind, rows, units * inputs, seed=rows + units)
    matrix = native.Matrix.from_gguf(engine, kind, raw, units * inputs)
    assert matrix.shape == (rows, units * inputs)
    assert_same_bits(all_rows(matrix), values(raw, kind))


@types
def test_rows_come_in_the_order_asked_for(engine, kind):
    raw = blocks(kind, 43, 512, seed=1)
    order = np.random.default_rng(2).permutation(43).astype(np.int32)
    matrix = native.Matrix.from_gguf(engine, kind, raw, 512, order)
    expected = values(raw, kind)[order]
    assert_same_bits(all_rows(matrix), expected)
    assert_same_bits(
        native.Matrix.from_gguf(engine, kind, raw, 512, order[:9]).rows(np.arange(9)), expected[:9]
    )
    ids = np.array([42, 0, 0, 17])
    assert_same_bits(matrix.rows(ids), expected[ids])
    assert matrix.rows(ids[:0]).shape == (0, 512)


@types
def test_a_weight_takes_the_bytes_that_the_layout_says(engine, kind):
    matrix = native.Matrix.from_gguf(engine, kind, blocks(kind, 16, 512, seed=1), 512)
    assert matrix.nbytes == 16 * 512 * BYTES[kind]


def test_columns_of_fp16_need_not_fill_a_group(engine):
    raw = blocks(T.F16, 11, 45, seed=3)
    matrix = native.Matrix.from_gguf(engine, T.F16, raw, 45)
    assert matrix.kind == "fp16"
    assert_same_bits(all_rows(matrix), values(raw, T.F16))


def test_fp16_infinities_and_nans_stay(engine):
    raw = np.array([[np.inf, -np.inf, np.nan, 1]], np.float16)
    matrix = native.Matrix.from_gguf(engine, T.F16, raw.view(np.uint8), 4)
    np.testing.assert_array_equal(all_rows(matrix), raw.astype(np.float32))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_change_nothing(engine, threads):
    raw = blocks(T.Q6_K, 100, 256, seed=4)
    one = native.Matrix.from_gguf(native.Engine(threads), T.Q6_K, raw, 256)
    assert_same_bits(all_rows(one), values(raw, T.Q6_K))


def test_a_read_only_map_of_a_file_will_do(engine, tmp_path):
    raw = blocks(T.Q4_K, 9, 256, seed=5)
    (tmp_path / "file").write_bytes(b"123" + raw.tobytes())
    data = np.memmap(tmp_path / "file", np.uint8, "r")[3:].reshape(9, -1)
    matrix = native.Matrix.from_gguf(engine, T.Q4_K, data, 256)
    assert_same_bits(all_rows(matrix), values(raw, T.Q4_K))


def test_what_does_not_fit_is_refused(engine):
    make = native.Matrix.from_gguf
    raw = blocks(T.Q4_K, 3, 512, seed=6)
    with pytest.raises(ValueError, match="no kind holds GGUF type 30"):
        make(engine, T.BF16, raw, 144)
    with pytest.raises(ValueError, match="cols is 384, but this type's blocks have 256"):
        make(engine, T.Q4_K, raw, 384)
    with pytest.raises(ValueError, match="cols is 0, but"):
        make(engine, T.Q4_K, raw, 0)
    with pytest.raises(ValueError, match="288 bytes a row, but 256 columns take 144"):
        make(engine, T.Q4_K, raw, 256)
    with pytest.raises(ValueError, match="cannot have 0 rows"):
        make(engine, T.Q4_K, raw[:0], 512)
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=rf"order\[1\] is {wrong}, but raw has 3 rows"):
            make(engine, T.Q4_K, raw, 512, np.array([0, wrong, 1], np.int32))
    with pytest.raises(TypeError):
        make(engine, T.Q4_K, raw.astype(np.float32), 512)
    matrix = make(engine, T.Q4_K, raw, 512)
    for wrong in (-1, 3):
        with pytest.raises(IndexError, match=f"row {wrong} of a matrix of 3 rows"):
            matrix.rows(np.array([0, wrong]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5-coder-1.5b", "smollm2-135m", "gemma-3-270m"])
def test_a_real_files_values_are_its_own(engine, name):
    path = present(find(name))
    if path is None:
        pytest.skip(f"needs: paceline pull {name}")
    seen = set()
    for tensor in GGUFReader(path).tensors:
        kind = T(tensor.tensor_type)
        if kind not in SCALES:
            continue
        seen.add(kind)
        raw = tensor.data.view(np.uint8).reshape(tensor.data.shape[0], -1)
        matrix = native.Matrix.from_gguf(engine, kind, raw, int(tensor.shape[0]))
        ids = np.unique(np.linspace(0, len(raw) - 1, 1000).astype(np.int64))
        assert_same_bits(matrix.rows(ids), values(raw[ids], kind))
    assert seen, "no tensor of a type that the kernels hold"
