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
    `parents` [B, K] int64: which drafted token each one follows (-1: the last committed one); None:
    a chain, each follows the one before it. Verifiers take chains alone so far.
    """

    tokens: Tensor
    lengths: Sequence[int]
    q: Tensor | None = None
    parents: Tensor | None = None


@dataclass(frozen=True)
class Verdict:
    """A verifier's answer.

    `tokens` [B, K+1] int64: row b holds its accepted draft tokens, then one token of the target at
    index `accepted[b]` (-1 if the target gave no distribution there: NaN, or everything masked);
    what stands behind that is undefined. `accepted` [B] int64, 0 <= n_b <= lengths[b].
    """

    tokens: Tensor
    accepted: Tensor


@dataclass(frozen=True)
class Emitted:
    """What one row committed in one round.

    `tokens`: the new ids, in order. `drafted`: how many the drafter proposed. `accepted`: how many
    of them stand among `tokens` (they come first). `finish`: "stop" at an end token, "length" at
    the limit, "error" where the target gave no distribution, None while the row runs on.
    """

    tokens: list[int]
    drafted: int
    accepted: int
    finish: Finish | None = None

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
