"""Floats in the kernels' formats: how near they come, what is exact, what stays in its group."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.kernels import load

native = load()
GROUP = 32
TINY = np.float32(2.0**-24)  # fp16's smallest


@pytest.fixture(scope="module")
def engine():
    return native.Engine(2)


def normal(rows: int, cols: int, seed: int = 0, size: float = 0.02) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((rows, cols)) * size).astype(np.float32)


def heavy(rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """Weights with outliers."""
    return np.random.default_rng(seed).standard_t(3, (rows, cols)).astype(np.float32)


def there_and_back(engine, kind: str, weights: np.ndarray) -> np.ndarray:
    weights = np.ascontiguousarray(weights, np.float32)
    matrix = native.Matrix.empty(kind, *weights.shape)
    matrix.fill(engine, 0, weights)
    assert (matrix.kind, matrix.shape) == (kind, weights.shape)
    return matrix.rows(np.arange(len(weights)))


def half(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float16).astype(np.float32)


def groups(x: np.ndarray) -> np.ndarray:
    """[rows, cols] -> [rows * groups, 32]; cols is a multiple of 32."""
    return x.reshape(-1, GROUP)


def nearest(kind: str, weights: np.ndarray) -> np.ndarray:
    """Plain rounding to nearest between each group's ends, without a search."""
    x = groups(weights)
    if kind == "int8":
        s = half(np.abs(x).max(1, keepdims=True) / 127)
        return (np.clip(np.rint(x / s), -127, 127) * s).reshape(weights.shape)
    m = half(x.min(1, keepdims=True))
    s = half((x.max(1, keepdims=True) - x.min(1, keepdims=True)) / 15)
    return (np.clip(np.rint((x - m) / s), 0, 15) * s + m).reshape(weights.shape)


def squared(found: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.square(groups(found - weights).astype(np.float64)).sum(1)


@pytest.mark.parametrize("kind", ["int4", "int8"])
@pytest.mark.parametrize("weights", [normal(40, 512), heavy(40, 512), normal(40, 512) + 0.1])
def test_no_groups_error_is_above_plain_roundings(engine, kind, weights):
    found = squared(there_and_back(engine, kind, weights), weights)
    plain = squared(nearest(kind, weights), weights)
    assert (found <= plain * (1 + 1e-4)).all()


@pytest.mark.parametrize(("kind", "ratio"), [("int4", 0.80), ("int8", 0.87)])
def test_the_search_takes_a_good_part_of_plain_roundings_error_away(engine, kind, ratio):
    weights = normal(256, 512)
    found = squared(there_and_back(engine, kind, weights), weights).sum()
    assert found < ratio * squared(nearest(kind, weights), weights).sum()


@pytest.mark.parametrize("size", [1e-8, 1e-6, 1e-3, 1, 1e4])
def test_an_int8_weight_is_within_half_a_step(engine, size):
    """A step is at most 1/120 of the group's largest weight (weights that 64 steps suit better are
    not among these); where fp16 is coarse it may be as much more as fp16's smallest number."""
    weights = heavy(40, 256) * np.float32(size)
    error = np.abs(groups(there_and_back(engine, "int8", weights) - weights))
    peak = np.abs(groups(weights)).max(1, keepdims=True)
    assert (error <= 0.501 * peak / 120 + TINY).all()


@pytest.mark.parametrize("kind", ["int4", "int8"])
def test_what_was_rounded_once_stays_as_it_is(engine, kind):
    """For int4, in groups whose first and last code are in use: all that the search tries begins
    from the smallest and the largest weight."""
    rng = np.random.default_rng(1)
    once = there_and_back(engine, kind, heavy(64, 256))
    if kind == "int4":
        codes = rng.integers(0, 16, (512, GROUP))
        codes[:, 3], codes[:, 20] = 0, 15
        s = half(rng.uniform(0.001, 1, (512, 1)))
        once = (codes * s + half(-s * rng.uniform(0, 20, (512, 1)))).astype(np.float32)
        once = once.reshape(64, 256)
    np.testing.assert_array_equal(there_and_back(engine, kind, once), once)


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_zeros_are_exact(engine, kind):
    np.testing.assert_array_equal(there_and_back(engine, kind, np.zeros((11, 77))), 0)


@pytest.mark.parametrize("value", [1.5, -0.37109375, 65504.0, -65504.0])
@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_an_outlier_that_fp16_holds_is_exact_among_zeros(engine, kind, value):
    weights = np.zeros((8, 96), np.float32)
    weights[np.arange(8), np.arange(8) * 12] = value
    np.testing.assert_array_equal(there_and_back(engine, kind, weights), weights)


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_ternary_weights_are_exact(engine, kind):
    signs = np.random.default_rng(2).integers(-1, 2, (16, 256))
    weights = signs * half(np.linspace(0.01, 2, 16)[:, None])
    np.testing.assert_array_equal(there_and_back(engine, kind, weights), weights)


def test_int4_holds_equal_weights_to_fp32s_precision(engine):
    values = np.random.default_rng(3).uniform(-10, 10, (64, 1)).astype(np.float32)
    found = there_and_back(engine, "int4", np.repeat(values, 64, axis=1))
    np.testing.assert_allclose(found, np.repeat(values, 64, axis=1), rtol=2**-21)
    exact = np.repeat(half(values), 64, axis=1)
    np.testing.assert_array_equal(there_and_back(engine, "int4", exact), exact)


def test_fp16_is_the_nearest_and_saturates(engine):
    rng = np.random.default_rng(4)
    any_bits = rng.integers(0, 2**32, (32, 2048), dtype=np.uint32).view(np.float32)
    ordinary = rng.uniform(-1, 1, (32, 2048)).astype(np.float32)
    every = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)[None]
    ties = (every[:, :-1] + every[:, 1:]) / 2
    for weights in (any_bits, ordinary, every, -every, ties, -ties, np.nextafter(ties, 0)):
        with np.errstate(invalid="ignore"):  # NaNs that signal
            expected = half(np.clip(weights, -65504, 65504))
        found = there_and_back(engine, "fp16", weights)
        nan = np.isnan(weights)
        np.testing.assert_array_equal(np.isnan(found), nan)
        bits = found[~nan].view(np.int32)
        np.testing.assert_array_equal(bits, expected[~nan].view(np.int32))


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_columns_and_rows_need_not_fill_a_block(engine, kind):
    """What a group is depends on its own weights alone, so a cut matrix is a cut result, but for
    the groups cut through."""
    weights = normal(19, 256, seed=5)
    whole = there_and_back(engine, kind, weights)
    for rows, cols in [(1, 1), (3, 31), (8, 33), (13, 100), (19, 255)]:
        found = there_and_back(engine, kind, weights[:rows, :cols])
        full = cols // GROUP * GROUP
        np.testing.assert_array_equal(found[:, :full], whole[:rows, :full])
        cut = weights[:rows, :cols]
        spread = np.ptp(cut, axis=1, keepdims=True)
        assert (np.abs(found - cut) <= spread / 15 + np.abs(cut) / 1024).all()


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_a_nan_stays_in_its_group(engine, kind):
    weights = normal(9, 96, seed=6)
    clean = there_and_back(engine, kind, weights)
    weights[[2, 8], [40, 95]] = np.nan
    expected = clean.copy()
    if kind == "fp16":
        expected[[2, 8], [40, 95]] = np.nan
    else:
        expected[2, 32:64] = expected[8, 64:] = np.nan
    np.testing.assert_array_equal(there_and_back(engine, kind, weights), expected)


