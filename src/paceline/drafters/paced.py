"""A drafter that keeps to what a controller says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from paceline.core.protocols import Drafter, Pace, Syncs
from paceline.core.sequences import Sequences
from paceline.core.types import Draft


class Paced:
    """`drafter`, the one of number `index`, for the rows and as far as `pace` allows. Its drafts
    say by whom they are."""

    def __init__(self, drafter: Drafter, pace: Pace, index: int = 0) -> None:
        self.drafter = drafter
        self._pace = pace
        self._index = index

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `paceline.core.protocols.Syncs`."""
        return self.drafter.sync(seqs, budget) if isinstance(self.drafter, Syncs) else 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """What the drafter proposes; nothing for rows for which it is not to be asked."""
        wanted = [n if run else 0 for n, run in zip(k, seqs.running, strict=True)]
        limits = self._pace.limits(wanted)
        rows = [b for b, n in enumerate(limits) if n]
        by = [self._index if n else -1 for n in limits]
        if not rows:
            none = torch.zeros(seqs.batch, 0, dtype=torch.int64)
            return Draft(none, [0] * seqs.batch, by=by)
        draft = replace(self.drafter.propose(seqs.only(rows), limits), by=by)
        if draft.q is not None or draft.parents is not None or draft.sure is None:
            return draft  # of what was drawn nothing may be dropped: what is kept would be chosen
        lengths = self._pace.lengths(rows, draft.sure, draft.lengths)
        return replace(draft, tokens=draft.tokens[:, : max(lengths)], lengths=lengths)
