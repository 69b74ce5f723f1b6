"""The values that pass between drafter, verifier and loop. B: rows, V: vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

if TYPE_CHECKING:
    from paceline.core.target import Target


Origin = Literal["accepted", "recovered", "bonus", "plain"]
Finish = Literal["stop", "length", "error"]


@dataclass(frozen=True)
class Draft:
    """What a drafter proposes to follow the committed tokens of each row.

    `tokens` [B, K] int64 on the drafter's device, right-padded; row b proposes its first
    `lengths[b]` (0 allowed). `q` [B, K, V'] float32 is the very distribution that each token was
    drawn from, over ids 0..V'-1; None means that the tokens were not drawn: a point mass.

    `parents` [B, K] int64 on the CPU: the index of the drafted token that each one follows (-1: the
    last committed one), always an earlier one, and no two tokens with one parent are the same;
    what stands in the padding is -1. None: a chain, each follows the one before it.

    How the candidates behind one parent were drawn decides how they are verified. Without `draws`
    they were drawn in order, without replacement: q of the first is the drafter's distribution,
    and of each further one what is left of it after taking out those before and scaling to 1.
    `draws` [B, C, D] int64 on the CPU, for a tree with q: row b was drawn as C continuations of at
    most D tokens, independent of each other; [b, c, i] is the index of the drafted token that is
    token i of the c-th, -1 past its end. Where continuations agreed they share a token, whose q is
    then the drafter's distribution as it is.

    `sure[b]`: how sure the drafter was of each token of row b, from 0 to 1 or in whatever measure
    its `Pace` asked for; perhaps one more, that of the token at which the draft was ended. None:
    it does not say. `by[b]`: which of several drafters, in their order, was the last one asked for
    row b (-1: none); None: there is one.
    """

    tokens: Tensor
    lengths: Sequence[int]
    q: Tensor | None = None
    parents: Tensor | None = None
    draws: Tensor | None = None
    sure: Sequence[Sequence[float]] | None = None
    by: Sequence[int] | None = None


@dataclass(frozen=True)
class Verdict:
    """A verifier's answer.

    `tokens` [B, K+1] int64: row b holds its accepted draft tokens, then one token of the target at
    index `accepted[b]` (-1 if the target gave no distribution there: NaN, or everything masked);
    what stands behind that is undefined. `accepted` [B] int64, 0 <= n_b <= lengths[b]. `path`
    [B, K] int64: for a draft with `parents`, the indices of the accepted tokens in it, root first;
    -1 behind the first `accepted[b]`. None for chains.
    """

    tokens: Tensor
    accepted: Tensor
    path: Tensor | None = None


@dataclass(frozen=True)
class Emitted:
    """What one row committed in one round.

    `tokens`: the new ids, in order. `drafted`: how many the drafter proposed; of a tree, the most
    that could have been accepted along the path that was taken. `accepted`: how many of them stand
    among `tokens` (they come first). `finish`: "stop" at an end token, "length" at the limit,
    "error" where the target gave no distribution, None while the row runs on.
    """

    tokens: list[int]
    drafted: int
    accepted: int
    finish: Finish | None = None

    @property
    def tested(self) -> int:
        """How many drafted tokens reached their accept test; one behind a rejection, an end token
        or a limit did not."""
        rejected = len(self.tokens) > self.accepted and self.accepted < self.drafted
        return self.accepted + rejected

    @property
    def last_origin(self) -> Origin:
        """Where the token behind the accepted ones comes from."""
        if not self.drafted:
            return "plain"
        return "recovered" if self.accepted < self.drafted else "bonus"

    def origins(self) -> list[Origin]:
        """The origin of each of `tokens`."""
        return [
            "accepted" if i < self.accepted else self.last_origin for i in range(len(self.tokens))
        ]


@dataclass(frozen=True)
class Seconds:
    """Wall time of one round in seconds: drafting, the target pass, everything else."""

    draft: float
    target: float
    overhead: float


@dataclass(frozen=True)
class Round:
    """One draft-verify-commit cycle: all that benches, controllers, logs and servers may know.

    `emitted[b]` is None for a row that was not running.
    """

    draft: Draft
    target: Target
    verdict: Verdict
    emitted: list[Emitted | None]
    seconds: Seconds


@dataclass(frozen=True)
class Output:
    """One forward pass: `logits` [B, T, V] float32 (None where they were not asked for),
    `hidden` [B, T, D], the state after the final norm, and `top` [B, T] int64 (see `Ranks.best`)
    where that was asked for."""

    logits: Tensor | None
    hidden: Tensor | None = None
    top: Tensor | None = None
