"""Every weight format: the product it stands for, and rows that never know their neighbours."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from paceline.models import linear as module
from paceline.models.formats import DTYPES, Rows, decode, encode, turn
from paceline.models.linear import Plain, Widened, build, fbgemm, good_rows

CPU = torch.device("cpu")
# Relative error of a product against float64 on the checkpoint's own weights, about twice what is
# seen: rounding for fp32, the weights' rounding for bf16 and fp16, both operands' for int8.
ERROR = {"fp32": 1e-6, "bf16": 4e-3, "fp16": 5e-4, "int8": 2.5e-2}
COUNTS = [*range(1, 40), 64, 65, 127, 128, 129, 257]


def weight(out: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(out, columns, generator=torch.Generator().manual_seed(seed)) * 0.05


def inputs(rows: int, columns: int, seed: int = 1) -> Tensor:
    """Rows of very different size, with a few large entries, as in a transformer."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=g) * torch.rand(rows, 1, generator=g) * 4
    x[:, 3] *= 25
    return x


def error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).norm() / exact.norm()).item()


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [64, 192, 50])
def test_a_linear_is_x_times_the_weight_plus_bias_and_residual(dtype, columns):
    w, b = weight(80, columns), torch.linspace(-1, 1, 80)
    for n in (1, 2, 5, 33):
        x, add = inputs(n, columns), weight(n, 80, seed=2)
        product = x.double() @ w.double().T
        for bias in (None, b):
            made = build(encode(w, dtype, bias), CPU)
            assert (made.in_features, made.out_features) == (columns, 80)
            exact = product if bias is None else product + bias
            # Without turning (50 columns) the large entry costs int8 more.
            bound = ERROR[dtype] * (4 if columns == 50 else 1)
            assert error(made(x), exact) < bound
            assert error(made(x, add.clone()), exact + add) < bound


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [64, 576, 640])
def test_a_row_is_the_same_to_the_bit_among_any_number_of_rows(dtype, columns, threads):
    made = build(encode(weight(96, columns), dtype, torch.linspace(-1, 1, 96)), CPU)
    x, add = inputs(280, columns), weight(280, 96, seed=3)
    plain = torch.cat([made(part) for part in x.split(9)])
    added = torch.cat([made(p, a.clone()) for p, a in zip(x.split(9), add.split(9), strict=True)])
    for n in COUNTS:
        at = n % 7
        rows = slice(at, at + n)
        assert torch.equal(made(x[rows]), plain[rows]), n
        assert torch.equal(made(x[rows], add[rows].clone()), added[rows]), n


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_nan_and_infinity_stay_in_their_own_row(dtype):
    made = build(encode(weight(48, 128), dtype), CPU)
    x = inputs(6, 128)
    clean = made(x)
    x[1] = 0
    x[2, 5] = float("nan")
    x[3, 7] = float("inf")
    y = made(x)
    assert torch.equal(y[1], torch.zeros(48))
    assert y[2].isnan().all()
    assert not y[3].isfinite().any()
    assert torch.equal(y[[0, 4, 5]], clean[[0, 4, 5]])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_input_is_left_as_it_was(dtype):
    made = build(encode(weight(48, 128), dtype), CPU)
    for n in (1, 4):
        x = inputs(n, 128)
        before = x.clone()
        made(x)
        assert torch.equal(x, before)


def test_int8_is_the_exact_integer_product_even_at_the_ends_of_its_range():
    # All codes as large as they may be, all inputs at full scale: where 16 bits would overflow.
    if not fbgemm():
        pytest.skip("this torch has no int8 kernel")
    codes = torch.full((16, 50), 64, dtype=torch.int8)
    codes[1::2] = -64
    codes[4, 0::2], codes[4, 1::2] = 127, 1
    made = build(Rows(codes, torch.ones(16)), CPU)
    for sign in (1.0, -1.0):
        x = torch.full((3, 50), sign)
        expected = codes.float().sum(1) * sign
        torch.testing.assert_close(made(x), expected.expand(3, -1), rtol=1e-6, atol=1e-3)


