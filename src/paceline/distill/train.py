"""The training loop: features, loss, step; evaluate and save now and then."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from paceline.distill import checkpoint
from paceline.distill.data import Answer, Order
from paceline.distill.features import Features
from paceline.distill.plan import Plan
from paceline.distill.scores import Scores, autocast, evaluate, summary
from paceline.distill.trainee import Batch, Trainee
from paceline.errors import PacelineError
from paceline.models.progress import Note, Progress

ANSWERS, CHECKPOINT, LOG = "answers.jsonl", "checkpoint.pt", "log.jsonl"
HELD_OUT = 2000
"""Held-out tokens that one evaluation reads at most; their features stay in memory."""
ABSORB = 0.4
"""How much of the budget a start in closed form may take."""


class Stopped(Exception):
    """The user asked to stop; everything is saved."""


class Training:
    """One run of `trainee` in `folder`, continued from its checkpoint there if it has one: on a CPU
    and with a budget of tokens, to the same bits as if it had never stopped.

    Each row of `train` must have an anchor. The average of the weights over about
    1 / (1 - averaging) steps runs along, and what is kept in the end is whatever had the best τ on
    `held`: some evaluation's weights, or their average. `stopped()`: whether the user wants to
    stop. `step`, `trained`, `seconds`: how far it is; `log`: a line for each evaluation.
    """

    def __init__(
        self,
        trainee: Trainee,
        features: Features,
        train: Sequence[Answer],
        held: Sequence[Answer],
        plan: Plan,
        folder: Path,
        progress: Progress | None = None,
        note: Note | None = None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.trainee, self.plan = trainee, plan
        self.log: list[dict[str, Any]] = []
        self.step = self.trained = 0
        self.seconds = 0.0
        self._place = (0, 0)  # epoch, and batch in it, that comes next
        self._settled = False
        self._evaluated = self._stale = 0
        self._loss = math.nan
        self._features, self._train, self._held = features, train, held
        self._folder = folder
        self._progress, self._note, self._stopped = progress, note, stopped
        self._order = Order([len(a.ids) for a in train], plan.batch, plan.seed)
        self._params = trainee.parameters()
        self._adam = torch.optim.AdamW(self._params, plan.lr, betas=(0.9, 0.95))
        self._average = self._best = _copies(self._params)
        self._began = self._saved = self._ended = perf_counter()
        self._cost = 0.0  # of the last evaluation, in seconds

    def run(self) -> dict[str, Any]:
        """Train to the end of the budget, leave the best weights in the trainee, and return the
        log's line about them. Raises Stopped after saving, PacelineError where the loss or its
        gradient is not finite."""
        self._began = self._saved = perf_counter()
        self._resume()
        if not self._settled:
            self._start()
        held = self._held_out()
        if not self.log:
            self._evaluate(held)
            self._save()
        if not self._over:
            for place, batch in self._batches():
                self._learn(batch)
                self._place = place
                over = self.share >= 1
                if over or self._due():
                    self._evaluate(held)
                self._pause("training")
                if over or self._stale >= self.plan.patience:
                    break
            self._save()
        _assign(self._params, self._best)
        return max(self.log, key=_merit)

    def _pause(self, what: str) -> None:
        """Between two batches: say how far it is, and save if it is time to."""
        if self._progress:
            self._progress(int(1000 * self.share), 1000, what)
        if perf_counter() - self._saved >= self.plan.every:
            self._save()

    @property
    def share(self) -> float:
        """How much of the budget is used, 0 to 1; a last evaluation's time counts as used."""
        plan = self.plan
        by_tokens = 0.0 if plan.tokens is None else self.trained / plan.tokens
        by_time = 0.0 if plan.seconds is None else self._needed() / max(plan.seconds, 1e-9)
        return min(1.0, max(by_tokens, by_time))

    @property
    def _over(self) -> bool:
        return self.share >= 1 or self._stale >= self.plan.patience

    def _due(self) -> bool:
        """Whether to evaluate now; where time is short that takes a seventh of it at most."""
        due = int(self.share * self.plan.evaluations)
        if due <= self._evaluated:
            return False
        waited = perf_counter() - self._ended
        if self.plan.seconds is not None and waited < 6 * self._cost:
            return False
        self._evaluated = due
        return True

    def _needed(self) -> float:
        """Seconds so far, were the run to end now."""
        return self._elapsed() + min(self._cost, 0.1 * (self.plan.seconds or 0.0))

    def _elapsed(self) -> float:
        return self.seconds + perf_counter() - self._began

    def _batches(self) -> Iterator[tuple[tuple[int, int], Batch]]:
        """The batches from the run's place on, without end, each with the place behind it. Saves
        and raises Stopped when the user asks to stop."""
        epoch, start = self._place
        while True:
            batches = self._order.epoch(epoch)
            for index in range(start, len(batches)):
                if self._stopped():
                    if self.step or self._place != (0, 0):
                        self._save()
                    raise Stopped
                rows = [self._train[i] for i in batches[index]]
                yield (epoch, index + 1), self._features.read(rows)
            epoch, start = epoch + 1, 0

    def _start(self) -> None:
        """The start in closed form: one pass over the answers, or as much of one as ABSORB of the
        budget or the trainee's own wants allow."""
        left = self.trainee.wants - self.trained
        if left > 0 and self._note:
            self._note("reading the answers once, for a start in closed form")
        for place, batch in self._batches():
            if left <= 0 or place[0] > 0 or (self.trained and self.share >= ABSORB):
                break
            self.trainee.absorb(batch)
            self._place = place
            self.trained += batch.count
            left -= batch.count
            self._pause("reading answers")
        self.trainee.settle()
        self._settled = True
        self._average = self._best = _copies(self._params)

    def _held_out(self) -> list[Batch]:
        """What evaluations read, computed once: greedy answers first, as agreement is greedy."""
        rows: list[Answer] = []
        for answer in sorted(self._held, key=lambda answer: answer.temperature):
            if sum(len(row.ids) for row in rows) < HELD_OUT:
                rows.append(answer)
        order = Order([len(row.ids) for row in rows], self.plan.batch, self.plan.seed)
        return [self._features.read([rows[i] for i in which]) for which in order.epoch(0)]

    def _learn(self, batch: Batch) -> None:
        rate = self.plan.rate(self.share)
        for group in self._adam.param_groups:
            group["lr"] = rate
        with autocast(batch.tokens.device):
            loss = self.trainee.loss(batch, self.plan.steps).loss
        self._adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self._params, self.plan.clip)
        self._loss = float(loss.detach())
        if not (math.isfinite(self._loss) and math.isfinite(float(norm))):
            lines = ", ".join(map(str, batch.lines))
            what = "gradient" if math.isfinite(self._loss) else "loss"
            raise PacelineError(
                f"the {what} of step {self.step + 1} is not a number; its batch is lines {lines} "
                f"of {self._folder / ANSWERS}: take them out if they are odd, or lower --lr"
            )
        self._adam.step()
        self.step += 1
        self.trained += batch.count
        decay = min(self.plan.averaging, (1 + self.step) / (10 + self.step))
        for average, value in zip(self._average, self._params, strict=True):
            average.lerp_(value.detach(), 1 - decay)

    def _evaluate(self, held: list[Batch]) -> None:
        """Measure the weights and their average; remember them if one is the best so far."""
        began = perf_counter()
        found = [("last", evaluate(self.trainee, held))]
        if self.step:
            with _swapped(self._params, self._average):
                found.append(("average", evaluate(self.trainee, held)))
        weights, scores = max(found, key=lambda pair: (pair[1].tau, -pair[1].loss))
        line, before = self._line(weights, scores), self.log
        better = not before or _merit(line) > max(map(_merit, before))
        least = min((old["held_out_loss"] for old in before), default=math.inf)
        self._stale = 0 if better or line["held_out_loss"] < least else self._stale + 1
        self.log.append(line)
        if better:
            self._best = _copies(self._average if weights == "average" else self._params)
        text = "".join(json.dumps(line) + "\n" for line in self.log)
        checkpoint.write_text(self._folder / LOG, text)
        if self._note:
            self._note(summary(line))
        self._ended = perf_counter()
        self._cost = self._ended - began

    def _line(self, weights: str, scores: Scores) -> dict[str, Any]:
        return {
            "step": self.step,
            "tokens": self.trained,
            "seconds": round(self._elapsed(), 1),
            "loss": round(self._loss, 5) if self.step else None,
            "weights": weights,
            **scores.to_dict(),
        }

    def _save(self) -> None:
        """Write everything that a run is continued from."""
        self.seconds, self._began = self._elapsed(), perf_counter()
        state = {name: getattr(self, name) for name in _STATE}
        state |= {
            "settings": self.trainee.settings,
            "trainee": self.trainee.state(),
            "adam": self._adam.state_dict(),
        }
        checkpoint.save(self._folder / CHECKPOINT, state)
        self._saved = perf_counter()

    def _resume(self) -> bool:
        """Become what the checkpoint says; False if there is none."""
        state = checkpoint.load(self._folder / CHECKPOINT)
        if state is None:
            return False
        checkpoint.refuse_others(self._folder, state["settings"], self.trainee.settings)
        self.trainee.load(state["trainee"])
        self._adam.load_state_dict(state["adam"])
        device = self._params[0].device
        for name in _STATE:
            value = state[name]
            if name in ("_average", "_best"):
                value = [tensor.to(device) for tensor in value]
            setattr(self, name, value)
        return True


_STATE = (
    "log", "step", "trained", "seconds", "_settled", "_place", "_evaluated", "_stale", "_loss",
    "_average", "_best",
)  # fmt: skip


def _merit(line: dict[str, Any]) -> tuple[float, float]:
    """What an evaluation is better by: τ, then the loss."""
    return line["tau"], -line["held_out_loss"]


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def _assign(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> None:
    for tensor, value in zip(tensors, values, strict=True):
        tensor.data.copy_(value)


@contextmanager
def _swapped(tensors: Sequence[Tensor], values: Sequence[Tensor]) -> Iterator[None]:
    """Inside, `tensors` are `values`."""
    own = _copies(tensors)
    _assign(tensors, values)
    try:
        yield
    finally:
        _assign(tensors, own)
