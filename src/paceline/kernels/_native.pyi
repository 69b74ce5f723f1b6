from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any  # a C-contiguous array on a CPU: numpy's, torch's, whatever speaks DLPack

class Engine:
    """Threads and an instruction set; every computation runs on one. One of an engine's
    computations runs at a time: a second caller waits."""

    def __init__(self, threads: int, isa: str | None = None) -> None:
        """`isa`: one of isas(), the best by default. ValueError for another, or threads < 1."""

    @property
    def threads(self) -> int: ...
    @property
    def isa(self) -> str: ...

def isas() -> list[str]:
    """The instruction sets that this build has and this machine can run, best first."""

class Matrix:
    """A weight [rows, cols], laid out for the products with it."""

    @staticmethod
    def from_gguf(
        engine: Engine, ggml_type: int, raw: Array, cols: int, order: Array | None = None
    ) -> Matrix:
        """Every value of a GGUF tensor, without loss. `ggml_type`: its number in the file; `raw`
        [rows, row_bytes] uint8, the file's bytes; `order` [n] int32: row i is raw's row order[i].
        ValueError for another type, or sizes that do not fit."""

    @staticmethod
    def empty(kind: str, rows: int, cols: int) -> Matrix:
        """Zeros of kind int4, int8 or fp16, to be filled. ValueError for another."""

    @staticmethod
    def packed(kind: str, rows: int, cols: int, data: Array) -> Matrix:
        """The matrix whose `data` these bytes [nbytes] uint8 are: used where they lie, not copied.
        ValueError for another kind or size."""

    def fill(self, engine: Engine, first_row: int, values: Array) -> None:
        """Rows from `first_row` (a multiple of 8) on become `values` [n, cols] float32, rounded to
        the kind; n is a multiple of 8 or reaches the last row. ValueError for sizes that do not fit
        and for a kind that empty() does not make."""

    def rows(self, ids: Array) -> np.ndarray:
        """`ids` [n] int64 -> those rows [n, cols] float32; IndexError for one that is not there."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def kind(self) -> str: ...
    @property
    def data(self) -> np.ndarray:
        """The bytes as they lie in memory [nbytes] uint8: the matrix itself, for reading."""
    @property
    def nbytes(self) -> int: ...

class Linear:
    """Matrices one below the other, and a bias: y = x W' + b. Each may be of a kind of its own."""

    def __init__(self, matrices: list[Matrix], bias: Array | None = None) -> None:
        """`bias` [rows] float32. ValueError where the parts do not fit together."""

    @property
    def nbytes(self) -> int:
        """What one product reads of the weights."""
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    def __call__(self, engine: Engine, x: Array) -> np.ndarray:
        """x [n, cols] float32 -> [n, rows]; a row depends on that row of x alone, to the bit."""

class Layer:
    """One block's parts: norms [hidden] float32 (q_norm, k_norm [head_dim]) and products."""

    def __init__(
        self,
        *,
        norm: Array,
        qkv: Linear,
        o: Linear,
        ffn_norm: Array,
        gate_up: Linear,
        down: Linear,
        q_norm: Array | None = None,
        k_norm: Array | None = None,
        post_attention: Array | None = None,
        post_ffn: Array | None = None,
        local: bool = False,
    ) -> None: ...

class Decoder:
    """A decoder-only transformer in one call. Its calls run one at a time: a second caller waits.

    What a position gives depends on its row's tokens up to it (those on its path, in a tree) alone,
    to the bit.
    """

    def __init__(
        self,
        *,
        layers: list[Layer],
        embedding: Matrix | None,
        norm: Array,
        head: Linear,
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
        embed_scale: float = 1.0,
        gelu: bool = False,
        window: int = 0,
        slots: list[int] = ...,
    ) -> None:
        """ValueError where the parts do not fit together, or for a head_dim that is no multiple of
        8. `window`: how many positions a local layer sees (0: all). Layer i reads and writes the
        cache's layer slots[i] (none given: i). Without an embedding (None) it reads states."""

    @property
    def nbytes(self) -> int:
        """What one pass reads of the weights, with the output layer."""
    def set_rope(self, local: bool, cos: Array, sin: Array) -> None:
        """Tables [length, head_dim] float32 (see models/rope.py) for the local layers, or for the
        others; both must be set before the first pass. They are kept, not copied."""
    def forward(
        self,
        engine: Engine,
        tokens: Array | None,
        at: Sequence[int],
        cache: Array,
        rows: Sequence[int],
        hidden: Array,
        logits: Array | None = None,
        top: Array | None = None,
        limit: int | None = None,
        taps: list[int] = ...,
        states: Array | None = None,
        parents: Array | None = None,
        counts: Sequence[int] | None = None,
    ) -> None:
        """Read `tokens` [B, T] int64, row b from position at[b] on, into row rows[b] of `cache`
        [layers, 2, batch, kv_heads, length, head_dim] float32; write `hidden` [B, T, D],
        and `logits` [B, T, V] and `top` [B, T] int64 (the likeliest of the first `limit` ids) where
        they are given. With `states` [B, T, D] in place of tokens these enter the first layer. With
        `taps` (ascending) `hidden` is [B, T, taps * D]: the states that enter these layers, or for
        the number of layers leave the last, instead of what the final norm gives. With `parents`
        [B, M] int64 they are the last T of M nodes of a tree (see `core.protocols.Branching`). With
        `counts` only the first counts[b] tokens of row b are read, and nothing is written for the
        others.
        ValueError for sizes or positions that do not fit and for parents that are no tree,
        IndexError for a token that is none: then nothing has been read."""
