"""Decoder-only transformers on the native kernels: a whole pass is one call into C++."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from paceline import kernels
from paceline.core.types import Output
from paceline.errors import PacelineError
from paceline.models.cache import Cache
from paceline.models.config import Config
from paceline.models.rope import Rope, frequencies
from paceline.models.trees import up_to

if TYPE_CHECKING:
    from paceline.kernels._native import Decoder, Engine, Layer, Linear, Matrix

PASS = 64
"""Positions (over all rows) that one pass reads at most: bounds memory on a long prompt, and how
long an interrupt has to wait."""


class Weights(Protocol):
    """What the transformer is built from, under Hugging Face's names."""

    def vector(self, name: str) -> Tensor:
        """A norm's weight "X.weight" [D] float32: what the norm multiplies by."""
        ...

    def matrix(self, name: str) -> Matrix:
        """The matrix "X.weight" [out, in]."""
        ...

    def bias(self, name: str) -> Tensor | None:
        """The bias "X.bias" [out] float32; None where there is none."""
        ...


class NativeTransformer:
    """A `paceline.core.protocols.Model` that computes on `engine`, on a CPU; it `Ranks`, is
    `Branching` and `Ragged`, and `Copies`, too.

    A position's logits depend on its row's tokens up to it (those on its path, in a tree) and on
    nothing else, to the bit: not on how they were cut into passes, nor on the other rows or
    branches, nor on the number of threads. Two engines of different instruction sets agree within
    rounding. `nbytes`: how much of its weights one pass reads. Passes of one model run one at a
    time, whichever threads ask for them.

    Raises PacelineError for a head_dim that the kernels do not take (no multiple of 8).
    """

    ragged = True

    def __init__(self, config: Config, weights: Weights, engine: Engine) -> None:
        if config.head_dim % 8:
            raise PacelineError(
                f"head_dim {config.head_dim} is no multiple of 8, which the native kernels need; "
                "use --dtype fp32"
            )
        native = kernels.load()
        self.config = config
        self.vocab_size = config.vocab_size
        self.context = config.context
        self.device = torch.device("cpu")
        self.engine = engine
        self._dim = config.hidden
        self._taps: list[int] = []
        self.embedding = weights.matrix("model.embed_tokens.weight")
        self._norm = weights.vector("model.norm.weight")
        self.head = self.embedding if config.tied else weights.matrix("lm_head.weight")
        bias = None if config.tied else weights.bias("lm_head.bias")
        self._head = native.Linear([self.head], bias)
        self._layers = [layer(config, weights, i) for i in range(config.layers)]
        self._decoder = self.decoder(range(config.layers))
        self.nbytes = int(self._decoder.nbytes)
        plain = frequencies(config.rope_theta, config.head_dim, config.rope_scaling)
        near = frequencies(config.rope_local_theta, config.head_dim)
        whole, local = (
            Rope(f, config.attn_scale, torch.float32, self.device) for f in (plain, near)
        )
        same = config.family != "gemma3"  # elsewhere a window changes the mask alone
        self._ropes = [whole, whole if same else local]

    def decoder(
        self,
        layers: Sequence[int],
        *,
        head: Linear | None = None,
        own: Mapping[int, Layer] | None = None,
    ) -> Decoder:
        """Some of the layers, in that order, over the whole model's caches; with `head`
        [vocabulary, D] it reads states instead of tokens, and scores with that. `own`: what runs in
        the place of some layers."""
        config = self.config
        whole = list(layers) == list(range(config.layers))
        return kernels.load().Decoder(
            layers=[(own or {}).get(i, self._layers[i]) for i in layers],
            slots=[] if whole else list(layers),
            embedding=None if head else self.embedding,
            norm=self._norm,
            head=head or self._head,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            eps=config.eps,
            embed_scale=config.embed_scale,
            gelu=config.activation != "silu",
            window=config.sliding_window or 0,
        )

    def with_layers(self, keep: Sequence[int]) -> NativeTransformer:
        """The same model without the layers that are not in `keep` (ascending). It shares all
        weights, and runs over its own caches or over those of the whole model."""
        other = copy.copy(self)
        other._decoder = self.decoder(keep)
        other.nbytes = int(other._decoder.nbytes)
        return other

    def tapped(self, layers: Sequence[int]) -> NativeTransformer:
        """See `paceline.core.protocols.Tapped`."""
        other = copy.copy(self)
        other._taps = sorted(set(layers))
        return other

    def set_ropes(self, decoder: Decoder, length: int) -> None:
        """Give one of the model's decoders its tables for positions up to `length`."""
        for local, rope in enumerate(self._ropes):
            rope.grow(length)
            decoder.set_rope(bool(local), rope.cos, rope.sin)

    def new_cache(self, batch: int, length: int) -> Cache:
        """Room for `batch` rows of at least `length` positions."""
        cache = Cache(self.config, batch, length, torch.float32, self.device)
        self.reach(cache.length)
        return cache

    def reach(self, length: int) -> None:
        """Be ready for positions up to `length`, in a cache that another model made."""
        self.set_ropes(self._decoder, length)

    def forward(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Cache,
        *,
        row: int = 0,
        logits: bool = True,
        parents: Tensor | None = None,
        rows: Sequence[int] | None = None,
        counts: Sequence[int] | None = None,
    ) -> Output:
        """See `paceline.core.protocols.Model`, `Branching` and `Ragged`. No gradients flow through
        it.

        Raises ValueError for positions that do not fit the cache and for parents that are no tree,
        IndexError for a token that the vocabulary does not have.
        """
        scores = torch.empty(*tokens.shape, self.vocab_size) if logits else None
        out = Output(scores, self._hidden(tokens))
        rows = range(row, row + len(tokens)) if rows is None else rows
        self._read(tokens, at, cache, rows, out, None, parents, counts)
        return out

    def best(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Cache,
        *,
        row: int = 0,
        limit: int | None = None,
        parents: Tensor | None = None,
        rows: Sequence[int] | None = None,
        counts: Sequence[int] | None = None,
    ) -> Output:
        """See `paceline.core.protocols.Ranks`. The logits are never written down."""
        top = torch.empty(*tokens.shape, dtype=torch.int64)
        out = Output(None, self._hidden(tokens), top)
        rows = range(row, row + len(tokens)) if rows is None else rows
        self._read(tokens, at, cache, rows, out, limit, parents, counts)
        return out

    def move(self, cache: Cache, row: int, source: Sequence[int], start: int) -> None:
        """See `paceline.core.protocols.Branching`."""
        cache.move(row, source, start)

    def copy(self, cache: Cache, source: int, row: int, count: int) -> None:
        """See `paceline.core.protocols.Copies`."""
        cache.copy(source, row, count)

    def _hidden(self, tokens: Tensor) -> Tensor:
        return torch.empty(*tokens.shape, self._dim * max(1, len(self._taps)))

    def _read(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Cache,
        rows: Sequence[int],
        out: Output,
        limit: int | None,
        parents: Tensor | None,
        counts: Sequence[int] | None,
    ) -> None:
        """All of `tokens`, pass by pass, into those tensors of `out` that are there."""
        batch, count = tokens.shape
        read = batch * count if counts is None else sum(counts)
        step = max(1, PASS // max(1, batch))
        if read > PASS and count > step:
            for i in range(0, count, step):
                part = None if counts is None else [min(step, max(0, n - i)) for n in counts]
                if part is not None and not any(part):
                    break
                wholes = [None if t is None else t[:, i : i + step] for t in _tensors(out)]
                parts = [None if t is None else t.contiguous() for t in wholes]
                places = [p + i for p in at]
                piece, known = tokens[:, i : i + step], up_to(parents, count, i + step)
                self._read(piece, places, cache, rows, Output(*parts), limit, known, part)
                for whole, part in zip(wholes, parts, strict=True):
                    if whole is not None and part is not None and part is not whole:
                        whole.copy_(part)  # several rows: a slice has gaps
            return
        # NumPy's arrays cross over in a tenth of the time that tensors take (DLPack).
        scores, hidden, top = (None if t is None else t.numpy() for t in _tensors(out))
        tree = {} if parents is None else {"parents": parents.contiguous().numpy()}
        self._decoder.forward(
            self.engine,
            tokens.contiguous().numpy(),
            at,
            cache.data.numpy(),
            rows,
            hidden,
            scores,
            top,
            limit,
            self._taps,
            counts=counts,
            **tree,
        )


def _tensors(out: Output) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    return out.logits, out.hidden, out.top


def layer(config: Config, weights: Weights, i: int) -> Layer:
    """Block `i` of a model of this shape."""
    at = f"model.layers.{i}."

    def norm(name: str, wanted: bool = True) -> Tensor | None:
        return weights.vector(f"{at}{name}.weight") if wanted else None

    def linear(*names: str) -> Linear:
        return joined(weights, *(at + name for name in names))

    post = config.post_norms
    return kernels.load().Layer(
        norm=norm("input_layernorm"),
        qkv=linear(*(f"self_attn.{x}_proj" for x in "qkv")),
        o=linear("self_attn.o_proj"),
        ffn_norm=norm("pre_feedforward_layernorm" if post else "post_attention_layernorm"),
        gate_up=linear("mlp.gate_proj", "mlp.up_proj"),
        down=linear("mlp.down_proj"),
        q_norm=norm("self_attn.q_norm", config.qk_norm),
        k_norm=norm("self_attn.k_norm", config.qk_norm),
        post_attention=norm("post_attention_layernorm", post),
        post_ffn=norm("post_feedforward_layernorm", post),
        local=config.local[i],
    )


def joined(weights: Weights, *names: str) -> Linear:
    """The matrices "X.weight" on one input, with the biases "X.bias" where there are any."""
    matrices = [weights.matrix(f"{name}.weight") for name in names]
    biases = [weights.bias(f"{name}.bias") for name in names]
    whole = None
    if any(bias is not None for bias in biases):
        whole = torch.cat(
            [
                torch.zeros(matrix.shape[0]) if bias is None else bias.float()
                for matrix, bias in zip(matrices, biases, strict=True)
            ]
        )
    return kernels.load().Linear(matrices, whole)
