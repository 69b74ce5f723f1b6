"""The roofline against published figures and against its own definition."""

from __future__ import annotations

import math

import pytest

from paceline.advise.roofline import PRESETS, Roofline, Size, parse_size
from paceline.errors import PacelineError


@pytest.mark.parametrize(("gpu", "rows"), [("a100", 153), ("h100", 295), ("h200", 206)])
def test_where_memory_stops_being_the_limit(gpu: str, rows: int) -> None:
    """n* = peak · bytes a weight / (2 · bandwidth): up to it more tokens are free."""
    line = Roofline(PRESETS[gpu], Size(7), context=0)
    assert line.r(rows) == 1
    assert line.r(rows + 1) > 1
    assert line.r(2 * rows) == pytest.approx(2, rel=0.01)


def test_fewer_bits_reach_the_limit_of_arithmetic_sooner() -> None:
    narrow = Roofline(PRESETS["h100"], Size(7, 4), context=0)
    assert narrow.r(73) == 1  # 295 / 4
    assert narrow.r(75) > 1


def test_one_pass_reads_all_weights_once() -> None:
    """gpt-fast's Llama 7B in bf16: 13.3 GB, 104.9 tokens/s, 1397 GB/s of an A100."""
    line = Roofline(PRESETS["a100"], Size(13.3 / 2), context=0)
    assert line.target.weights / 1e9 * 104.9 == pytest.approx(1397, rel=0.002)
    assert line.seconds(line.target, 1) == pytest.approx(13.3 / 2039)
    assert 1 / line.seconds(line.target, 1) > 104.9


def test_keys_and_values_are_read_too() -> None:
    """Llama 3: 8B keeps 128 KiB a token (32 layers), 70B 320 KiB (80), in 16 bits."""
    assert Size(8).kv == pytest.approx(32 * 2 * 1024 * 2, rel=1 / 7)
    assert Size(70).kv == pytest.approx(80 * 2 * 1024 * 2, rel=1 / 7)
    empty, full = (Roofline(PRESETS["h100"], Size(8), None, 4, n) for n in (0, 10_000))
    more = full.seconds(full.target, 1) - empty.seconds(empty.target, 1)
    assert more == pytest.approx(4 * 10_000 * Size(8).kv / 3.35e12)


def test_c_is_a_ratio_of_bytes_where_both_are_bound_by_memory() -> None:
    assert Roofline(PRESETS["h100"], Size(54), Size(8), context=0).c == pytest.approx(8 / 54)
    assert Roofline(PRESETS["a100"], Size(7), Size(3, 4), context=0).c == pytest.approx(3 / 28)
    assert Roofline(PRESETS["a100"], Size(7)).c is None


def test_c_is_a_ratio_of_operations_where_both_are_bound_by_arithmetic() -> None:
    line = Roofline(PRESETS["h100"], Size(7), Size(3, 4), batch=1000, context=0)
    assert line.c == pytest.approx(3 / 7)
    assert line.r(5) == pytest.approx(5)


def test_what_one_gpu_does_not_hold_is_shared_out() -> None:
    pair = (Size(54), Size(8))
    sizes = {name: Roofline(gpu, *pair).gpus for name, gpu in PRESETS.items()}
    assert sizes == {"h100": 2, "h200": 1, "a100": 2, "rtx4090": 6, "cpu": 1}  # of 124.4 GB
    line = Roofline(PRESETS["h100"], *pair, context=0)
    assert line.seconds(line.target, 1) == pytest.approx(108 / (2 * 3350))
    assert line.seconds(line.target, 10_000) == pytest.approx(2 * 54e9 * 1e4 / (2 * 989.4e12))


def test_a_cpu_is_bound_by_arithmetic_after_a_few_tokens() -> None:
    for bits, tokens in ((16, 4), (8, 3), (4, 2)):
        line = Roofline(PRESETS["cpu"], Size(1.5, bits), context=0)
        assert line.r(tokens) == 1
        assert line.r(tokens + 1) > 1


@pytest.mark.parametrize(
    ("text", "params", "bits"),
    [("7B", 7, 16), ("7b:4", 7, 4), ("0.5B:4.5", 0.5, 4.5), ("135M", 0.135, 16), (" 3B ", 3, 16)],
)
def test_sizes_as_people_write_them(text: str, params: float, bits: float) -> None:
    assert parse_size(text) == Size(params, bits)


@pytest.mark.parametrize("text", ["", "7", "B", "7T", "7B:", "7B:x", "-7B", "7B 4", "0B", "7B:0"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(PacelineError, match=r"write 7B|give"):
        parse_size(text)


@pytest.mark.parametrize("params", [math.nan, math.inf, 0.0, -1.0])
def test_a_size_is_a_number_above_zero(params: float) -> None:
    with pytest.raises(PacelineError, match="above 0"):
        Size(params)
