"""Suffix drafting: what most often followed these words (SuffixDecoding, Oliaro et al. 2024).

The longest end of the committed tokens, at most `depth` of them, that stands earlier in the request
or in earlier outputs is looked for. The draft goes on with whatever followed it most often, then
with whatever most often followed that, as long as at least `least` of all those places went the
same way (the path's empirical probability) and for at most `factor` tokens a matched one. `depth`
bounds what is matched, not what is drafted.

Where places are split evenly, the draft can be a tree that goes all those ways.

Against lookup, which copies from the latest place: several places vote, and the draft is the longer
the more words agree. No model, no q: a point mass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np

from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.sampling import padded, sure_of
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.drafters.suffix_index import END, Ints, scan

DEPTH = 24
FACTOR = 1.0
LEAST = 0.1
DEEPEST = 64


class Suffix:
    """Drafts from the request's own tokens and from `corpus`: from where more tokens agree, from
    the request if as many do. A function of the committed tokens and of `corpus.index`. `branches`:
    where several tokens followed equally often, all of them are drafted, not the latest alone."""

    def __init__(
        self,
        depth: int = DEPTH,
        corpus: SuffixCorpus | None = None,
        factor: float = FACTOR,
        least: float = LEAST,
        branches: bool = False,
    ) -> None:
        self.depth = depth
        self.corpus = corpus
        self.factor = factor
        self.least = least
        self.branches = branches

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Up to `k[b]` tokens, of all branches, for each running row whose last token stands
        elsewhere too."""
        rows = [
            self._find(seqs.committed(b).numpy(), k[b]) if seqs.running[b] and k[b] > 0 else []
            for b in range(seqs.batch)
        ]
        tokens = [[path.tokens[-1] for path in row] for row in rows]
        parents = [[path.parent for path in row] for row in rows]
        chains = all(row == list(range(-1, len(row) - 1)) for row in parents)
        tree = None if chains else padded(parents, -1)
        sure = [[path.sure for path in row] for row in rows] if chains else None
        return Draft(padded(tokens, 0), [len(row) for row in rows], None, tree, sure=sure)

    def _find(self, ids: Ints, k: int) -> list[_Path]:
        matched, places = scan(ids[:-1], ids, self.depth)
        if self.corpus is not None and matched < self.depth:
            index = self.corpus.index
            elsewhere, there = index.find(ids, self.depth)
            if elsewhere > matched:
                return self._follow(index.text, there, k, elsewhere)
        most = min(k, int(self.factor * matched))
        # Behind its end the request goes on with the draft: a loop shorter than k repeats in it.
        text = np.concatenate([ids, np.zeros(most, dtype=np.int64)])
        return self._follow(text, places, k, matched, len(ids))

    def _follow(
        self, text: Ints, places: Ints, k: int, matched: int, end: int | None = None
    ) -> list[_Path]:
        """What goes on from `places`, at which `matched` tokens agree: `k` tokens at most, the
        likeliest first, and `factor` of them for each of these one behind the other. A path is
        written to `text` from `end` on where that is given: places near there run into it."""
        made: list[_Path] = []
        most, start = int(self.factor * matched), len(places)
        ahead = self._further(text, _Path([], -1, places, 1.0), -1, start, matched) if most else []
        while ahead and len(made) < k:
            path = ahead.pop(max(range(len(ahead)), key=lambda i: len(ahead[i].places)))
            made.append(path)
            drafted = len(path.tokens)
            if drafted < most:
                if end is not None:
                    text[end : end + drafted] = path.tokens
                ahead += self._further(text, path, len(made) - 1, start, matched + drafted)
        return made

    def _further(self, text: Ints, path: _Path, node: int, start: int, matched: int) -> list[_Path]:
        """`path`, which ends at drafted token `node` and makes `matched` tokens agree, and one
        more: what most of its places go on with, if at least `least` of all `start` do."""
        places = path.places
        followers = text[places + len(path.tokens) + 1]
        found: list[_Path] = []
        for token in likeliest(followers)[: None if self.branches else 1]:
            rest = places[followers == token] if len(places) > 1 else places
            if len(rest) / start >= self.least:
                sure = sure_of(matched) * len(rest) / len(places)
                found.append(_Path([*path.tokens, token], node, rest, sure))
        return found


class _Path(NamedTuple):
    """Drafted tokens, one behind the other; `parent`: the drafted token that the last one follows;
    `places`: where that goes on like this, as places of what was matched; `sure`: of the last
    one."""

    tokens: list[int]
    parent: int
    places: Ints
    sure: float


def likeliest(followers: Ints) -> list[int]:
    """The tokens that stand most often among `followers`, which are in order of age: all those
    that tie, the latest first. END does not count; nothing else, nothing."""
    if len(followers) > 64 and bool((followers == followers[0]).all()):  # a loop: soon counted
        followers = followers[:1]
    counts = Counter(cast("list[int]", followers[::-1].tolist()))  # keeps the order
    counts.pop(END, None)
    most = max(counts.values(), default=0)
    return [token for token, count in counts.items() if count == most]