def test_neighbouring_codes_of_one_sign_never_exceed_what_16_bits_hold():
    for seed in range(20):
        g = torch.Generator().manual_seed(seed)
        w = torch.randn(64, 50 + 2 * seed, generator=g) ** 3
        codes = encode(w, "int8").codes.int()
        assert codes.abs().max() <= 127
        pairs = codes.reshape(64, -1, 2)
        assert pairs.clamp(min=0).sum(-1).max() <= 128
        assert pairs.clamp(max=0).sum(-1).min() >= -128


@pytest.mark.parametrize("dtype", DTYPES)
def test_decoding_gives_the_weight_back(dtype):
    w = weight(40, 128)
    w[3] = 0
    back = decode(encode(w, dtype))
    assert (
        error(back, w.double()) < {"fp32": 1e-9, "bf16": 3e-3, "fp16": 3e-4, "int8": 1.5e-2}[dtype]
    )
    assert torch.equal(back[3], torch.zeros(128))


def test_fp16_saturates_instead_of_becoming_infinite():
    assert encode(torch.tensor([[1e6, -1e6, 1.0]]), "fp16").codes.tolist() == [[65504, -65504, 1]]


def test_joined_rows_are_the_rows_one_after_the_other():
    a, b = weight(5, 64), weight(7, 64, seed=4)
    bias = torch.arange(7.0)
    for dtype in DTYPES:
        joined = Rows.join([encode(a, dtype), encode(b, dtype, bias)])
        assert torch.equal(decode(joined), torch.cat([decode(encode(p, dtype)) for p in (a, b)]))
        assert joined.bias.tolist() == [0] * 5 + list(range(7))
    assert Rows.join([encode(a, "fp16")]).bias is None


def test_turning_twice_changes_nothing_and_once_spreads_an_outlier():
    x = torch.zeros(1, 128)
    x[0, 70] = 8.0
    turned = turn(x)
    assert torch.equal(turned[0, :64], torch.zeros(64))
    assert torch.equal(turned[0, 64:].abs(), torch.ones(64))
    assert torch.equal(turn(turned), x)
    odd = inputs(2, 50)
    assert torch.equal(turn(odd), odd)


def test_the_fallbacks_agree_with_the_kernels():
    x = inputs(4, 128)
    for dtype in ("fp16", "int8", "bf16"):
        rows = encode(weight(40, 128), dtype, torch.linspace(-1, 1, 40))
        exact = x.double() @ decode(rows).double().T + rows.bias
        assert error(Widened(rows)(x), exact) < 1e-6
        assert error(Plain(rows, CPU)(x), exact) < (1e-6 if dtype == "int8" else 5e-3)


def test_widening_in_several_blocks_gives_the_same(monkeypatch):
    rows = encode(weight(40, 128), "bf16")
    whole = Widened(rows)(inputs(3, 128))
    monkeypatch.setattr(Widened, "_BLOCK", 4 * 128 * 7)
    torch.testing.assert_close(Widened(rows)(inputs(3, 128)), whole, rtol=1e-6, atol=1e-6)


def test_a_torch_without_the_kernels_still_has_every_format(monkeypatch):
    monkeypatch.setattr(module, "fbgemm", lambda: False)
    for dtype in ("fp16", "int8"):
        assert isinstance(build(encode(weight(8, 64), dtype), CPU), Widened)


def test_good_rows_leave_no_block_of_one_or_two():
    assert [good_rows(n) for n in (1, 2, 3, 7, 14, 31, 32, 37, 38, 39)] == [
        3, 3, 3, 8, 15, 33, 33, 39, 39, 39,
    ]  # fmt: skip


def test_torch_s_deprecation_warnings_do_not_reach_the_user():
    code = (
        "import torch; from paceline.models.formats import encode;"
        "from paceline.models.linear import build;"
        "rows = encode(torch.ones(8, 64), 'int8');"
        "print(build(rows, torch.device('cpu'))(torch.ones(1, 64))[0, 0].item())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) == pytest.approx(64, rel=0.01)
