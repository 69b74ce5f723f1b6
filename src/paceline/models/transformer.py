"""Decoder-only transformers (Llama, Mistral, Qwen2/2.5, Qwen3, Gemma 3) over a static cache."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.core.types import Output
from paceline.models.cache import Cache
from paceline.models.config import Config
from paceline.models.linear import Linear
from paceline.models.rope import Rope, frequencies
from paceline.models.trees import reading, up_to

PASS = 256
"""Positions (over all rows) that one pass reads at most: bounds memory on a long prompt."""
SERIAL, SHARE, VECTOR = 16384, 32768, 32
"""Torch computes a function of up to SERIAL elements in one thread. It divides more among all
threads, or among as many as there are SHAREs, depending on the function; by VECTOR at a time (two
of 16 with AVX-512, of 8 with AVX2)."""


class Weights(Protocol):
    """What a transformer is built from: a checkpoint's tensors, packed for a device.

    `dtype`: the compute dtype (float32 on a CPU), also the cache's. `nbytes`: what the linears
    made so far hold.
    """

    config: Config
    device: torch.device
    dtype: torch.dtype
    nbytes: int

    def vector(self, name: str) -> Tensor:
        """A norm's weight [D] in the compute dtype."""
        ...

    def linear(self, *names: str) -> Linear:
        """The rows of several matrices as one; "X.bias" joins in where "X.weight" has one."""
        ...

    def embedding(self, name: str) -> Callable[[Tensor], Tensor]:
        """ids [..] -> [.., D] in the compute dtype, the caller's own."""
        ...


class RmsNorm:
    """x * weight / sqrt(mean(x^2) + eps) over the last dimension (Zhang & Sennrich 2019, eq. 4).

    On a CPU it is put together from the cheapest operations that treat every row alike: the mean's
    1 / D moves into eps and weight.
    """

    def __init__(self, weight: Tensor, eps: float, dim: int | None = None) -> None:
        self._dim = dim or weight.shape[-1]
        self._fused = weight.is_cuda
        # A tensor: adding a Python number to a float32 tensor costs a conversion every time.
        self._eps = eps if self._fused else torch.tensor([eps * self._dim])
        self._weight = weight if self._fused else weight * math.sqrt(self._dim)

    def __call__(self, x: Tensor, out: Tensor | None = None) -> Tensor:
        if self._fused:
            y = F.rms_norm(x, (self._dim,), None, self._eps).mul_(self._weight)
            return y if out is None else out.copy_(y)
        r = torch.linalg.vector_norm(x, 2, -1, True)
        r.mul_(r).add_(self._eps).rsqrt_()
        return torch.mul(x, r, out=out).mul_(self._weight)


class Layer:
    """One block's parts."""

    def __init__(self, weights: Weights, i: int) -> None:
        config = weights.config
        at = f"model.layers.{i}."

        def norm(name: str) -> RmsNorm:
            return RmsNorm(weights.vector(at + name + ".weight"), config.eps)

        def linear(*names: str) -> Linear:
            return weights.linear(*(at + name + ".weight" for name in names))

        self.local = config.local[i]
        self.norm = norm("input_layernorm")
        self.qkv = linear(*(f"self_attn.{x}_proj" for x in "qkv"))
        self.o = linear("self_attn.o_proj")
        self.gate_up = linear("mlp.gate_proj", "mlp.up_proj")
        self.down = linear("mlp.down_proj")
        self.qk_norm = None
        if config.qk_norm:
            q, k = (weights.vector(f"{at}self_attn.{x}_norm.weight") for x in "qk")
            rows = torch.cat((q.expand(config.heads, -1), k.expand(config.kv_heads, -1)))
            self.qk_norm = RmsNorm(rows, config.eps)
        if config.post_norms:
            self.post_attention = norm("post_attention_layernorm")
            self.ffn_norm = norm("pre_feedforward_layernorm")
            self.post_ffn = norm("post_feedforward_layernorm")
        else:
            self.ffn_norm = norm("post_attention_layernorm")

    @property
    def nbytes(self) -> int:
        """How much of its weights one pass reads."""
        return sum(x.nbytes for x in (self.qkv, self.o, self.gate_up, self.down))


