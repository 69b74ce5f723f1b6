"""`paceline distill` from end to end: answers, training, export; continued where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from paceline import kernels
from paceline.build import check_threads
from paceline.build.models import Loaded, Models
from paceline.distill import checkpoint, export
from paceline.distill.answers import Sampler
from paceline.distill.card import Data, card
from paceline.distill.data import Answer, drop_half_line, read_answers, split
from paceline.distill.features import Features
from paceline.distill.kinds import Make
from paceline.distill.plan import Plan
from paceline.distill.teacher import Teacher
from paceline.distill.train import ANSWERS, CHECKPOINT, Stopped, Training
from paceline.distill.trainee import Trainee
from paceline.distill.vocab import cut
from paceline.errors import PacelineError
from paceline.models.load import open_checkpoint, pick_device
from paceline.models.progress import Note, Progress
from paceline.models.pull import resolve
from paceline.text.prompts import read_prompts

RUN = "run.json"
MINUTES = 60.0
"""How long a run may take if neither minutes nor tokens are given."""


@dataclass(frozen=True)
class Request:
    """What the user asks for.

    `make` builds what `kind` names. `minutes`: the whole run, of which answering takes a third at
    most; `tokens`: how many are trained on, repeats counted, answers having at most a third as
    many. `answers`: a file of given ones; prompts or answers or both must be there. `batch`: tokens
    of a batch. `vocab`: how many tokens the drafter may guess. `given`: options of the kind.
    `command`: what the user typed, for the card.
    """

    make: Make
    kind: str
    model: str
    out: str
    prompts: str | None = None
    answers: str | None = None
    minutes: float | None = None
    tokens: int | None = None
    seed: int = 0
    lr: float = 3e-4
    steps: int = 4
    batch: int | None = None
    vocab: int = 8192
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    given: dict[str, str] = field(default_factory=dict)
    command: str = "paceline distill"

    def __post_init__(self) -> None:
        if self.prompts is None and self.answers is None:
            raise PacelineError("nothing to train on: give --prompts FILE, or --answers FILE")
        for name, value in (
            ("minutes", self.minutes),
            ("tokens", self.tokens),
            ("lr", self.lr),
            ("steps", self.steps),
            ("batch", self.batch),
            ("vocab", self.vocab),
        ):
            if value is not None and not 0 < value < float("inf"):
                raise PacelineError(f"--{name} must be more than 0, not {value}")


def distill(
    request: Request,
    progress: Progress | None = None,
    note: Note | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Train and write a drafter into `request.out`; what came out of it, as JSON.

    The folder keeps the answers, the log and, until it is finished, a checkpoint: the same request
    goes on from there, another is refused by the name of what differs. Raises PacelineError for
    what the user can put right, and Stopped once everything is saved after `stopped()`.
    """
    return _Run(request, progress, note, stopped).whole()


