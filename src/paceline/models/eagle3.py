"""EAGLE-3 heads (Li et al. 2025): one layer that reads a target's states of three depths.

The features of position t, joined by `fc`, and the embedding of the token at t + 1 enter the layer
side by side; its attention looks at the same of all positions before; what comes out scores the
token at t + 2, over a vocabulary of the frequent tokens, and stands in for the features of t + 1
where the target has not been yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.core.follower import Follower
from paceline.core.tree import ancestry
from paceline.models.eagle3_config import Eagle3Config
from paceline.models.rope import Rope, frequencies
from paceline.models.transformer import RmsNorm

if TYPE_CHECKING:
    from paceline.core.cached import CachedModel

Product = Callable[[Tensor], Tensor]  # x [N, in] -> [N, out]


class Parts(Protocol):
    """A head's weights, ready to compute with, under the names that `canonical` gives."""

    device: torch.device
    dtype: torch.dtype

    def vector(self, name: str) -> Tensor: ...
    def linear(self, *names: str) -> Product: ...
    def embedding(self, name: str) -> Product: ...
    def __contains__(self, name: str) -> bool: ...


class Eagle3:
    """A `paceline.drafters.head.Head`. `ids` [V']: the target's id of each of its tokens."""

    def __init__(
        self, config: Eagle3Config, parts: Parts, embed: Product, ids: Tensor | None
    ) -> None:
        layer = config.layer
        assert config.taps is not None
        self.config = config
        self.taps = list(config.taps)
        self.ids = ids
        self.confidence = config.confidence
        self.device, self.dtype = parts.device, parts.dtype
        self._embed = embed

        def norm(name: str) -> RmsNorm:
            return RmsNorm(parts.vector(f"{name}.weight"), layer.eps)

        def maybe(name: str) -> RmsNorm | None:
            return norm(name) if f"{name}.weight" in parts else None

        self._joint_norm = norm("input_norm") if config.norm_before_fc else None
        each = range(len(self.taps)) if config.fc_norm else ()
        self._each_norm = [norm(f"fc_norm.{i}") for i in each]
        self._fc = parts.linear("fc")
        self._input_norm = norm("layer.input_layernorm")
        self._hidden_norm = norm("layer.hidden_norm")
        self._qkv = parts.linear(*(f"layer.self_attn.{x}_proj" for x in "qkv"))
        self._q_norm, self._k_norm = (maybe(f"layer.self_attn.{x}_norm") for x in "qk")
        self._o = parts.linear("layer.self_attn.o_proj")
        self._ffn_norm = norm("layer.post_attention_layernorm")
        self._gate_up = parts.linear("layer.mlp.gate_proj", "layer.mlp.up_proj")
        self._down = parts.linear("layer.mlp.down_proj")
        self._norm = norm("norm")
        self._head = parts.linear("lm_head")
        gelu = partial(F.gelu, approximate="tanh")
        self._act = F.silu if layer.activation == "silu" else gelu
        table = frequencies(layer.rope_theta, layer.head_dim, layer.rope_scaling)
        self._rope = Rope(table, layer.attn_scale, self.dtype, self.device)

    def over(self, target: CachedModel) -> Follower:
        """See `paceline.drafters.head.Head`."""
        return Follower(target, self)

    def new_cache(self, batch: int, length: int) -> Tensor:
        """Keys and values [2, batch, kv_heads, length, head_dim]."""
        layer = self.config.layer
        self._rope.grow(length)
        shape = (2, batch, layer.kv_heads, length, layer.head_dim)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def combine(self, features: Tensor) -> Tensor:
        """See `paceline.core.follower.Follows`."""
        x = features.to(self.dtype).flatten(0, 1)
        if self._joint_norm:
            x = self._joint_norm(x)
        if self._each_norm:
            parts = x.split(self.config.features, -1)
            pairs = zip(self._each_norm, parts, strict=True)
            x = torch.cat([norm(part) for norm, part in pairs], -1)
        return self._fc(x).view(*features.shape[:2], -1)

    def forward(
        self,
        states: Tensor,
        tokens: Tensor,
        at: Sequence[int],
        cache: Tensor,
        rows: Sequence[int],
        *,
        parents: Tensor | None = None,
    ) -> Tensor:
        """See `paceline.core.follower.Follows`."""
        batch, count, _ = states.shape
        x = states.flatten(0, 1)
        normed = self._hidden_norm(x)
        residual = normed if self.config.norm_before_residual else x
        embedded = self._input_norm(self._embed(tokens.flatten()))
        qkv = self._qkv(torch.cat((embedded, normed), -1)).view(batch, count, -1)
        x = self._o(self._attend(qkv, at, cache, rows, parents)) + residual
        gate, up = self._gate_up(self._ffn_norm(x)).chunk(2, -1)
        x = self._down(self._act(gate) * up) + x
        if self.config.norm_output:
            x = self._norm(x)
        return x.view(batch, count, -1)

    def score(self, states: Tensor) -> Tensor:
        """See `paceline.core.follower.Follows`."""
        return self._head(states if self.config.norm_output else self._norm(states)).float()

    def _attend(
        self,
        qkv: Tensor,
        at: Sequence[int],
        cache: Tensor,
        into: Sequence[int],
        parents: Tensor | None,
    ) -> Tensor:
        """Write the keys and values of `qkv` [B, T, …] into rows `into` of `cache` and attend: what
        all heads see, side by side [B * T, heads * head_dim]."""
        layer = self.config.layer
        heads, shared, dim = layer.heads, layer.kv_heads, layer.head_dim
        rows, count, _ = qkv.shape
        qkv = qkv.view(rows, count, -1, dim)
        qk = qkv[:, :, : heads + shared]
        if self._q_norm and self._k_norm:
            qk[:, :, :heads] = self._q_norm(qk[:, :, :heads])
            qk[:, :, heads:] = self._k_norm(qk[:, :, heads:])
        tree = None if parents is None else _paths(at, count, parents)
        cos, sin = (
            torch.stack([table[start : start + count, None] for start in at])
            if tree is None
            else table[_places(tree)][:, :, None]
            for table in (self._rope.cos, self._rope.sin)
        )
        turned = qk.roll(dim // 2, -1)
        qk.mul_(cos).addcmul_(turned, sin)
        for b, (row, start) in enumerate(zip(into, at, strict=True)):
            fresh = qkv[b, :, heads:].unflatten(1, (2, shared))
            cache[:, row, :, start : start + count] = fresh.permute(1, 2, 0, 3)
        q = qkv[:, :, :heads].unflatten(2, (shared, -1))
        keys, values = ([part[row] for row in into] for part in cache)
        if tree:
            return _along(q, keys, values, tree).reshape(rows * count, -1)
        if self.device.type == "cpu":
            return _exactly(q, keys, values, at).reshape(rows * count, -1)
        return _together(q, torch.stack(keys), torch.stack(values), at).reshape(rows * count, -1)


def _exactly(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], at: Sequence[int]
) -> Tensor:
    """Attention position by position: each has the same products whatever is read along with it,
    and so the same bits; few are read at a time, but for the prompt."""
    out: list[Tensor] = []
    for b, start in enumerate(at):
        k, v = keys[b], values[b]
        for t in range(q.shape[1]):
            end = start + t + 1
            weights = torch.softmax(torch.bmm(q[b, t], k[:, :end].mT), -1)
            out.append(torch.bmm(weights, v[:, :end]))
    return torch.stack(out)