class Transformer:
    """A `paceline.core.protocols.Model` made of a checkpoint's weights.

    A position's logits depend on its row's tokens up to it (those on its path, in a tree) and not
    on how they were cut into passes, nor on the other rows or branches: to the bit on a CPU, in
    every weight format; within rounding on a GPU. It is `Branching`. `nbytes`: how much of its
    weights one pass reads.
    """

    def __init__(self, weights: Weights) -> None:
        config = weights.config
        self.config = config
        self.vocab_size = config.vocab_size
        self.context = config.context
        self.device = weights.device
        self.dtype = weights.dtype
        self.embed = weights.embedding("model.embed_tokens.weight")
        # each with its place in the cache
        self._layers = [(i, Layer(weights, i)) for i in range(config.layers)]
        self._taps: list[int] = []
        self._norm = RmsNorm(weights.vector("model.norm.weight"), config.eps)
        head = "model.embed_tokens.weight" if config.tied else "lm_head.weight"
        self._head = weights.linear(head)
        self.nbytes = weights.nbytes
        self._act = _silu if config.activation == "silu" else _gelu
        plain = frequencies(config.rope_theta, config.head_dim, config.rope_scaling)
        near = frequencies(config.rope_local_theta, config.head_dim)
        whole, local = (
            Rope(f, config.attn_scale, weights.dtype, weights.device) for f in (plain, near)
        )
        same = config.family != "gemma3"  # elsewhere a window changes the mask alone
        self._ropes = [whole, whole if same else local]

    def with_layers(self, keep: Sequence[int]) -> Transformer:
        """The same model without the layers that are not in `keep` (ascending). It shares all
        weights, and runs over its own caches or over those of the whole model."""
        other = copy.copy(self)
        other._layers = [self._layers[i] for i in keep]
        dropped = [layer for i, (_, layer) in enumerate(self._layers) if i not in keep]
        other.nbytes -= sum(layer.nbytes for layer in dropped)
        return other

    def tapped(self, layers: Sequence[int]) -> Transformer:
        """See `paceline.core.protocols.Tapped`. Raises ValueError for a layer that is not there."""
        other = copy.copy(self)
        other._taps = sorted(set(layers))
        if other._taps and not 0 <= other._taps[0] <= other._taps[-1] <= len(self._layers):
            raise ValueError(f"taps are from 0 to {len(self._layers)}, not {list(layers)}")
        return other

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for `batch` rows of at least `length` positions."""
        cache = Cache(self.config, batch, length, self.dtype, self.device)
        self.reach(cache.length)
        return cache

    def reach(self, length: int) -> None:
        """Be ready for positions up to `length`, in a cache that another model made."""
        for rope in self._ropes:
            rope.grow(length)

    def forward(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Cache,
        *,
        row: int = 0,
        logits: bool = True,
        parents: Tensor | None = None,
    ) -> Output:
        """See `paceline.core.protocols.Model` and `Branching`. No gradients flow through it.

        Raises ValueError for positions that do not fit the cache and for parents that are no tree.
        """
        rows, count = tokens.shape
        step = max(1, PASS // rows)
        with torch.inference_mode():  # a tenth faster than no_grad, where a pass takes 10 ms
            parts = [
                self._read(
                    tokens[:, i : i + step],
                    [p + i for p in at],
                    cache,
                    row,
                    up_to(parents, count, i + step),
                )
                for i in range(0, count, step)
            ]
        # Made out here, hidden states and logits are tensors like any other to the caller.
        last = torch.cat([part[0] for part in parts], 1)
        hidden = torch.cat([torch.cat(part[1], -1) for part in parts], 1) if self._taps else last
        scores = None
        if logits:
            scores = self._head(last.view(rows * count, -1)).view(rows, count, -1).float()
        return Output(scores, hidden)

    def move(self, cache: Cache, row: int, source: Sequence[int], start: int) -> None:
        """See `paceline.core.protocols.Branching`."""
        cache.move(row, source, start)

    def copy(self, cache: Cache, source: int, row: int, count: int) -> None:
        """See `paceline.core.protocols.Copies`."""
        cache.copy(source, row, count)

    def _read(
        self, tokens: Tensor, at: Sequence[int], cache: Cache, row: int, parents: Tensor | None
    ) -> tuple[Tensor, list[Tensor]]:
        """States [rows, count, D] of one pass: after the final norm, and those that are tapped."""
        config = self.config
        rows, count = tokens.shape
        attention = reading(config, cache, row, at, count, parents)
        places = attention.positions
        dim, rotated = config.head_dim, config.heads + config.kv_heads
        size, half = (rows * count, rotated, dim), (rows * count, rotated, 2, dim // 2)
        stride = ((config.heads + 2 * config.kv_heads) * dim, dim, 1)
        half_stride = (*stride[:2], dim // 2, 1)
        tables = [
            tuple(t[places].view(-1, 1, 2, dim // 2) for t in (rope.cos, rope.sin))
            for rope in self._ropes
        ]
        act, attend, write = self._act, attention.attend, attention.write
        plain = not config.post_norms
        x = self.embed(tokens).view(rows * count, -1)
        if config.embed_scale != 1.0:
            x.mul_(config.embed_scale)
        tapped: list[Tensor] = []  # nothing writes to these again
        for i, (slot, layer) in enumerate(self._layers):
            if i in self._taps:
                tapped.append(x)
            local = layer.local
            qkv = layer.qkv(layer.norm(x))
            if layer.qk_norm:
                qk = qkv.as_strided(size, stride)
                layer.qk_norm(qk, out=qk)
            cos, sin = tables[local]
            qk = qkv.as_strided(half, half_stride)
            turned = qk.flip(2)
            qk.mul_(cos).addcmul_(turned, sin)
            write(slot, qkv)
            y = attend(slot, qkv, local)
            x = layer.o(y, x) if plain else layer.post_attention(layer.o(y)).add_(x)
            y = act(layer.gate_up(layer.ffn_norm(x)))
            x = layer.down(y, x) if plain else layer.post_ffn(layer.down(y)).add_(x)
        if len(self._layers) in self._taps:
            tapped.append(x)
        last = self._norm(x).view(rows, count, -1)
        return last, [state.view(rows, count, -1) for state in tapped]


def _silu(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, -1)
    return _by_rows(F.silu, gate).mul_(up)


def _gelu(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, -1)
    return _by_rows(partial(F.gelu, approximate="tanh"), gate).mul_(up)


def _by_rows(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """`function` of every element of x [N, D], to the same bits for any N and number of threads.

    Torch hands each thread an equal share of the elements, and what is left of a share beside
    whole vectors goes to scalar code, which rounds differently. So all shares must be of vectors.
    """
    if x.numel() <= SERIAL or x.is_cuda:
        return function(x)
    rows, width = x.shape
    threads = torch.get_num_threads()
    if _in_vectors(rows, width, threads):
        return function(x)
    whole = rows - rows % threads
    if not _in_vectors(whole, width, threads):
        whole = 0
    cuts = [0, *range(whole or 1, rows), rows]
    return torch.cat([function(x[a:b]) for a, b in pairwise(cuts)])


def _in_vectors(rows: int, width: int, threads: int) -> bool:
    """Whether every thread's share of [rows, width] elements is a multiple of VECTOR."""
    size = rows * width
    if size <= SERIAL:
        return True
    shares = (threads, min(threads, -(-size // SHARE)))
    return width % VECTOR == 0 and all(size % (VECTOR * n) == 0 for n in shares)
