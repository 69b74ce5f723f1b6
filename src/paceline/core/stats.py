"""What happened over many rounds: α, τ and where the time went."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.core.types import Emitted, Seconds


@dataclass
class Stats:
    """Counts of one request, round by round.

    `tested[i]` and `passed[i]`: how often draft token i reached its accept test, and passed it. A
    token behind a rejection, an end token or a limit was drafted but never tested.
    """

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    tested: list[int] = field(default_factory=list[int])
    passed: list[int] = field(default_factory=list[int])
    draft_s: float = 0.0
    target_s: float = 0.0
    overhead_s: float = 0.0

    def add(self, row: Emitted, seconds: Seconds) -> None:
        """Count one round of one row."""
        self.rounds += 1
        self.drafted += row.drafted
        self.accepted += row.accepted
        self.emitted += len(row.tokens)
        reached = row.tested
        self.tested += [0] * (reached - len(self.tested))
        self.passed += [0] * (reached - len(self.passed))
        for i in range(reached):
            self.tested[i] += 1
            self.passed[i] += i < row.accepted
        self.draft_s += seconds.draft
        self.target_s += seconds.target
        self.overhead_s += seconds.overhead

    @property
    def alpha(self) -> float | None:
        """α: the share of tested draft tokens that were accepted; None before the first test."""
        tested = sum(self.tested)
        return sum(self.passed) / tested if tested else None

    @property
    def alpha_at(self) -> list[float]:
        """α by position in the draft."""
        return [p / t for p, t in zip(self.passed, self.tested, strict=True)]

    @property
    def tau(self) -> float | None:
        """τ: tokens committed per target pass; None before the first round."""
        return self.emitted / self.rounds if self.rounds else None
