"""Drafts end behind a token of which the drafter was not sure: transformers'
`assistant_confidence_threshold` (5.24), fixed or tuned as it goes.

The tuned threshold is the point of the ROC curve with the smallest cost. Of the tokens of a request
that were tested, each with its probability and whether it was accepted, call those with at least
the threshold's probability sure. fpr is the share of the refused ones that were sure, fnr that of
the accepted ones that were not, and the cost is fpr + 3 fnr: to give up a token that would have
been accepted is three times as bad as to draft one that is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from torch import Tensor

from paceline.controllers.rules import PerRequest, Rule, Ruled, within
from paceline.core.sequences import Sequences
from paceline.core.shape import largest
from paceline.core.types import Emitted

_FEWEST = 6  # pairs behind which the threshold moves, if both outcomes are among them
_MISSED = 3  # what a token given up counts for, beside one drafted in vain


class Confidence(Ruled):
    """Drafts of at most `k` tokens that end behind the first one of which the drafter was less sure
    than `threshold`. `tuned`: each request and drafter begins with that threshold, and from the
    sixth tested token on takes the cheapest one of the ROC curve (see above). Raises PacelineError
    if k is negative or the threshold not from 0 to 1."""

    def __init__(self, k: int, threshold: float = 0.4, tuned: bool = False) -> None:
        within("confidence: the threshold", threshold, 0, 1)
        super().__init__(k, partial(_Sure, threshold, tuned))


class _Known:
    """Of one request. `matched[i]`: whether the token of probability `sure[i]` was accepted."""

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold
        self.sure: list[float] = []
        self.matched: list[bool] = []


class _Sure(Rule):
    def __init__(self, threshold: float, tuned: bool) -> None:
        super().__init__()
        self._tuned = tuned
        self.known = PerRequest(partial(_Known, threshold))

    def begin(self, seqs: Sequences) -> None:
        super().begin(seqs)
        self.known.begin(seqs)

    def measure(self, logits: Tensor) -> Tensor:
        """The largest probability."""
        return largest(logits)

    def goes_on(self, row: int, drafted: int, sure: Sequence[float]) -> bool:
        return sure[drafted - 1] >= self.known[row].threshold

    def learn(self, row: int, emitted: Emitted, sure: Sequence[float]) -> None:
        if not self._tuned:
            return
        known = self.known[row]
        known.sure += sure[: emitted.tested]
        known.matched += [i < emitted.accepted for i in range(emitted.tested)]
        if len(known.sure) >= _FEWEST and len({*known.matched}) == 2:
            known.threshold = cheapest_threshold(known.sure, known.matched)


def cheapest_threshold(sure: Sequence[float], matched: Sequence[bool]) -> float:
    """Which of the values in `sure`, taken as a threshold, makes fpr + 3 fnr smallest; of several,
    the largest. Both outcomes must be among `matched`."""
    order = np.argsort(-np.asarray(sure), kind="stable")
    values, hits = np.asarray(sure)[order], np.asarray(matched)[order]
    ends = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of tokens equally sure
    right = np.cumsum(hits)[ends]
    wrong = ends + 1 - right
    # times both totals: whole numbers, so that ties are ties
    costs = wrong * right[-1] + _MISSED * (right[-1] - right) * wrong[-1]
    return float(values[ends[np.argmin(costs)]])
