"""Every part of every drafter, asked along every recorded answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.advise.plan import Plan, shared, stretches
from paceline.advise.replay import Says, Scanning, Stepping, Turn, replay, survey
from paceline.advise.stage import Lane, Made
from paceline.advise.timing import AHEAD, StepTimer, Yardstick, places
from paceline.models.progress import Progress

_SCANNING = ("lookup", "suffix", "none")  # kinds that are functions of the committed tokens
_TURNS = 3


@dataclass(frozen=True)
class Way:
    """A part along one answer: what it says, at which stretches of places it was asked, and what
    its drafts take on such text."""

    says: Says
    stretches: Sequence[range]
    steps: StepTimer


class Ways:
    """`of(part)`: a `Way` for each lane. `most`: the largest K."""

    def __init__(self, lanes: Sequence[Lane], plan: Plan, yardstick: Yardstick, most: int) -> None:
        self._lanes, self._plan, self._yardstick, self._most = lanes, plan, yardstick, most
        self._ways: dict[str, list[Way]] = {}

    def of(self, part: str) -> list[Way]:
        """What was asked of a part that `ask` has seen."""
        return self._ways[part]

    def ask(self, made: Sequence[Made], progress: Progress) -> None:
        """Ask all parts of these drafters, each once."""
        parts = list(dict.fromkeys(part for each in made for part in each.parts))
        for done, part in enumerate(parts):
            progress(done, len(parts), "asking drafters")
            self._ways[part] = [self._ask(part, lane) for lane in self._lanes]
        progress(len(parts), len(parts), "asking drafters")

    def settle(self, made: Made, k: int) -> None:
        """Ask once more those parts of which a shorter draft need not be the beginning of a longer
        one, as where text is translated: for just `k` tokens."""
        for part in made.parts:
            for lane, way in zip(self._lanes, self._ways[part], strict=True):
                if part.startswith("model") and isinstance(way.says, Stepping):
                    asked = (place for each in way.stretches for place in each)
                    way.says.exactly[k] = survey(lane, lane.drafters[part], asked, k)

    def time(self, lane: int, stretch: int) -> None:
        """Time every part once more, in a stretch of a lane's answer."""
        at = self._lanes[lane]
        for part, ways in self._ways.items():
            where = stretches(len(at.answer))[stretch]
            _time(ways[lane].steps, at, part, where, 1)

    def rounds(self, made: Made, lane: int, stretch: int, k: int) -> list[Turn]:
        """The rounds of a drafter in one stretch of an answer, as far as its parts were asked."""
        ways = [self._ways[part][lane] for part in made.parts]
        start, stop = self.reach(made, lane, stretch)
        at = self._lanes[lane]
        return replay(at.answer, [way.says for way in ways], k, start, stop, at.limit)

    def reach(self, made: Made, lane: int, stretch: int) -> tuple[int, int]:
        """Where a stretch begins, and as far as which all parts of a drafter were asked in it."""
        each = [self._ways[part][lane].stretches[stretch] for part in made.parts]
        return each[0].start, min(part.stop for part in each)

    def _ask(self, part: str, lane: Lane) -> Way:
        drafter, steps, count = lane.drafters[part], StepTimer(self._yardstick), len(lane.answer)
        _time(steps, lane, part, range(count), _TURNS)
        if scans(part):
            says = Scanning(lane, drafter, lambda: steps.seconds(1))
            return Way(says, stretches(count), steps)
        # asked for more, it takes about as many steps, unless it never ends a draft by itself
        most = round(steps.taken) if steps.taken < AHEAD else self._most
        t1 = self._yardstick.t1
        wanted = self._plan.survey(count, self._most, lambda n: steps.seconds(min(n, most)) / t1)
        parts = shared(wanted.places, stretches(count))
        beyond = self._most - wanted.depth  # where a draft from the last place may go on
        asked = {
            place for each in parts for place in range(each.start, min(each.stop + beyond, count))
        }
        said = survey(lane, drafter, asked, wanted.depth)
        return Way(Stepping(said, wanted.depth, steps.seconds), parts, steps)


def _time(steps: StepTimer, lane: Lane, part: str, stretch: range, turns: int) -> None:
    with lane.kept():
        for place in places(lane, stretch, turns):
            steps.turn(lane.cached, lane.drafters[part], place)


def scans(part: str) -> bool:
    """Whether a part looks its drafts up, with no model."""
    return part.partition(":")[0] in _SCANNING