class _Run:
    def __init__(
        self,
        request: Request,
        progress: Progress | None,
        note: Note | None,
        stopped: Callable[[], bool],
    ) -> None:
        self._request = request
        self._progress, self._note, self._stopped = progress, note, stopped
        self._folder = Path(request.out)
        given = read_prompts(request.prompts) if request.prompts else []
        self._prompts = [prompt.text for prompt in given]
        self._device = pick_device(request.device)
        if request.threads is not None:
            check_threads(request.threads)

    def whole(self) -> dict[str, Any]:
        request = self._request
        path = resolve(request.model)
        source = open_checkpoint(path)
        if source is None:
            raise PacelineError(
                f"{request.model} runs through transformers, which cannot be trained on here; "
                "use a model of an architecture that Paceline implements itself"
            )
        run = self._opened(self._settings(source.fingerprint))
        if "report" in run:
            if self._note:
                self._note(f"{self._folder} is finished; choose another --out to train again")
            return run["report"]
        models = Models(request.dtype, request.device, request.threads, self._progress, self._note)
        loaded = models(request.model)
        # Training is torch's work; the native kernels, which read the target, wait meanwhile.
        torch.set_num_threads(request.threads or kernels.default_threads())
        name = path.name if Path(request.model).exists() else request.model
        teacher = Teacher(name, path, source, loaded.model, self._device)
        self._made(teacher, torch.arange(1))  # what it refuses, it refuses before all the work
        train, held = split(self._answered(loaded, run), request.seed)
        vocab = cut(train, loaded.tokenizer, min(request.vocab, source.config.vocab_size))
        trainee = self._made(teacher, vocab)
        features = Features(loaded.model, trainee.needs, loaded.tokenizer.size, self._device)
        training = Training(
            trainee, features, train, held, self._plan(run), self._folder,
            self._progress, self._note, self._stopped,
        )  # fmt: skip
        line = training.run()
        data = Data(train, held)
        text = card(request.kind, teacher, data, line, training.trained, request.command)
        export.write(self._folder, trainee.export(), teacher, text)
        report = {
            "out": str(self._folder),
            "kind": request.kind,
            "target": export.target_of(teacher),
            "data": data.to_dict(),
            "tokens_trained": training.trained,
            **line,
        }
        checkpoint.write_json(self._folder / RUN, {**run, "report": report})
        (self._folder / CHECKPOINT).unlink(missing_ok=True)
        return report

    def _made(self, teacher: Teacher, vocab: Tensor) -> Trainee:
        torch.manual_seed(self._request.seed)
        return self._request.make(teacher, vocab.to(self._device), self._request.given)

    def _settings(self, fingerprint: str) -> dict[str, Any]:
        """What must be equal for a run to be continued, by the names of the options."""
        request = self._request
        minutes = MINUTES if request.minutes is request.tokens is None else request.minutes
        return {
            "kind": request.kind,
            "model": fingerprint,
            "prompts": _digest(self._prompts),
            "answers": request.answers and Path(request.answers).name,
            "minutes": minutes,
            "tokens": request.tokens,
            "seed": request.seed,
            "lr": request.lr,
            "steps": request.steps,
            "batch": request.batch or (4096 if self._device.type == "cuda" else 256),
            "vocab": request.vocab,
            "dtype": request.dtype,
            "set": request.given,
        }

    def _opened(self, settings: dict[str, Any]) -> dict[str, Any]:
        """The run that the folder holds, or a new one."""
        path = self._folder / RUN
        run = checkpoint.read_json(path)
        if run is not None:
            checkpoint.refuse_others(self._folder, run["settings"], settings)
            return run
        if self._folder.exists() and any(self._folder.iterdir()):
            raise PacelineError(
                f"{self._folder} is not empty and holds no run: choose another --out"
            )
        return {"settings": settings, "answering": {"seconds": 0.0, "done": False}}

    def _answered(self, loaded: Loaded, run: dict[str, Any]) -> list[Answer]:
        """All answers with something to train on, those that are missing sampled first."""
        path, size = self._folder / ANSWERS, loaded.tokenizer.size
        state = run["answering"]
        if not path.exists():
            given = read_answers(self._request.answers, size) if self._request.answers else []
            self._folder.mkdir(parents=True, exist_ok=True)
            checkpoint.write_json(self._folder / RUN, run)
            checkpoint.write_text(path, "".join(answer.to_line() for answer in given))
        drop_half_line(path)
        if self._prompts and not state["done"]:
            began = perf_counter()
            self._sampler(loaded, run).run(read_answers(path, size))
            state["seconds"] += perf_counter() - began
            state["done"] = not self._stopped()
            checkpoint.write_json(self._folder / RUN, run)
            if not state["done"]:
                raise Stopped
        return [answer for answer in read_answers(path, size) if answer.anchors]

    def _sampler(self, loaded: Loaded, run: dict[str, Any]) -> Sampler:
        settings = run["settings"]
        minutes, tokens = settings["minutes"], settings["tokens"]
        return Sampler(
            loaded.model,
            loaded.tokenizer,
            self._prompts,
            self._folder / ANSWERS,
            seed=settings["seed"],
            tokens=tokens and max(1, tokens // 3),
            seconds=minutes and max(0.0, minutes * 20 - run["answering"]["seconds"]),
            progress=self._progress,
            note=self._note,
            stopped=self._stopped,
        )

    def _plan(self, run: dict[str, Any]) -> Plan:
        settings = run["settings"]
        minutes = settings["minutes"]
        return Plan(
            tokens=settings["tokens"],
            seconds=minutes and max(1.0, minutes * 60 - run["answering"]["seconds"]),
            lr=settings["lr"],
            steps=settings["steps"],
            batch=settings["batch"],
            seed=settings["seed"],
        )


def _digest(prompts: list[str]) -> str | None:
    """Names a list of prompts."""
    if not prompts:
        return None
    return (
        f"{len(prompts)} of sha256 {hashlib.sha256(json.dumps(prompts).encode()).hexdigest()[:16]}"
    )
