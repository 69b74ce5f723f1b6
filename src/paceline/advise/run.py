"""`paceline advise`: profile the pair, ask the drafters, predict, measure, say what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from paceline import kernels
from paceline.advise import bottleneck
from paceline.advise.bottleneck import Bottleneck
from paceline.advise.costs import Passes, fit, verdict
from paceline.advise.drafts import load
from paceline.advise.field import Field
from paceline.advise.plan import LONGEST, Plan
from paceline.advise.prompts import PROMPTS
from paceline.advise.request import Request
from paceline.advise.rows import Row
from paceline.advise.sentence import Advice, advise
from paceline.advise.stage import Lane, Stage
from paceline.advise.timing import SIZES, PassTimer, Rounds, Yardstick
from paceline.advise.ways import Ways
from paceline.models.progress import Note, Progress
from paceline.text.prompts import Prompt, read_prompts

TEMPERATURE = 0.7
MOST_PROMPTS = 6
_TURNS = 3  # of timing passes before anything else; the others come between
_NONE = Row("none", "none", memory=0)


@dataclass(frozen=True)
class Asked:
    """A prompt that was answered: its `kind`, and the tokens of both."""

    kind: str
    prompt: int
    answer: int


@dataclass(frozen=True)
class Report:
    """All that was found out. `drafting`: seconds of drafting a token of the output, of the draft
    that is advised; `passes`: by rows, of one row first; `given`: how many prompts there were, of
    which those `asked` were answered; `rows`: plain decoding first; `seconds`: loading included."""

    model: str
    dtype: str
    device: str
    threads: int
    bottleneck: Bottleneck
    drafting: float
    passes: Sequence[Passes]
    asked: Sequence[Asked]
    given: int
    rows: Sequence[Row]
    advice: Advice
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        bound = self.bottleneck
        return {
            "model": self.model,
            "dtype": self.dtype,
            "device": self.device,
            "threads": self.threads,
            "bottleneck": {
                "context": bound.context,
                "token_ms": bound.seconds * 1e3,
                "parts_ms": {name: taken * 1e3 for name, taken in bound.parts.items()},
                "draft_ms": self.drafting * 1e3,
                "weights_bytes": bound.weights,
                "kv_bytes": bound.kv,
                "bandwidth_gb_s": bound.bandwidth / 1e9,
                "bandwidth_how": bound.how,
                "mbu": bound.mbu,
            },
            "passes": [_to_dict(passes) for passes in self.passes],
            "prompts": [dict(vars(asked)) for asked in self.asked],
            "prompts_given": self.given,
            "drafters": [row.to_dict() for row in self.rows],
            "advice": self.advice.to_dict(),
            "seconds": self.seconds,
        }


def _to_dict(passes: Passes) -> dict[str, Any]:
    return {
        "batch": passes.batch,
        "context": passes.context,
        "target_ms": {str(n): taken * 1e3 for n, taken in passes.target.items()},
        "rest_ms": {str(n): taken * 1e3 for n, taken in passes.rest.items()},
        "r": {str(n): r for n, r in passes.r.items()},
        "roofline": dict(vars(fit(passes.r))),
        "verdict": verdict(passes.r),
    }


def run(request: Request, progress: Progress, note: Note) -> Report:
    """Do all of it. Raises PacelineError for anything that the user can put right."""
    began = perf_counter()
    given = PROMPTS if request.prompts is None else read_prompts(request.prompts)
    stage = Stage(request.model, request.dtype, request.device, request.threads, progress, note)
    stage.add("none")
    made, failed = load(stage, request.drafts, progress)
    lanes = stage.lanes(chosen(given), LONGEST)
    alone = stage.many([lanes[0].prompt], 1)
    rounds, at = Rounds(alone.cached, alone.start), len(lanes[0].prompt)
    timer = PassTimer(rounds, 1, at, sorted({*SIZES, request.windows[-1] + 1}))
    for _ in range(_TURNS):
        timer.turn()
    plan = Plan(request.seconds / timer.t1, len(lanes))
    _record(lanes, plan, progress)
    context = sum(len(lane.prompt) + len(lane.answer) // 2 for lane in lanes) // len(lanes)
    threads = request.threads or kernels.default_threads()
    bound = bottleneck.find(stage.target.model, rounds, at, context, threads)
    yardstick = Yardstick(rounds, timer.t1)
    ways = Ways(lanes, plan, yardstick, request.windows[-1])
    ways.ask(made, progress)
    field = Field(made, lanes, ways, timer, yardstick, request.windows)
    field.race(plan, progress)
    field.heat(alone, TEMPERATURE)
    batches = [field.batch(stage, rows) for rows in request.batch if rows > 1]
    rows = [_NONE, *field.rows(), *failed]
    passes = field.passes
    advice = advise(rows, passes, request.model, request.options)
    advised = next(row for row in rows if row.draft == advice.draft)
    return Report(
        request.model,
        stage.target.dtype,
        str(stage.target.model.device),
        threads,
        bound,
        field.drafting(advised.resolved) if advised.drafts else 0.0,
        [passes, *batches],
        [Asked(lane.kind, len(lane.prompt), len(lane.answer)) for lane in lanes],
        len(given),
        rows,
        advice,
        perf_counter() - began,
    )


def chosen(prompts: Sequence[Prompt]) -> list[Prompt]:
    """At most MOST_PROMPTS of them: the first of each kind, then the second, and so on."""
    seen: dict[str | None, int] = {}
    ranks: list[tuple[int, int]] = []
    for i, prompt in enumerate(prompts):
        seen[prompt.kind] = seen.get(prompt.kind, -1) + 1
        ranks.append((seen[prompt.kind], i))
    return [prompts[i] for _, i in sorted(ranks)[:MOST_PROMPTS]]


def _record(lanes: Sequence[Lane], plan: Plan, progress: Progress) -> None:
    for done, lane in enumerate(lanes):
        progress(done, len(lanes), "answers")
        lane.record(plan.answer)
    progress(len(lanes), len(lanes), "answers")
