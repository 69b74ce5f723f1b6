"""Each row by the drafter that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import torch

from paceline.core.protocols import Drafter, Syncs
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.first_of import merge


class Each:
    """The first of `drafters`, by name, or for rows that name another, that one. A name that is
    none of them (such as "none") stands for no draft."""

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self.drafters = drafters
        self._first = next(iter(drafters))

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """What each row's drafter proposes."""
        groups = self._groups(seqs, k)
        if not groups:
            none = torch.zeros(seqs.batch, 0, dtype=torch.int64)
            return Draft(none, [0] * seqs.batch, by=[-1] * seqs.batch)
        return reduce(merge, (drafter.propose(seqs.only(rows), k) for drafter, rows in groups))

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `Syncs`: each row's drafter, those that read."""
        left = 0
        for drafter, rows in self._groups(seqs, [1] * seqs.batch):
            if isinstance(drafter, Syncs):
                left += drafter.sync(seqs.only(rows), budget)
        return left

    def _groups(self, seqs: Sequences, k: Sequence[int]) -> list[tuple[Drafter, list[int]]]:
        """The drafters that rows ask for, with these rows: those that run and may draft."""
        rows: dict[str, list[int]] = {}
        for b, params in enumerate(seqs.params):
            if seqs.running[b] and k[b]:
                rows.setdefault(params.draft or self._first, []).append(b)
        return [(self.drafters[name], rows[name]) for name in rows if name in self.drafters]
