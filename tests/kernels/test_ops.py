"""What a decoder is put together from: products of several matrices, and what stands between them.

The latter is looked at through decoders whose other parts do nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from kernels import tiny_decoders as tiny
from paceline import kernels
from paceline.models.config import Config

native = kernels.load()
ISAS = native.isas()
KINDS = ["fp16", "int8", "int4"]


def fill(kind: str, values: Tensor) -> object:
    matrix = native.Matrix.empty(kind, *values.shape)
    matrix.fill(native.Engine(1), 0, values.numpy())
    return matrix


def stored(matrix: object) -> Tensor:
    return torch.from_numpy(matrix.rows(torch.arange(matrix.shape[0]).numpy()))


def multiply(linear: object, x: Tensor, isa: str, threads: int = 1) -> Tensor:
    return torch.from_numpy(linear(native.Engine(threads, isa), x.numpy()))


@pytest.mark.parametrize("isa", ISAS)
class TestLinear:
    @pytest.mark.parametrize("cols", [32, 100, 256, 300])
    def test_kinds_side_by_side_with_a_bias(self, isa: str, cols: int) -> None:
        """Rows that fill no block, columns that fill no group: each matrix as if it were alone."""
        torch.manual_seed(cols)
        matrices = [
            fill(kind, torch.randn(rows, cols))
            for kind, rows in zip(KINDS, (13, 8, 1), strict=True)
        ]
        bias = torch.randn(22)
        x = torch.randn(9, cols)
        got = multiply(native.Linear(matrices, bias.numpy()), x, isa)
        inputs = [x, tiny.as_codes(x), tiny.as_codes(x)]
        wanted = torch.cat(
            [F.linear(i, stored(m)) for i, m in zip(inputs, matrices, strict=True)], -1
        )
        torch.testing.assert_close(got, wanted + bias, atol=1e-4, rtol=1e-5)
        alone = [multiply(native.Linear([m]), x, isa) for m in matrices]
        assert torch.equal(got, torch.cat(alone, -1) + bias)

    @pytest.mark.parametrize("kind", KINDS)
    def test_rows_agree_to_the_bit(self, isa: str, kind: str) -> None:
        torch.manual_seed(0)
        linear = native.Linear([fill(kind, torch.randn(300, 200)), fill(kind, torch.randn(5, 200))])
        x = torch.randn(40, 200) * torch.logspace(-20, 20, 40)[:, None]
        x[7], x[11, 3], x[12, 199] = 0, torch.nan, -torch.inf
        alone = torch.cat([multiply(linear, row, isa) for row in x.split(1)])
        assert alone[11:13].isnan().all() or kind == "fp16"
        assert (alone[7] == 0).all()
        assert torch.cat((alone[:11], alone[13:])).isfinite().all()
        for n in (*range(1, 15), 40):
            for threads in (1, 2, 4):
                got = multiply(linear, x[-n:], isa, threads)
                assert torch.equal(got.nan_to_num(nan=1e30), alone[-n:].nan_to_num(nan=1e30))

    def test_no_rows(self, isa: str) -> None:
        linear = native.Linear([fill("int8", torch.randn(5, 64))])
        assert multiply(linear, torch.empty(0, 64), isa).shape == (0, 5)


class TestParts:
    def test_columns_must_agree(self) -> None:
        parts = [fill("fp16", torch.randn(8, cols)) for cols in (32, 64)]
        with pytest.raises(ValueError, match="same columns"):
            native.Linear(parts)

    def test_a_bias_has_a_value_for_each_row(self) -> None:
        with pytest.raises(ValueError, match="8 values where the matrices have 9 rows"):
            native.Linear([fill("fp16", torch.randn(9, 32))], torch.randn(8).numpy())

    def test_an_input_must_fit(self) -> None:
        linear = native.Linear([fill("fp16", torch.randn(9, 32))])
        with pytest.raises(ValueError, match="columns"):
            linear(native.Engine(1), torch.randn(1, 33).numpy())

    def test_a_matrix_lives_as_long_as_a_linear(self) -> None:
        values = torch.randn(8, 32)
        linear = native.Linear([fill("fp16", values)])
        [fill("fp16", torch.zeros(8, 32)) for _ in range(10)]
        x = torch.randn(1, 32)
        torch.testing.assert_close(multiply(linear, x, ISAS[0]), x @ values.half().float().T)


def probe(config: Config, **parts: Tensor) -> tiny.Weights:
    """Weights in which each matrix whose name has one of `parts` holds that, the others zeros."""
    weights = tiny.Weights(config)
    for name in weights.matrices:
        values = torch.zeros(weights.matrices[name].shape)
        for part, wanted in parts.items():
            if part in name:
                values = wanted
        weights.matrices[name] = weights.fill("fp16", values)
    return weights


@pytest.mark.parametrize("isa", ISAS)
class TestBetween:
    """One layer; hidden states are the final norm's."""

    @pytest.mark.parametrize("size", [8, 20, 33, 72, 300])
    def test_norm(self, size: int, isa: str) -> None:
        """Nothing but the embedding and the final norm."""
        config = replace(tiny.FAMILIES["llama"], layers=1, local=(), hidden=size)
        table = torch.randn(tiny.VOCAB, size) * torch.logspace(-4, 3, tiny.VOCAB)[:, None]
        weights = probe(config, embed_tokens=table)
        x = table.half().double()
        scale = (x.square().mean(-1, keepdim=True) + config.eps).rsqrt()
        wanted = x * scale * weights.vector("model.norm.weight")
        got = hidden(weights, torch.arange(tiny.VOCAB)[:, None], isa)
        torch.testing.assert_close(got[:, 0].double(), wanted, atol=1e-7, rtol=5e-7)

    @pytest.mark.parametrize("family", ["llama", "gemma3"])
    @pytest.mark.parametrize("ffn", [5, 64])
    def test_activation(self, family: str, ffn: int, isa: str) -> None:
        """Gates from far below to far above zero, one a token; the result is the embedding's last
        column, plus it. (The norms divide by about 1: the first column is large.)"""
        config = replace(
            tiny.FAMILIES[family],
            layers=1,
            hidden=8,
            ffn=ffn,
            embed_scale=1.0,
            tied=False,
            post_norms=False,
            sliding_window=None,
            local=(False,),
        )
        gates = torch.linspace(-120, 60, tiny.VOCAB).half().float()
        table = torch.zeros(tiny.VOCAB, 8)
        table[:, 0], table[:, 1] = 1000.0, gates
        gate, up, down = torch.zeros(ffn, 8), torch.zeros(ffn, 8), torch.zeros(8, ffn)
        gate[-1, 1], up[-1, 0], down[7, -1] = 300.0, 1.0, 1.0
        weights = probe(config, embed_tokens=table, gate_proj=gate, up_proj=up, down_proj=down)
        for name in ("model.norm", "model.layers.0.post_attention_layernorm"):
            weights.vector(name + ".weight").fill_(1.0)
        scale = (table.double().square().mean(-1) + config.eps).rsqrt()
        g, u = gates * scale * 300, 1000 * scale
        act = F.silu(g) if family == "llama" else F.gelu(g, approximate="tanh")
        x = table.double()
        x[:, 7] = act * u
        wanted = x * (x.square().mean(-1, keepdim=True) + config.eps).rsqrt()
        got = hidden(weights, torch.arange(tiny.VOCAB)[:, None], isa)
        torch.testing.assert_close(got[:, 0].double(), wanted, atol=2e-7, rtol=2e-5)

    @pytest.mark.parametrize("group", [1, 2, 3, 4, 5, 7])
    @pytest.mark.parametrize("dim", [8, 24, 64])
    def test_attention(self, group: int, dim: int, isa: str) -> None:
        """Every number of heads that share keys, sharp scores, more positions than any block."""
        config = replace(
            tiny.FAMILIES["llama"],
            layers=1,
            local=(),
            heads=2 * group,
            head_dim=dim,
            attn_scale=3.0,
        )
        weights = tiny.Weights(config)
        ids = tiny.tokens(2, 90)
        theirs, ours = tiny.reference(weights), tiny.native(weights, 2, isa)
        wanted = theirs.forward(ids, [0, 0], theirs.new_cache(2, 90)).hidden
        cache = ours.new_cache(2, 90)
        parts = [ours.forward(ids[:, a:b], [a, a], cache).hidden for a, b in [(0, 71), (71, 90)]]
        torch.testing.assert_close(torch.cat(parts, 1), wanted, atol=1e-4, rtol=1e-4)


def hidden(weights: tiny.Weights, ids: Tensor, isa: str) -> Tensor:
    model = tiny.native(weights, isa=isa)
    rows, count = ids.shape
    return model.forward(ids, [0] * rows, model.new_cache(rows, count), logits=False).hidden
