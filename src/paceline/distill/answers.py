"""The target answers the prompts, several at a time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Model
from paceline.core.sequences import Sequences
from paceline.distill.data import Answer, append
from paceline.drafters.none import NoDraft
from paceline.errors import PacelineError
from paceline.models.progress import Note, Progress
from paceline.text.chat import prompt_ids
from paceline.text.tokenizer import Tokenizer
from paceline.verifiers.rejection import Rejection

ROWS = 16  # answered side by side
ROUNDS = 4  # how often one prompt is answered at most
PROMPT, ANSWER = 512, 320
"""Tokens of a prompt (a longer one is left out) and of an answer at most."""
TEMPERATURE, TOP_K = 0.7, 40


@dataclass(frozen=True)
class _Job:
    """A prompt for the `round`-th time; `index`: its place in the order of asking."""

    index: int
    round: int
    prompt: str
    ids: list[int]

    def params(self, seed: int, tokens: int) -> SamplingParams:
        """Every prompt is answered greedily once in its first two rounds, else sampled."""
        own = seed + 1_000_003 * self.round + self.index
        if self.round < 2 and (self.index + self.round) % 2 == 0:
            return SamplingParams(max_tokens=tokens, temperature=0.0, seed=own)
        return SamplingParams(max_tokens=tokens, temperature=TEMPERATURE, top_k=TOP_K, seed=own)


@dataclass
class Sampler:
    """Has `model` answer `prompts` into the file `path`.

    Stops after `tokens` answer tokens, those in the file counted, or `seconds` of work, whichever
    comes first (None: neither), else after ROUNDS answers to each prompt. `longest`: tokens of an
    answer. `stopped()`: whether to stop at once.
    """

    model: Model
    tokenizer: Tokenizer
    prompts: Sequence[str]
    path: Path
    seed: int = 0
    tokens: int | None = None
    seconds: float | None = None
    longest: int = ANSWER
    progress: Progress | None = None
    note: Note | None = None
    stopped: Callable[[], bool] = lambda: False

    def run(self, given: Sequence[Answer]) -> None:
        """Append answers to the file that are not among `given`. A row that the time or the user
        cuts off is kept as far as it came. Raises PacelineError for prompts that are all too long,
        or a model whose scores are not numbers."""
        jobs = self._jobs(given)
        length = min(self.model.context, PROMPT + self.longest)
        rows = min(ROWS, len(self.prompts))
        target = CachedModel(self.model, rows, length, self.tokenizer.size)
        loop = Loop(target, NoDraft(), Rejection(), Fixed(0))
        seqs = Sequences(rows, length)
        current: list[_Job | None] = [None] * rows
        done = sum(len(a.completion_ids) for a in given)
        began = perf_counter()
        while True:
            spent = perf_counter() - began
            for b in range(rows):
                over = self._over(spent, done + _in_flight(seqs)) or self.stopped()
                if (job := current[b]) and (over or not seqs.running[b]):
                    done += self._write(job, seqs, b)
                    seqs.finish(b)
                    current[b] = None
                if current[b] is None and not over and (job := next(jobs, None)):
                    seqs.admit(
                        b, job.ids, job.params(self.seed, self.longest), self.tokenizer.eos_ids
                    )
                    current[b] = job
            if not any(seqs.running):
                return
            for b, emitted in enumerate(loop.step(seqs).emitted):
                if emitted and emitted.finish == "error":
                    raise PacelineError(
                        f"the model's scores are not numbers (NaN) on the prompt "
                        f"{current[b].prompt[:60]!r}; is the model sound?"  # type: ignore[union-attr]
                    )
            self._report(spent, done + _in_flight(seqs))

    def _jobs(self, given: Sequence[Answer]) -> Iterator[_Job]:
        """What is left to do, in order."""
        shuffled = list(self.prompts)  # a file may be sorted, and time may be short
        random.Random(self.seed).shuffle(shuffled)
        ids = [(p, prompt_ids(self.tokenizer, p)) for p in shuffled]
        fitting = [(i, p, t) for i, (p, t) in enumerate(ids) if len(t) <= self._room()]
        if not fitting:
            raise PacelineError(f"all prompts are longer than {self._room()} tokens; shorten them")
        if (short := len(ids) - len(fitting)) and self.note:
            self.note(f"{short} prompts of more than {self._room()} tokens are left out")
        answered = Counter(a.prompt for a in given)
        for round in range(ROUNDS):
            for i, prompt, tokens in fitting:
                if answered[prompt] <= round:
                    yield _Job(i, round, prompt, tokens)

    def _room(self) -> int:
        return min(PROMPT, self.model.context - 2)

    def _over(self, spent: float, tokens: int) -> bool:
        by_time = self.seconds is not None and spent >= self.seconds
        return by_time or (self.tokens is not None and tokens >= self.tokens)

    def _report(self, spent: float, tokens: int) -> None:
        if self.progress is None:
            return
        by_time = 0.0 if self.seconds is None else spent / self.seconds
        by_tokens = 0.0 if self.tokens is None else tokens / self.tokens
        share = min(1.0, max(by_time, by_tokens))
        self.progress(int(1000 * share), 1000, "the target answers")

    def _write(self, job: _Job, seqs: Sequences, row: int) -> int:
        """Append the answer of a row; how many tokens it has."""
        tokens: list[int] = seqs.committed(row)[seqs.prompts[row] :].tolist()
        if tokens:
            temperature = seqs.params[row].temperature
            append(self.path, Answer(job.prompt, temperature, job.ids, tokens))
        return len(tokens)


def _in_flight(seqs: Sequences) -> int:
    rows = zip(seqs.lengths, seqs.prompts, seqs.running, strict=True)
    return sum(length - prompt for length, prompt, run in rows if run)
