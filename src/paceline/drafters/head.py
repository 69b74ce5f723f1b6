"""A trained head guesses from what the target has computed already.

EAGLE (Li et al. 2024) and what followed it: the target's own states say more about its next tokens
than the tokens themselves, so a head of one layer that reads them drafts as well as a far larger
model of its own. The head never changes them; the target owes it nothing but to keep them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from paceline.core.cached import CachedModel
from paceline.core.protocols import Pace, Syncs
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.grow import Growth, TreeSize
from paceline.drafters.sampling import Chain, Doubts, Reads, growing


class Head(Protocol):
    """A trained head, loaded. `taps`: the target's layers whose entering states it reads (see
    `CachedModel.tap`). `ids` [V'] int64: the target's id of each of its logits; None: the same ids.
    `confidence`: the draft ends where it falls below (see `Doubts`); 0: never."""

    @property
    def taps(self) -> Sequence[int]: ...
    @property
    def ids(self) -> Tensor | None: ...
    @property
    def confidence(self) -> float: ...

    def over(self, target: CachedModel) -> Reads:
        """What reads `target`'s rows, its layers tapped, with a state of its own. Only rows of two
        committed tokens or more are running there; what it gives for the others does not matter.
        `read` has the target read first (`CachedModel.sync`)."""
        ...


class HeadDrafter:
    """Drafts with `head` for the rows of `target`, at each row's own temperature and truncation, or
    at `temperature` (see `Chain`), as far as `pace` says or, without one, the head's `confidence`;
    with `tree` trees (see `Growth`), whatever these say. Raises ValueError where `target` keeps the
    states of other layers for another head already, or cannot keep any, and where the head cannot
    read a tree."""

    def __init__(
        self,
        target: CachedModel,
        head: Head,
        temperature: float | None = None,
        tree: TreeSize | None = None,
        pace: Pace | None = None,
    ) -> None:
        target.tap(head.taps)
        self._reads = reads = head.over(target)
        if tree:
            self._drafts = Growth(growing(reads), tree, temperature, head.ids, target.vocab)
        else:
            own = Doubts(head.confidence) if head.confidence > 0 else None
            self._drafts = Chain(reads, temperature, head.ids, target.vocab, pace or own)

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `paceline.core.protocols.Syncs`; what the target has not read counts for nothing."""
        return self._reads.sync(seqs, budget) if isinstance(self._reads, Syncs) else 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """At most `k[b]` tokens one behind the other for each running row, and none for one of a
        single token: the target has not read anything of it that a head could look at."""
        rows = zip(k, seqs.lengths, seqs.running, strict=True)
        lengths = [n if run and length > 1 else 0 for n, length, run in rows]
        if not max(lengths):
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), lengths)
        drafting = seqs.only([b for b, n in enumerate(lengths) if n])
        return self._drafts.propose(drafting, lengths)
