"""AdaEDL (Agrawal, Jeon and Lee 2024, arXiv 2410.18351): drafts end before a token that is unlikely
to be accepted, by a bound that the draft's entropy gives.

A drafted token is accepted with probability 1 - TV(p, q) >= 1 - sqrt(KL / 2) (Pinsker), and the
divergence is taken to be in proportion to the entropy H(q): the bound becomes 1 - sqrt(gamma H). A
draft ends where that is below λ, which moves with what was accepted. After a round in which n of m
drafted tokens were accepted (with the update of Zhang et al. 2023, arXiv 2309.08168):

    r  <- 0.5 r + 0.5 n / m
    λ' =  λ + 0.01 if r < 0.9, else λ - 0.01; but λ if the draft had all its K tokens accepted
    λ  <- 0.9 λ + 0.1 λ'

So λ moves by 0.001 a round, and against what went wrong: where the accepted share is too small λ
rises, drafts end before tokens of smaller entropy, those that are left are likelier to be accepted,
and the share rises; where it is large enough λ falls and drafts become longer. So r is driven to
0.9 from both sides, as far as first tokens allow, which are always drafted: where those are refused
too often λ goes to 1 and drafts to one token. A draft that reached K and was accepted says nothing
of λ, which did not end it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, sqrt

from torch import Tensor

from paceline.controllers.rules import PerRequest, Rule, Ruled, entropy, within
from paceline.core.sequences import Sequences
from paceline.core.types import Emitted

_WANTED = 0.9  # α, the share of drafted tokens that is to be accepted
_KEPT_SHARE = 0.5  # β1
_KEPT_BOUND = 0.9  # β2
_STEP = 0.01  # ε


class AdaEDL(Ruled):
    """Drafts of at most `k` tokens, and one at least, as n / m needs, that end before a token where
    1 - sqrt(`gamma` H) < λ. For each request and drafter λ begins at `bound`; it stays from 0 to 1.
    Raises PacelineError if k or gamma is negative or the bound not from 0 to 1."""

    def __init__(self, k: int, gamma: float = 0.2, bound: float = 0.5) -> None:
        within("adaedl: γ", gamma, 0, inf)
        within("adaedl: the first bound", bound, 0, 1)
        super().__init__(k, partial(_Likely, gamma, bound))


@dataclass
class _History:
    bound: float  # λ
    share: float = 0.0  # r


class _Likely(Rule):
    def __init__(self, gamma: float, bound: float) -> None:
        super().__init__()
        self._gamma = gamma
        self.history = PerRequest(partial(_History, bound))

    def begin(self, seqs: Sequences) -> None:
        super().begin(seqs)
        self.history.begin(seqs)

    def measure(self, logits: Tensor) -> Tensor:
        """The entropy in nats."""
        return entropy(logits)

    def goes_on(self, row: int, drafted: int, sure: Sequence[float]) -> bool:
        if len(sure) == drafted:
            return True  # the next token is not known yet
        return 1 - sqrt(self._gamma * sure[drafted]) >= self.history[row].bound

    def learn(self, row: int, emitted: Emitted, sure: Sequence[float]) -> None:
        now = self.history[row]
        share = emitted.accepted / emitted.drafted
        now.share = _KEPT_SHARE * now.share + (1 - _KEPT_SHARE) * share
        if now.share < _WANTED:
            wanted = now.bound + _STEP
        elif share < 1 or len(sure) > emitted.drafted:  # one more was looked at: the rule ended it
            wanted = now.bound - _STEP
        else:
            wanted = now.bound
        now.bound = min(1.0, max(0.0, _KEPT_BOUND * now.bound + (1 - _KEPT_BOUND) * wanted))
