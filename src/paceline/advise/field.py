"""All drafters beside each other: predicted, raced, at a temperature, in batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from paceline.advise import predict
from paceline.advise.costs import Passes
from paceline.advise.plan import Plan, stretches
from paceline.advise.replay import Turn, counted
from paceline.advise.rows import Heat, Part, Row, Trial
from paceline.advise.stage import Lane, Made, Many, Stage
from paceline.advise.timing import AHEAD, PassTimer, Rounds, StepTimer, Yardstick, time_passes
from paceline.advise.trials import Chances, Entrant, Raced, chances, heat, race
from paceline.advise.ways import Ways, scans
from paceline.core.params import SamplingParams
from paceline.core.stats import Stats
from paceline.models.progress import Progress

LENGTHS = ("to_100", "beyond_100")
_SIZES = (1, 2, 3, 5, 9)  # tokens of passes that are timed in a batch and at a temperature
_TURNS = 3
_ROW = 32  # tokens of a row of a batch

Where = Callable[[Lane, int], bool]  # picks stretches of answers by their number


class Field:
    """The drafters that were made, over lanes whose answers are recorded and along which `ways`
    were asked. `timer`: of passes of one row; `yardstick`: T(1) of it; `windows`: the K to choose
    from. `passes`: what the timer says so far."""

    def __init__(
        self,
        made: Sequence[Made],
        lanes: Sequence[Lane],
        ways: Ways,
        timer: PassTimer,
        yardstick: Yardstick,
        windows: Sequence[int],
    ) -> None:
        self._made, self._lanes, self._ways = made, lanes, ways
        self._timer, self._yardstick, self._windows = timer, yardstick, windows
        self.passes = timer.passes(yardstick.t1)
        self._best = {each.resolved: predict.best(self._curve(each)) for each in made}
        self._raced: dict[str, dict[str, list[Raced]]] = defaultdict(lambda: defaultdict(list))
        self._heats: dict[str, Heat | None] = {}
        self._batches: dict[str, dict[int, tuple[int, float]]] = defaultdict(dict)

    def race(self, plan: Plan, progress: Progress) -> None:
        """Run every drafter at its best K for a little while in every stretch, and time passes and
        drafting again in between."""
        for made in self._made:
            self._ways.settle(made, self._best[made.resolved])
        each = [(i, n) for i, lane in enumerate(self._lanes) for n in _numbers(lane)]
        tokens = plan.race(len(self._made))
        for done, (i, n) in enumerate(each):
            progress(done, len(each), "running drafters")
            lane = self._lanes[i]
            few = tokens // len(_numbers(lane))
            entrants = {made.resolved: self._entrant(made, i, n, few) for made in self._made}
            start = self._ways.reach(self._made[0], i, n)[0] if self._made else 0
            for name, raced in race(lane, start, entrants).items():
                self._raced[name][lane.kind].append(raced)
            self._timer.turn()
            self._ways.time(i, n)
        self.passes = self._timer.passes(self._yardstick.t1)
        progress(len(each), len(each), "running drafters")

    def _entrant(self, made: Made, lane: int, stretch: int, tokens: int) -> Entrant:
        start, stop = self._ways.reach(made, lane, stretch)
        says = [self._ways.of(part)[lane].says for part in made.parts]
        return Entrant(made.parts, says, self._best[made.resolved], min(stop, start + tokens))

    def heat(self, alone: Many, temperature: float) -> None:
        """Look at the effect of a temperature; `alone`: one row."""
        params = SamplingParams(max_tokens=None, temperature=temperature, seed=0)
        rounds = Rounds(alone.cached, lambda: alone.start(0, params))
        timer = PassTimer(rounds, 1, self.passes.context, _SIZES)
        hot = time_passes(timer, _TURNS, self._yardstick)
        found: dict[str, list[Chances]] = defaultdict(list)
        for lane in self._lanes:
            parts = {m.resolved: [lane.drafters[part] for part in m.parts] for m in self._made}
            for name, each in chances(lane, parts, params).items():
                found[name].append(each)
        for made in self._made:
            turns = self._rounds(made, self._best[made.resolved])
            self._heats[made.resolved] = heat(found[made.resolved], turns, hot, temperature)

    def batch(self, stage: Stage, rows: int) -> Passes:
        """Time so many rows side by side, and predict every drafter there."""
        ids = [self._lanes[i % len(self._lanes)].prompt[:_ROW] for i in range(rows)]
        many = stage.many(ids, 1)
        sizes = sorted({*_SIZES, self._windows[-1] + 1})
        rounds = Rounds(many.cached, many.start)
        timer = PassTimer(rounds, rows, _ROW, sizes)
        passes = time_passes(timer, _TURNS, self._yardstick)
        for made in self._made:
            ratios = [1.0]
            for part in made.parts:
                if not scans(part):
                    steps, drafter = StepTimer(self._yardstick), many.drafter(part)
                    for behind in range(_TURNS):
                        steps.turn(many.cached, drafter, many.place(behind))
                    alone = [way.steps.seconds(AHEAD) for way in self._ways.of(part)]
                    ratios.append(steps.seconds(AHEAD) / fmean(alone))
            curve = {
                k: predict.in_batch(self._rounds(made, k), passes, max(ratios))
                for k in self._windows
            }
            best = predict.best(curve)
            self._batches[made.resolved][rows] = best, curve[best]
        return passes

    def rows(self) -> list[Row]:
        """What was found out about each drafter."""
        return [self._row(made) for made in self._made]

    def drafting(self, resolved: str) -> float:
        """Seconds of drafting a token of the output, at the drafter's best K."""
        made = next(each for each in self._made if each.resolved == resolved)
        rounds = self._rounds(made, self._best[resolved])
        return sum(turn.draft_s for turns in rounds for turn in turns) / predict.tokens(rounds)

    def _row(self, made: Made) -> Row:
        name = made.resolved
        best = self._best[name]
        stats = _counted(self._rounds(made, best))
        longest = _counted(self._rounds(made, self._windows[-1]))
        lengths = {
            length: self._part(made, lambda lane, n, i=i: n == i)
            for i, length in enumerate(LENGTHS)
            if any(i in _numbers(lane) for lane in self._lanes)
        }
        kinds = {
            kind: self._part(
                made, lambda lane, n, k=kind: lane.kind == k, self._trial(self._raced[name][kind])
            )
            for kind in dict.fromkeys(lane.kind for lane in self._lanes)
        }
        return Row(
            draft=made.draft,
            resolved=name,
            notes=made.notes,
            memory=made.memory,
            c=self._step(made, best),
            k=best,
            alpha=stats.alpha,
            alpha_at=tuple(longest.alpha_at),
            tested_at=tuple(longest.tested),
            tau=stats.tau or 1.0,
            curve=self._curve(made),
            kinds=kinds,
            lengths=lengths,
            heat=self._heats.get(name),
            batches=self._batches[name],
        )

    def _part(self, made: Made, where: Where, trial: Trial | None = None) -> Part:
        rounds = self._rounds(made, self._best[made.resolved], where)
        return Part(_counted(rounds).tau or 1.0, predict.speedup(rounds, self.passes), trial)

    def _step(self, made: Made, k: int) -> float:
        """c: seconds of drafting (or of looking in vain) a drafted token, over T(1)."""
        turns = [turn for turns in self._rounds(made, k) for turn in turns]
        steps = sum(max(1, turn.emitted.drafted) for turn in turns)
        return sum(turn.draft_s for turn in turns) / steps / self.passes.target[1]

    def _trial(self, raced: Sequence[Raced]) -> Trial | None:
        """What was run, beside what is predicted for it."""
        if not raced:
            return None
        rounds = [each.rounds() for each in raced]
        return Trial(
            sum(each.tokens for each in raced),
            sum(each.drafted_s for each in raced),
            sum(each.plain_s for each in raced),
            predict.seconds(rounds, self.passes),
            predict.tokens(rounds) * self.passes.seconds(1),
            all(each.same for each in raced),
        )

    def _curve(self, made: Made) -> Mapping[int, float]:
        return {k: predict.speedup(self._rounds(made, k), self.passes) for k in self._windows}

    def _rounds(self, made: Made, k: int, where: Where = lambda lane, n: True) -> list[list[Turn]]:
        return [
            self._ways.rounds(made, i, n, k)
            for i, lane in enumerate(self._lanes)
            for n in _numbers(lane)
            if where(lane, n)
        ]


def _numbers(lane: Lane) -> range:
    """The numbers of a lane's stretches."""
    return range(len(stretches(len(lane.answer))))


def _counted(rounds: predict.Rounds) -> Stats:
    return counted(turn for turns in rounds for turn in turns)
