"""Prompt lookup: what followed the same words before (Saxena 2023).

The longest n-gram at the end of the committed tokens is looked for among the earlier ones, prompt
and output alike; what followed its latest occurrence is the draft. No model, no q: a point mass.

A short match proves little. After a match of i tokens, fewer than the longest looked for, at most i
are drafted: on prose that loses few accepted tokens and saves more that are drafted in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.sampling import sure_of


class Lookup:
    """Tries n-grams of `longest` tokens down to `shortest`. One scan of the tokens a round."""

    def __init__(self, longest: int = 3, shortest: int = 1) -> None:
        self.longest = longest
        self.shortest = shortest

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Up to `k[b]` tokens for each row in which the last n-gram stands earlier too."""
        nothing = 0, seqs.tokens[0, :0]
        both = [
            self._find(seqs.committed(b), k[b]) if seqs.running[b] else nothing
            for b in range(seqs.batch)
        ]
        found = [tokens for _, tokens in both]
        lengths = [len(tokens) for tokens in found]
        tokens = torch.zeros(seqs.batch, max(lengths), dtype=torch.int64)
        for b, row in enumerate(found):
            tokens[b, : lengths[b]] = row
        sure = [[sure_of(matched + j) for j in range(len(row))] for matched, row in both]
        return Draft(tokens, lengths, sure=sure)

    def _find(self, ids: Tensor, k: int) -> tuple[int, Tensor]:
        """How many tokens match, and up to k tokens that followed the latest earlier occurrence;
        empty if there is none."""
        tokens, end = ids.numpy(), len(ids) - 1  # NumPy: many short steps, each in a microsecond
        # A place is the index of an n-gram's last token. `hits`: the earlier places at which the
        # last i + 1 tokens are those at the end; `best`: the last `hits` that were not empty.
        best = hits = np.flatnonzero(tokens[:end] == tokens[end])
        matched = min(1, len(hits))
        for i in range(1, min(self.longest, end)):
            hits = hits[hits >= i]
            hits = hits[tokens[hits - i] == tokens[end - i]]
            if not len(hits):
                break
            best, matched = hits, i + 1
        if matched < self.longest:
            k = min(k, matched)
        if k <= 0 or matched < self.shortest:
            return matched, ids[:0]
        # the latest place that is followed by k tokens; near the end a draft would be cut short
        full = best[best + k <= end]
        place = int(full[-1] if len(full) else best[0])
        return matched, ids[place + 1 : place + 1 + k]
