"""The same window in every round."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.sequences import Sequences
from paceline.core.types import Round


class Fixed:
    """`k` tokens a round, fewer only where a row has no room for them: a round commits one token
    more than it accepts, so the last token of a row is never worth a draft."""

    def __init__(self, k: int) -> None:
        self.k = k

    def window(self, seqs: Sequences) -> Sequence[int]:
        """K of each row; 0 for rows that are not running."""
        return [
            max(0, min(self.k, limit - length - 1)) if run else 0
            for limit, length, run in zip(seqs.limits, seqs.lengths, seqs.running, strict=True)
        ]

    def observe(self, round: Round) -> None:
        """Nothing to learn."""