@pytest.mark.parametrize(
    ("kind", "limit"), [("int4", 65504), ("int8", 65504 * 127), ("fp16", 65504)]
)
@pytest.mark.parametrize("huge", [1e7, 3e38, np.inf])
def test_what_is_too_large_saturates(engine, kind, limit, huge):
    weights = np.zeros((2, 64), np.float32)
    weights[0, 5], weights[1, 40] = huge, -huge
    np.testing.assert_array_equal(
        there_and_back(engine, kind, weights), np.clip(weights, -limit, limit)
    )


@pytest.mark.parametrize("kind", ["int4", "int8", "fp16"])
def test_rows_filled_by_parts_on_any_threads_are_the_same(engine, kind):
    weights = heavy(43, 160, seed=7)
    parts = native.Matrix.empty(kind, 43, 160)
    alone = native.Engine(1)
    for first in (40, 0, 16):
        parts.fill(alone, first, weights[first : {40: 43, 0: 16, 16: 40}[first]])
    np.testing.assert_array_equal(parts.rows(np.arange(43)), there_and_back(engine, kind, weights))


def test_filling_again_leaves_nothing_of_the_first_time(engine):
    for kind in ("int4", "int8", "fp16"):
        matrix = native.Matrix.empty(kind, 9, 40)
        matrix.fill(engine, 0, heavy(9, 40))
        matrix.fill(engine, 0, normal(9, 40))
        np.testing.assert_array_equal(
            matrix.rows(np.arange(9)), there_and_back(engine, kind, normal(9, 40))
        )


def test_what_does_not_fit_is_refused(engine):
    with pytest.raises(ValueError, match="unknown kind 'int5'; known: int4, int8, fp16"):
        native.Matrix.empty("int5", 8, 32)
    for rows, cols in [(0, 32), (8, 0), (-1, 32)]:
        with pytest.raises(ValueError, match=f"cannot be {rows} x {cols}"):
            native.Matrix.empty("int4", rows, cols)
    matrix = native.Matrix.empty("int4", 20, 40)
    with pytest.raises(ValueError, match="values has 32 columns, the matrix 40"):
        matrix.fill(engine, 0, normal(8, 32))
    for first in (4, -8):
        with pytest.raises(ValueError, match=f"first_row is {first}, not a multiple of 8"):
            matrix.fill(engine, first, normal(8, 40))
    with pytest.raises(ValueError, match="rows 16 to 24 do not fit a matrix of 20"):
        matrix.fill(engine, 16, normal(8, 40))
    with pytest.raises(ValueError, match="12 rows are no multiple of 8"):
        matrix.fill(engine, 0, normal(12, 40))
    file = native.Matrix.from_gguf(engine, 2, np.zeros((8, 18), np.uint8), 32)
    with pytest.raises(ValueError, match="kind q4_0 cannot be filled with floats"):
        file.fill(engine, 0, normal(8, 32))
