"""Two more tokens after a draft that was accepted whole, one fewer after any other: transformers'
`num_assistant_tokens_schedule="heuristic_transient"` (5.24)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.controllers.fixed import room
from paceline.controllers.rules import PerRequest, within
from paceline.core.sequences import Sequences
from paceline.core.types import Round


@dataclass
class _Length:
    tokens: int


class Heuristic:
    """n tokens a round: `start` at first, then n + 2 after a draft that was accepted whole and
    max(1, n - 1) after any other, never more than `k`. Each request has its own n; a round without
    a draft leaves it as it is. Raises PacelineError if k is negative or start less than 1."""

    def __init__(self, k: int, start: int = 5) -> None:
        self.k = int(within("K", k, 0, float("inf")))
        first = int(within("heuristic: the first window", start, 1, float("inf")))
        self._lengths = PerRequest(lambda: _Length(min(first, k)))

    def window(self, seqs: Sequences) -> Sequence[int]:
        """n of each row, or what there is room for."""
        self._lengths.begin(seqs)
        most = room(seqs, self.k)
        return [min(n, self._lengths[b].tokens) for b, n in enumerate(most)]

    def observe(self, round: Round) -> None:
        """Longer or shorter, row by row."""
        for b, emitted in enumerate(round.emitted):
            if emitted is None or not emitted.drafted:
                continue
            length = self._lengths[b]
            if emitted.accepted == emitted.drafted:
                length.tokens = min(self.k, length.tokens + 2)
            else:
                length.tokens = max(1, length.tokens - 1)
