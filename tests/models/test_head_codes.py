"""Heads in 8 bits: what comes back is what went in, within half a step."""

from __future__ import annotations

import pytest
import torch

from paceline.models.head_codes import GROUP, decode, encode


def back(matrix: torch.Tensor) -> torch.Tensor:
    return decode(encode("x", matrix), "x")


@pytest.mark.parametrize("cols", [1, 31, 32, 33, 100])
@pytest.mark.parametrize("size", [1e3, 1.0, 1e-2, 1e-4, 1e-6])
def test_every_value_is_within_half_a_step(cols: int, size: float) -> None:
    """A step is its group's scale: the largest value by 127, but for the rounding of float16, whose
    smallest numbers are 2^-24 apart. Small values come back, too: a head's are often small."""
    make = torch.Generator().manual_seed(cols)
    matrix = torch.randn(7, cols, generator=make) * size
    tensors = encode("x", matrix)
    codes, scales = tensors["x.codes"], tensors["x.scales"]
    assert (codes.shape, codes.dtype) == ((7, cols), torch.int8)
    assert (scales.shape, scales.dtype) == ((7, -(-cols // GROUP)), torch.float16)
    for r in range(7):
        for g in range(scales.shape[1]):
            part = slice(g * GROUP, (g + 1) * GROUP)
            values, step = matrix[r, part], float(scales[r, g])
            ideal = float(values.abs().max()) / 127
            assert abs(step - ideal) <= ideal * 2**-11 + 2**-24
            assert float((decode(tensors, "x")[r, part] - values).abs().max()) <= step * 0.501


@pytest.mark.parametrize("scale", [2**-3, 0.37, 2**-14, 2**-16, 2**-20])
def test_what_codes_can_say_comes_back_exactly(scale: float) -> None:
    make = torch.Generator().manual_seed(0)
    codes = torch.randint(-127, 128, (5, 70), generator=make).float()
    codes[:, ::GROUP] = 127
    matrix = codes * torch.tensor(scale).half().float()
    assert torch.equal(back(matrix), matrix)


def test_zeros_and_a_zero_group() -> None:
    matrix = torch.zeros(2, 64)
    matrix[0, 40] = -3
    found = back(matrix)
    assert torch.equal(found[:, :32], torch.zeros(2, 32))
    assert torch.equal(found[1], torch.zeros(64))
    assert float(found[0, 40]) == pytest.approx(-3, rel=1e-3)
    assert int((found != 0).sum()) == 1


def test_vectors_stay_and_other_types_are_read() -> None:
    bias = torch.tensor([0.1, -2.0], dtype=torch.float64)
    assert list(encode("b", bias)) == ["b"]
    assert torch.equal(decode(encode("b", bias), "b"), bias.float())
    strided = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)).T
    assert torch.equal(back(strided), back(strided.contiguous()))
    half = decode({"x": torch.ones(2, 2, dtype=torch.float16)}, "x")
    assert half.dtype == torch.float32


def test_damage_is_told() -> None:
    tensors = encode("x", torch.ones(4, 100))
    with pytest.raises(KeyError, match=r"y\.codes"):
        decode(tensors, "y")
    for scales in (torch.ones(4, 3), torch.ones(3, 4), torch.ones(4)):
        with pytest.raises(ValueError, match=r"x: \[4, 100\] codes have"):
            decode(tensors | {"x.scales": scales}, "x")
