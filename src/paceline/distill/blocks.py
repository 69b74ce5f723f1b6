"""The target's own blocks as torch modules, through which gradients flow.

The same arithmetic as `models/transformer.py` and the native kernels, in float32, for whole
sequences at a time. Names are Hugging Face's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.models.config import Config
from paceline.models.rope import frequencies

KeysValues = tuple[Tensor, Tensor]
"""Keys and values, each [B, kv_heads, S, head_dim]; the keys are rotated and carry the root of the
score's scale, as in the target's cache."""


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x * weight / sqrt(mean(x^2) + eps) over the last dimension."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


class RmsNorm(nn.Module):
    """`rms_norm` with a weight [dim] of its own."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self._eps)


class Attention(nn.Module):
    """Grouped-query attention of layer `layer` of `config`; queries, keys and values are made of
    `width` features (None: the model's own; EAGLE-3's twice that)."""

    def __init__(self, config: Config, layer: int, width: int | None = None) -> None:
        super().__init__()
        self._groups = (config.kv_heads, config.heads // config.kv_heads)
        self._dim, self._scale = config.head_dim, math.sqrt(config.attn_scale)
        local = config.local[layer]
        self._window = config.sliding_window if local else None
        near = local and config.family == "gemma3"  # elsewhere a window changes the mask alone
        theta = config.rope_local_theta if near else config.rope_theta
        scaling = None if near else config.rope_scaling
        turns = frequencies(theta, config.head_dim, scaling)
        self._turns: Tensor
        self.register_buffer("_turns", turns, persistent=False)
        queries, keys = config.heads * config.head_dim, config.kv_heads * config.head_dim
        width = width or config.hidden
        self.q_proj = nn.Linear(width, queries, bias=config.qkv_bias)
        self.k_proj = nn.Linear(width, keys, bias=config.qkv_bias)
        self.v_proj = nn.Linear(width, keys, bias=config.qkv_bias)
        self.o_proj = nn.Linear(queries, config.hidden, bias=False)
        self.q_norm = RmsNorm(config.head_dim, config.eps) if config.qk_norm else None
        self.k_norm = RmsNorm(config.head_dim, config.eps) if config.qk_norm else None

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        context: KeysValues | None = None,
        seen: Tensor | None = None,
        own: Sequence[KeysValues] = (),
    ) -> tuple[Tensor, KeysValues]:
        """`x` [B, T, width] at `positions` [T] (the same in every row) -> [B, T, D], and the keys
        and values of these T entries.

        Without `context` each entry attends to those up to itself. With it, entry i attends to the
        context's first `seen[i]` positions (its entry s stands at position s), to entry i of each
        of `own`, which are earlier calls' results, and to itself: an unrolled step, where each
        anchor has a past of its own. Local layers see no further back than their window.
        """
        rows, count, _ = x.shape
        kv, group = self._groups
        q = self.q_proj(x).view(rows, count, kv * group, self._dim)
        k = self.k_proj(x).view(rows, count, kv, self._dim)
        v = self.v_proj(x).view(rows, count, kv, self._dim).transpose(1, 2)
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (self._rotate(t, positions).transpose(1, 2) for t in (q, k))
        q = q.reshape(rows, kv, group, count, self._dim)
        index = torch.arange(count, device=x.device)
        if context is None:
            keys, values, places = k, v, positions
            allowed = index <= index[:, None]
        else:
            assert seen is not None
            (keys, values), own = context, [*own, (k, v)]
            places = torch.arange(keys.shape[2], device=x.device)
            allowed = places < seen[:, None]
        if self._window is not None:
            allowed = allowed & (places > positions[:, None] - self._window)
        y = self._attend(q, keys, values, allowed, [] if context is None else own)
        y = y.reshape(rows, kv * group, count, self._dim).transpose(1, 2)
        return self.o_proj(y.reshape(rows, count, -1)), (k, v)

    def _attend(
        self,
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        allowed: Tensor,
        own: Sequence[KeysValues],
    ) -> Tensor:
        """[B, kv, group, T, head_dim]: one softmax over the context and over each query's own."""
        mask = torch.zeros(allowed.shape, device=q.device).masked_fill_(~allowed, -math.inf)
        shape, flat = q.shape, q.flatten(2, 3)  # one product a key head: its keys are not copied
        scores = (flat @ keys.to(q.dtype).transpose(-1, -2)).view(*shape[:-1], -1) + mask
        size = scores.shape[-1]
        each = [(q * k[:, :, None].to(q.dtype)).sum(-1, keepdim=True) for k, _ in own]
        weights = torch.softmax(torch.cat([scores.float(), *(e.float() for e in each)], -1), -1)
        weights = weights.to(q.dtype)
        y = (weights[..., :size].flatten(2, 3) @ values.to(q.dtype)).view(shape)
        for i, (_, v) in enumerate(own):
            y = y + weights[..., size + i, None] * v[:, :, None].to(q.dtype)
        return y

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        """Turn the pairs of `x` [B, T, heads, head_dim] by their positions; see `rope.py`."""
        angle = positions[:, None].float() * self._turns
        cos = torch.cat([angle.cos(), angle.cos()], -1)[:, None] * self._scale
        sin = torch.cat([-angle.sin(), angle.sin()], -1)[:, None] * self._scale
        return x * cos + x.roll(self._dim // 2, -1) * sin


class Mlp(nn.Module):
    """down(act(gate x) * up x)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.ffn, bias=False)
        self.down_proj = nn.Linear(config.ffn, config.hidden, bias=False)
        self._silu = config.activation == "silu"

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate_proj(x)
        gate = F.silu(gate) if self._silu else F.gelu(gate, approximate="tanh")
        return self.down_proj(gate * self.up_proj(x))


class Block(nn.Module):
    """One decoder block of `config`; `layer` says whether it is a local one."""

    def __init__(self, config: Config, layer: int) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden, config.eps)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = RmsNorm(config.hidden, config.eps)
        self.mlp = Mlp(config)
        self._post = config.post_norms
        if self._post:
            self.pre_feedforward_layernorm = RmsNorm(config.hidden, config.eps)
            self.post_feedforward_layernorm = RmsNorm(config.hidden, config.eps)

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        context: KeysValues | None = None,
        seen: Tensor | None = None,
        own: Sequence[KeysValues] = (),
    ) -> tuple[Tensor, KeysValues]:
        """The state that leaves the block, and its keys and values: see `Attention.forward`."""
        y, entries = self.self_attn(self.input_layernorm(x), positions, context, seen, own)
        if self._post:
            x = x + self.post_attention_layernorm(y)
            y = self.mlp(self.pre_feedforward_layernorm(x))
            return x + self.post_feedforward_layernorm(y), entries
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), entries
