"""What a round looks like to the drafters under an adaptive window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.controllers.acceptance import Mood
from paceline.controllers.cost import between

_RARE = 32.0  # tokens that a second probe waits if the first one lost one
_STREAK = 3  # probes that follow at once while they succeed


class Probe:
    """When a drafter that does not pay is tried again for a row: one token, and then ever more
    rarely while that fails. `price`: the tokens that it loses; `known`: it is no news that the
    drafter does not pay, and the first try can wait."""

    def __init__(self, price: float, known: bool) -> None:
        self.failed = int(known)
        self.wait = self.failed * _RARE * price
        self._streak = 0

    @property
    def due(self) -> bool:
        """Whether it is time."""
        return self.wait <= 0

    def passed(self, tokens: int) -> None:
        """So many tokens were committed without it."""
        self.wait -= tokens

    def tried(self, accepted: bool, price: float) -> None:
        """What became of it: a success is followed by another try, which is how a drafter comes
        back; but if it does not, tokens are accepted and do not pay for that."""
        self._streak = self._streak + 1 if accepted else 0
        if self._streak % (_STREAK + 1):
            self.wait = 0.0
        else:
            self.failed += 1
            self.wait = _RARE * price * self.failed**0.5


class Row:
    """One request. `drawn`: at a temperature; `draft`: see `Paces.pace`."""

    def __init__(self, drawn: bool, drafters: int, draft: str | None = None) -> None:
        self.drawn = drawn
        self.draft = draft
        self.new = True  # its prompt may not have been read by the drafters
        self.moods = [Mood() for _ in range(drafters)]
        self.probes: dict[int, Probe] = {}


@dataclass
class Outlook:
    """One round. `rows`: those that are decided for; `count`: all that run. `limits[b]`: the most
    that may be drafted. `time[w]`: seconds of a pass behind drafts of w tokens in all rows; `step`:
    of a draft step of each drafter. `rate`: tokens a second at best; `ragged`: rows are not padded.
    `best`: the drafter that has that rate, if any, with drafts of `window` tokens. `paid`: how wide
    the drafts so far are. `probing`: rows and drafters that are tried. `offers`: of each drafter
    that was weighed, tokens a second with the best window of it, and that window."""

    rows: dict[int, Row]
    count: int
    limits: list[int]
    time: list[float]
    step: list[float]
    rate: float
    ragged: bool = False
    best: int | None = None
    window: int = 0
    paid: float = 0.0
    probing: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    offers: dict[int, tuple[float, int]] = field(default_factory=dict[int, tuple[float, int]])

    def width(self, lengths: Sequence[int]) -> float:
        """How wide a pass behind drafts of these lengths is, in drafted tokens of all rows; rows
        that draft nothing may be left out."""
        return sum(lengths) / self.count if self.ragged else max(lengths, default=0)

    def seconds(self, width: float) -> float:
        """Of a pass of that width."""
        return between(self.time, width)
