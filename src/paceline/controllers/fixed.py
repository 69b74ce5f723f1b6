"""The same window in every round."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Round


def room(seqs: Sequences, k: int) -> list[int]:
    """How many of `k` tokens there is room for in each row, and no more than its request wants; 0
    if it is not running: a round commits one token more than it accepts, so the last token of a row
    is never worth a draft."""
    rows = zip(seqs.limits, seqs.lengths, seqs.running, seqs.params, strict=True)
    return [
        max(0, min(_wanted(params, k), limit - length - 1)) if run else 0
        for limit, length, run, params in rows
    ]


def _wanted(params: SamplingParams, k: int) -> int:
    if params.draft == "none":
        return 0
    return k if params.k is None else min(k, params.k)


class Fixed:
    """`k` tokens a round, fewer only where a row has no room for them."""

    def __init__(self, k: int) -> None:
        self.k = k

    def window(self, seqs: Sequences) -> Sequence[int]:
        """K of each row; 0 for rows that are not running."""
        return room(seqs, self.k)

    def observe(self, round: Round) -> None:
        """Nothing to learn."""
