"""Where the end of a sequence stands in a text: a suffix tree, walked without being built.

A node of a suffix tree stands for a string, and all that is asked of it is where that string
occurs: the array of its places. One step down the tree keeps the places at which one more token
agrees. In a request's own tokens that starts from one scan, microseconds for thousands of tokens,
so nothing is kept between rounds that could go stale. In the many tokens of a corpus it starts from
a sorted array of its places (a suffix array of the reversed text: Manber and Myers 1990).

A place is the index of a string's last token.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.signedinteger[Any]]

END = -1  # stands before the first, behind the last and between the others of several sequences
MANY = 4096  # of more places than that, only so many are looked at
_FEW = 64  # so many places are compared in one go instead of token by token
_SORTED = 8  # tokens by which places are sorted: leaves few enough to compare, 2 ** a whole number
_UNSORTED = 4096  # new tokens are scanned until there are more, and more than an eighth of the rest


def scan(text: Ints, context: Ints, depth: int, first: int = 0) -> tuple[int, Ints]:
    """The longest end of `context`, up to `depth` tokens, that stands in `text` with its last token
    at `first` or later: how many tokens it has, and its places, ascending. (0, none) if not even
    the last token does. Of more than MANY places of that one the latest count."""
    places = np.flatnonzero(text[first:] == int(context[-1]))[-MANY:] + first
    return _narrow(text, places, context, min(1, len(places)), depth)


def _narrow(text: Ints, places: Ints, context: Ints, matched: int, depth: int) -> tuple[int, Ints]:
    """The same, of the `places` (ascending) at which `matched` tokens are known to agree."""
    end, most = len(context) - 1, min(depth, len(context))
    while len(places) > _FEW and matched < most:
        inside = places if places[0] >= matched else places[places >= matched]
        same = text[inside - matched] == context[end - matched]
        if not same.any():
            return matched, places
        places = inside if same.all() else inside[same]
        matched += 1
    if not len(places) or matched >= most:
        return matched, places
    back = np.arange(matched, most)
    at = places[:, None] - back
    same = (text.take(at, mode="clip") == context[end - back]) & (at >= 0)
    agree = np.logical_and.accumulate(same, axis=1).sum(axis=1)
    further = int(agree.max())
    return matched + further, places[agree == further]


class SuffixIndex:
    """Several finished sequences in one array, `text` (int32: END, a sequence, END, a sequence, …,
    END), that is never changed. What is new is scanned, the rest is found by bisection."""

    def __init__(self, text: Ints, order: Ints | None = None) -> None:
        """`order`: the first len(order) places of `text`, sorted, where an older index had them."""
        self.text = text
        self._order: Ints = np.zeros(0, dtype=np.int64) if order is None else order
        done = len(self._order)
        if len(text) - done > max(_UNSORTED, done // 8):
            self._order = _sorted_places(text)

    def grown(self, text: Ints, dropped: int) -> SuffixIndex:
        """The index of `text`: this one's without its first `dropped` tokens, then new ones."""
        return SuffixIndex(text, self._order[self._order >= dropped] - dropped)

    def find(self, context: Ints, depth: int) -> tuple[int, Ints]:
        """As `scan` in all of the text; of more than MANY sorted places every n-th is compared."""
        old = self._find(context, depth)
        new = scan(self.text, context, depth, len(self._order))
        if old[0] == new[0]:
            return old[0], np.concatenate([old[1], new[1]])
        return old if old[0] > new[0] else new

    def _find(self, context: Ints, depth: int) -> tuple[int, Ints]:
        text, order = self.text, self._order
        low, high, matched = 0, len(order), 0
        while matched < min(_SORTED, depth, len(context)) and (high - low > MANY or not matched):
            token, back = int(context[-1 - matched]), matched
            # in range: END stands at 0, and a place whose last tokens agree lies behind it
            left = bisect_left(order, token, low, high, key=lambda place: text[place - back])
            right = bisect_right(order, token, left, high, key=lambda place: text[place - back])
            if left == right:
                break
            low, high, matched = left, right, matched + 1
        if not matched:
            return 0, order[:0]
        places = np.sort(order[low : high : 1 + (high - low - 1) // MANY])
        return _narrow(text, places, context, matched, depth)


def _sorted_places(text: Ints) -> Ints:
    """All places, sorted by the token that stands there, then the one before it, and so on for
    _SORTED tokens. Prefix doubling: the ranks of places by 1, 2, 4, … tokens."""
    n, width = len(text), 1
    rank = np.unique(text, return_inverse=True)[1].astype(np.int64)
    while width < _SORTED:
        before = np.zeros(n, dtype=np.int64)  # nobody asks for what stands before the first END
        before[width:] = rank[:-width]
        rank = np.unique(rank * n + before, return_inverse=True)[1].astype(np.int64)
        width *= 2
    return np.argsort(rank)
