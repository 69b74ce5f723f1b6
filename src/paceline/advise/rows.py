"""What was found out about each drafter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

_MOST = 1.1  # by which a trial moves a prediction


@dataclass(frozen=True)
class Trial:
    """Some `tokens` that a drafter brought, in seconds: as measured, by plain decoding in between,
    and as predicted for those very tokens by both. `same`: they are plain decoding's."""

    tokens: int
    drafted_s: float
    plain_s: float
    predicted_s: float
    predicted_plain_s: float
    same: bool

    @property
    def measured(self) -> float:
        """The speedup over plain decoding."""
        return self.plain_s / self.drafted_s

    @property
    def predicted(self) -> float:
        """What was predicted for the same tokens."""
        return self.predicted_plain_s / self.predicted_s

    @property
    def error(self) -> float:
        """How far the prediction is off: 0.1 is 10% too high."""
        return self.predicted / self.measured - 1

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "tokens": self.tokens,
            "measured": self.measured,
            "predicted": self.predicted,
            "error": self.error,
            "same_tokens": self.same,
        }


def together(trials: Iterable[Trial]) -> Trial | None:
    """Several trials as one; None of none."""
    each = list(trials)
    if not each:
        return None
    return Trial(
        sum(trial.tokens for trial in each),
        sum(trial.drafted_s for trial in each),
        sum(trial.plain_s for trial in each),
        sum(trial.predicted_s for trial in each),
        sum(trial.predicted_plain_s for trial in each),
        all(trial.same for trial in each),
    )


@dataclass(frozen=True)
class Part:
    """Some of the text, at the best K: τ, the predicted speedup, and a trial on a little of it."""

    tau: float
    predicted: float
    trial: Trial | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        trial = None if self.trial is None else self.trial.to_dict()
        return {"tau": self.tau, "predicted": self.predicted, "trial": trial}


@dataclass(frozen=True)
class Heat:
    """The effect of a `temperature`: the chance that the first drafted token is accepted, greedily
    and at the temperature, at the same places; and the predicted speedup there."""

    temperature: float
    alpha_greedy: float
    alpha: float
    predicted: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class Row:
    """One drafter. `error`: why there are no figures. `memory`: bytes that it adds (None: not
    known). `c`: a step of drafting over T(1). `curve`: predicted speedup by K; `k`: the best one.
    `alpha`, `tau`: at K (α None: nothing was ever drafted); `alpha_at`: α by position in the
    longest drafts, from `tested_at` tests each. `kinds`, `lengths`: the text apart, by its kind and
    by how many tokens of the answer stood before. `batches`: the best K and its predicted speedup
    by rows."""

    draft: str
    resolved: str
    error: str | None = None
    notes: tuple[str, ...] = ()
    memory: int | None = None
    c: float | None = None
    k: int = 0
    alpha: float | None = None
    alpha_at: tuple[float, ...] = ()
    tested_at: tuple[int, ...] = ()
    tau: float = 1.0
    curve: Mapping[int, float] = field(default_factory=dict[int, float])
    kinds: Mapping[str, Part] = field(default_factory=dict[str, Part])
    lengths: Mapping[str, Part] = field(default_factory=dict[str, Part])
    heat: Heat | None = None
    batches: Mapping[int, tuple[int, float]] = field(default_factory=dict[int, tuple[int, float]])

    @property
    def drafts(self) -> bool:
        """Whether it is a drafter with figures, and not plain decoding."""
        return self.error is None and self.k > 0

    @property
    def predicted(self) -> float:
        """The predicted speedup at K, on all text together."""
        return self.curve.get(self.k, 1.0)

    @property
    def trial(self) -> Trial | None:
        """What was measured, all together."""
        return together(part.trial for part in self.kinds.values() if part.trial is not None)

    @property
    def expected(self) -> float:
        """The speedup to expect: the prediction, moved half of the way (on a logarithmic scale) to
        what the trials would have it, as either may have met a slow spell of the machine; by a
        tenth at most, as trials are short."""
        trial = self.trial
        off = 1.0 if trial is None else sqrt(1 + trial.error)
        return self.predicted / min(_MOST, max(1 / _MOST, off))

    def expected_of(self, kind: str) -> float:
        """The same for one kind of text: a trial of one kind alone is too short to put it right."""
        return self.kinds[kind].predicted * self.expected / self.predicted

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        named = {"draft": self.draft, "resolved": self.resolved, "error": self.error}
        named |= {"notes": list(self.notes)}
        if self.error is not None:
            return named
        trial = self.trial
        return named | {
            "memory_bytes": self.memory,
            "c": self.c,
            "k": self.k,
            "alpha": self.alpha,
            "alpha_at": list(self.alpha_at),
            "tested_at": list(self.tested_at),
            "tau": self.tau,
            "curve": {str(k): value for k, value in self.curve.items()},
            "predicted": self.predicted,
            "trial": None if trial is None else trial.to_dict(),
            "expected": self.expected,
            "kinds": {name: part.to_dict() for name, part in self.kinds.items()},
            "lengths": {name: part.to_dict() for name, part in self.lengths.items()},
            "temperature": None if self.heat is None else self.heat.to_dict(),
            "batches": {
                str(batch): {"k": k, "predicted": speedup}
                for batch, (k, speedup) in self.batches.items()
            },
        }
