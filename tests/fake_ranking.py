"""A target that can tell its likeliest tokens alone."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fakes import HashLM
from paceline.core.types import Output


class Ranking(HashLM):
    """A HashLM that can tell its likeliest tokens alone, and writes down what it was asked for."""

    asked: list[str]

    def __init__(self, vocab: int = 11, seed: int = 0) -> None:
        super().__init__(vocab, seed)
        self.asked = []

    def forward(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Tensor,
        *,
        row: int = 0,
        logits: bool = True,
        parents: Tensor | None = None,
    ) -> Output:
        self.asked.append("logits" if logits else "nothing")
        return super().forward(tokens, at, cache, row=row, logits=logits, parents=parents)

    def best(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Tensor,
        *,
        row: int = 0,
        limit: int | None = None,
        parents: Tensor | None = None,
    ) -> Output:
        self.asked.append("top")
        scores = super().forward(tokens, at, cache, row=row, parents=parents).logits
        assert scores is not None
        return Output(None, None, scores[..., :limit].argmax(-1))