_Node = tuple[int, list[int]]  # so many first entries, and those of the path to it


def _paths(at: Sequence[int], count: int, parents: Tensor) -> list[list[_Node]]:
    """What each of the last `count` nodes of every row's tree sees."""
    before, found = parents.shape[1] - count, []
    for start, row in zip(at, parents.tolist(), strict=True):
        base = start - before
        nodes = range(before, len(row))
        found.append([(base, [base + i for i in ancestry(row, node)]) for node in nodes])
    return found


def _places(tree: list[list[_Node]]) -> Tensor:
    return torch.tensor([[base + len(path) - 1 for base, path in nodes] for nodes in tree])


def _along(
    q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], tree: list[list[_Node]]
) -> Tensor:
    """Attention of a tree's nodes, within rounding of a chain's."""
    out: list[Tensor] = []
    for b, nodes in enumerate(tree):
        for t, (base, path) in enumerate(nodes):
            own_keys, own_values = keys[b][:, path], values[b][:, path]
            first = torch.bmm(q[b, t], keys[b][:, :base].mT)
            weights = torch.softmax(torch.cat([first, torch.bmm(q[b, t], own_keys.mT)], -1), -1)
            seen = torch.bmm(weights[..., :base], values[b][:, :base])
            out.append(seen + torch.bmm(weights[..., base:], own_values))
    return torch.stack(out)


def _together(q: Tensor, keys: Tensor, values: Tensor, at: Sequence[int]) -> Tensor:
    """The same in one call, for CUDA."""
    rows, count, shared, group, dim = q.shape
    end = max(at) + count
    last = torch.tensor(at)[:, None] + torch.arange(count)
    seen = torch.arange(end) <= last[..., None]
    y = F.scaled_dot_product_attention(
        q.permute(0, 2, 3, 1, 4).reshape(rows, shared * group, count, dim),
        keys[:, :, :end],
        values[:, :, :end],
        attn_mask=seen[:, None].to(q.device),
        scale=1.0,
        enable_gqa=True,
    )
    return y.transpose(1, 2)
