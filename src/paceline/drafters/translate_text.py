"""A model of another vocabulary guesses text (SLEM, string-level exact match; Timor et al. 2025,
arXiv 2502.05202, Algorithm 2).

The draft reads the committed text in its own tokens, continues it greedily, and what it says is
encoded as the target would. Such a draft is a point mass: a token is emitted only where it is the
target's own choice, or drawn from the residual, so the output is the target's whatever the
translation is worth.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.translated import Reader

_MORE = 16  # ids of the draft's that a window may take beyond one for each token of the target's


class RewritesTokens(Protocol):
    """The target's ids for what the draft says."""

    def ends(self, draft_id: int) -> bool:
        """Whether nothing can be drafted behind this id."""
        ...

    def added(self, draft_id: int, longer: int) -> list[int]:
        """The draft's ids for what its token `longer` adds to the string of `draft_id`; none where
        there are none."""
        ...

    def rewrite(self, tail: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """The target's ids for the draft's ids `drafted` behind the target's tokens `tail`: none
        where there are none."""
        ...


class TranslateText:
    """Drafts greedily for every row that it is asked for."""

    def __init__(self, reader: Reader, text: RewritesTokens) -> None:
        self.reader = reader
        self.text = text

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `Reader.sync`: whoever else drafts with the same reader reads no more."""
        return self.reader.sync(seqs, budget)

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """At most `k[b]` tokens: fewer where the draft model would end, has no distribution or
        reaches its context, or where what it says cannot be encoded."""
        steps = self.reader.follow(seqs, [min(2 * n, n + _MORE) for n in k])
        rows = {b for b, n in enumerate(steps) if n}
        tails = {b: self.reader.tail(seqs, b) for b in rows}
        drafted: dict[int, list[int]] = {b: [] for b in rows}
        drafts: list[list[int]] = [[] for _ in steps]
        said: list[int] = []
        for j in range(max(steps)):
            said, added = (self._next(said, j - 1), {}) if j else self._first(rows, seqs.batch)
            for b in tuple(rows):
                if said[b] >= 0:
                    drafted[b] += added.get(b, [said[b]])
                    drafts[b] = self.text.rewrite(tails[b], drafted[b])[: k[b]]
                full = len(drafts[b]) == k[b] or j + 1 == steps[b]
                if full or said[b] < 0 or self.text.ends(said[b]):
                    rows.discard(b)
            if not rows:
                break
        lengths = [len(draft) for draft in drafts]
        width = max(lengths)
        padded = [draft + [0] * (width - len(draft)) for draft in drafts]
        return Draft(torch.tensor(padded, dtype=torch.int64).reshape(seqs.batch, width), lengths)

    def _first(self, rows: Collection[int], batch: int) -> tuple[list[int], dict[int, list[int]]]:
        """The first id of each of `rows`, out of `batch`. It stands in the place of the row's last
        one where the draft model would rather have said a longer token there (see `Reader.longer`):
        with what this adds, in its own ids."""
        last = {b: self.reader.last(b) for b in rows}
        choice = {b: [i, *longer] for b, i in last.items() if (longer := self.reader.longer(b))}
        said: list[int] = [-1] * batch
        added: dict[int, list[int]] = {}
        if choice:
            before = self.reader.before(choice)
            for b, ids in choice.items():
                said[b] = ids[int(before[b, ids].argmax())]
                if said[b] != last[b] and (more := self.text.added(last[b], said[b])):
                    added[b] = more
        if len(added) < len(rows):
            likeliest = _likeliest(self.reader.read())
            said = [said[b] if b in added else i for b, i in enumerate(likeliest)]
        for b in added:
            self.reader.replace_last(b)
        return said, added

    def _next(self, said: Sequence[int], behind: int) -> list[int]:
        fed = torch.tensor(said).clamp(min=0)
        return _likeliest(self.reader.extend(fed, behind))


def _likeliest(logits: Tensor) -> list[int]:
    """The likeliest id of each row of `logits` [B, V]; -1 where there is none."""
    value, ids = logits.max(-1)
    return torch.where(value.isfinite(), ids, -1).tolist()  # pyright: ignore
