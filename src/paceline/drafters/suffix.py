"""Suffix drafting: what most often followed these words (SuffixDecoding, Oliaro et al. 2024).

The longest end of the committed tokens, at most `depth` of them, that stands earlier in the request
or in earlier outputs is looked for. The draft goes on with whatever followed it most often, then
with whatever most often followed that, as long as at least `least` of all those places went the
same way (the path's empirical probability) and for at most `factor` tokens a matched one. `depth`
bounds what is matched, not what is drafted.

Against lookup, which copies from the latest place: several places vote, and the draft is the longer
the more words agree. No model, no q: a point mass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch

from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.drafters.suffix_index import END, Ints, scan

DEPTH = 24
FACTOR = 1.0
LEAST = 0.1
DEEPEST = 64


class Suffix:
    """Drafts from the request's own tokens and from `corpus`: from where more tokens agree, from
    the request if as many do. A function of the committed tokens and of `corpus.index`."""

    def __init__(
        self,
        depth: int = DEPTH,
        corpus: SuffixCorpus | None = None,
        factor: float = FACTOR,
        least: float = LEAST,
    ) -> None:
        self.depth = depth
        self.corpus = corpus
        self.factor = factor
        self.least = least

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Up to `k[b]` tokens for each running row whose last token stands elsewhere too."""
        rows = [
            self._chain(seqs.committed(b).numpy(), k[b]) if seqs.running[b] and k[b] > 0 else []
            for b in range(seqs.batch)
        ]
        lengths = [len(row) for row in rows]
        tokens = np.zeros((seqs.batch, max(lengths)), dtype=np.int64)
        for b, row in enumerate(rows):
            tokens[b, : lengths[b]] = row
        return Draft(torch.tensor(tokens), lengths)

    def _chain(self, ids: Ints, k: int) -> list[int]:
        matched, places = scan(ids[:-1], ids, self.depth)
        if self.corpus is not None and matched < self.depth:
            index = self.corpus.index
            elsewhere, there = index.find(ids, self.depth)
            if elsewhere > matched:
                most = min(k, int(self.factor * elsewhere))
                return self._follow(index.text, there, most)
        most = min(k, int(self.factor * matched))
        # Behind its end the request goes on with the draft: a loop shorter than k repeats in it.
        text = np.concatenate([ids, np.zeros(most, dtype=np.int64)])
        return self._follow(text, places, most, len(ids))

    def _follow(self, text: Ints, places: Ints, most: int, end: int | None = None) -> list[int]:
        """What goes on from `places`, at most `most` tokens. It is written to `text` from `end` on
        where that is given: places near there run into it."""
        drafted: list[int] = []
        start = len(places)
        while len(drafted) < most:
            followers = text[places + len(drafted) + 1]
            choices = likeliest(followers)
            if not choices:
                break
            if len(places) > 1:
                places = places[followers == choices[0]]
            if len(places) / start < self.least:
                break
            if end is not None:
                text[end + len(drafted)] = choices[0]
            drafted.append(choices[0])
        return drafted


def likeliest(followers: Ints) -> list[int]:
    """The tokens that stand most often among `followers`, which are in order of age: all those
    that tie, the latest first. END does not count; nothing else, nothing."""
    if len(followers) > 64 and bool((followers == followers[0]).all()):  # a loop: soon counted
        followers = followers[:1]
    counts = Counter(cast("list[int]", followers[::-1].tolist()))  # keeps the order
    counts.pop(END, None)
    most = max(counts.values(), default=0)
    return [token for token, count in counts.items() if count == most]
