"""A target with its drafters, and each prompt in a lane of its own: nothing is read twice."""

from __future__ import annotations

import copy
import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch

from paceline.build import check_threads
from paceline.build.drafts import DraftSetting, Spec, resolve
from paceline.build.models import Loaded, Models
from paceline.build.verify import make_verifier
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Drafter
from paceline.core.sequences import Sequences
from paceline.core.stats import Stats
from paceline.drafters.first_of import FirstOf
from paceline.drafters.none import NoDraft
from paceline.errors import PacelineError
from paceline.models.progress import Note, Progress
from paceline.text.chat import prompt_ids
from paceline.text.parts import MakesDrafter
from paceline.text.prompts import Prompt

_PROBE = 8  # tokens that are read before a drafter is first asked


@dataclass(frozen=True)
class Made:
    """A drafter that can be had. `draft`: as the user calls it; `resolved`: with "auto" in terms of
    what suits the target; `parts`: the drafters that are asked in turn; `memory`: bytes by which
    the process grew with them (None: not known); `notes`: what was said about them."""

    draft: str
    resolved: str
    parts: tuple[str, ...]
    memory: int | None
    notes: tuple[str, ...]


class Stage:
    """One target, and drafters that are loaded once. Raises PacelineError as `LLM` does."""

    def __init__(
        self,
        model: str,
        dtype: str,
        device: str,
        threads: int | None,
        progress: Progress,
        note: Note,
    ) -> None:
        if threads is not None:
            check_threads(threads)
            torch.set_num_threads(threads)
        self._heard: list[str] | None = None
        self._note = note
        self._models = Models(dtype, device, threads, progress, self._hear)
        self.target = self._models(model)
        self._makers: dict[str, MakesDrafter] = {}
        self._memory: dict[str, int | None] = {}
        self._probe = CachedModel(self.target.model, 1, 2 * _PROBE, self.target.tokenizer.size)
        self._ask(NoDraft())

    def add(self, draft: str) -> Made:
        """Load what a drafter takes. Raises PacelineError for one that cannot be had."""
        resolved = resolve(draft, self.target)
        self._heard = notes = []
        try:
            spec = Spec(resolved)
            parts = [f"{kind}:{value}" if value else kind for kind, value in spec.parts]
            for part in parts:
                if part not in self._makers:
                    self._add(part)
        finally:
            self._heard = None
        grown = [self._memory[part] for part in parts]
        memory = None if None in grown else sum(size or 0 for size in grown)
        return Made(draft, str(spec), tuple(parts), memory, tuple(notes))

    def lanes(self, prompts: Sequence[Prompt], tokens: int) -> list[Lane]:
        """A lane for each prompt, with room for an answer of so many tokens and all drafters that
        were added. Raises PacelineError for a prompt that the context does not hold."""
        tokenizer = self.target.tokenizer
        return [
            Lane(
                self.target,
                prompt.kind or "prompts",
                prompt_ids(tokenizer, prompt.text),
                tokens,
                self._makers,
            )
            for prompt in prompts
        ]

    def many(self, ids: Sequence[Sequence[int]], room: int) -> Many:
        """Rows of these tokens side by side, over a cache of `room` more."""
        return Many(self.target, ids, room, self._makers)

    def _add(self, part: str) -> None:
        make = Spec(part).maker(DraftSetting(), self.target, self._models)
        before = resident(self.target.model.device)
        drafter = make(1, self._probe.length, self._probe)
        self._ask(drafter)  # its weights come into memory with their first use
        after = resident(self.target.model.device)
        self._memory[part] = None if before is None or after is None else max(0, after - before)
        self._makers[part] = make

    def _ask(self, drafter: Drafter) -> None:
        vocab = self.target.model.vocab_size
        seqs = Sequences(1, self._probe.length)
        seqs.admit(0, [i % vocab for i in range(1, _PROBE)], SamplingParams())
        with torch.no_grad():
            self._probe.sync(seqs)
            drafter.propose(seqs, [2])

    def _hear(self, line: str) -> None:
        if self._heard is None:
            self._note(line)
        else:
            self._heard.append(line)


@dataclass(frozen=True)
class Ran:
    """What a run of the loop committed, the seconds that it took, and what was counted."""

    ids: list[int]
    seconds: float
    stats: Stats


class Lane:
    """One prompt, the target's plain greedy answer to it, and drafters over the same cache.

    `answer` is empty before `record`; `limit`: how many tokens it may have had. `room`: tokens of
    prompt and answer together.
    """

    def __init__(
        self,
        target: Loaded,
        kind: str,
        ids: list[int],
        tokens: int,
        makers: Mapping[str, MakesDrafter],
    ) -> None:
        self.kind = kind
        self.prompt = ids
        self.answer: list[int] = []
        self.limit = tokens
        self.eos = target.tokenizer.eos_ids
        self.room = min(len(ids) + tokens, target.model.context)
        self.cached = CachedModel(target.model, 1, self.room, target.tokenizer.size)
        self._whole = self.start(0, tokens)  # which refuses what is too long before it is read
        self.drafters = {name: make(1, self.room, self.cached) for name, make in makers.items()}

    def start(self, place: int, tokens: int, params: SamplingParams | None = None) -> Sequences:
        """The prompt and the first `place` tokens of the answer, to be continued for at most so
        many more, greedily or by `params`."""
        seqs = Sequences(1, self.room)
        ids = self.prompt + self.answer[:place]
        params = replace(params or SamplingParams(), max_tokens=tokens)
        seqs.admit(0, ids, params, self.eos)
        return seqs

    def at(self, place: int, params: SamplingParams | None = None) -> Sequences:
        """What was committed when `place` tokens of the answer were: a view that the next call
        changes. `params`: None is greedy."""
        self._whole.lengths[0] = len(self.prompt) + place
        self._whole.running[0] = True
        self._whole.params[0] = params or SamplingParams()
        return self._whole

    def record(self, tokens: int) -> Ran:
        """Answer plainly and greedily, with at most so many tokens; kept as `answer`. The prompt
        has been read when the seconds begin. Raises PacelineError where the model gives no
        distribution."""
        seqs = self._whole
        seqs.limits[0] = min(self.room, len(self.prompt) + tokens)
        self.limit = seqs.limits[0] - len(self.prompt)
        with torch.no_grad():
            self.cached.sync(seqs)
        ran = self._run(NoDraft(), 0, seqs, self.limit)
        if not ran.ids:
            raise PacelineError("the model's scores are not numbers (NaN): its weights are bad")
        self.answer = ran.ids
        return ran

    def run(self, parts: Sequence[str], k: int, place: int, tokens: int) -> Ran:
        """Decode on from `place` with these drafters, greedily, round by round until so many tokens
        are there. Everything before it has been read by all of them when the seconds begin. Call
        within `kept`."""
        each = [self.drafters[part] for part in parts]
        seqs = self.start(place, self.limit - place)
        with torch.no_grad():
            self.cached.sync(seqs)
            for drafter in each:
                drafter.propose(seqs, [1 if k else 0])
                self.cached.sync(seqs)
        return self._run(each[0] if len(each) == 1 else FirstOf(*each), k, seqs, tokens)

    def _run(self, drafter: Drafter, k: int, seqs: Sequences, tokens: int) -> Ran:
        begin, stats = seqs.lengths[0], Stats()
        loop = Loop(self.cached, drafter, make_verifier("auto"), Fixed(k))
        began = perf_counter()
        while any(seqs.running) and seqs.lengths[0] < begin + tokens:
            round = loop.step(seqs)
            emitted = round.emitted[0]
            assert emitted is not None
            stats.add(emitted, round.seconds)
        seconds = perf_counter() - began
        return Ran(seqs.committed(0)[begin:].tolist(), seconds, stats)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """What drafters and runs write to the target's cache meanwhile is undone at the end."""
        cached = self.cached
        cache, ids, filled = copy.deepcopy(cached.cache), cached.ids.clone(), list(cached.filled)
        hidden = None if cached.hidden is None else cached.hidden.clone()
        try:
            yield
        finally:
            cached.cache, cached.ids, cached.filled, cached.hidden = cache, ids, filled, hidden


class Many:
    """Rows that run side by side, to be timed; their drafters are built when asked for."""

    def __init__(
        self,
        target: Loaded,
        ids: Sequence[Sequence[int]],
        room: int,
        makers: Mapping[str, MakesDrafter],
    ) -> None:
        self.room = max(map(len, ids)) + room
        self.cached = CachedModel(target.model, len(ids), self.room, target.tokenizer.size)
        self._ids = ids
        self._makers = makers

    def start(self, behind: int = 0, params: SamplingParams | None = None) -> Sequences:
        """All rows, but for their last `behind` tokens where they have more."""
        seqs = Sequences(len(self._ids), self.room)
        for row, ids in enumerate(self._ids):
            kept = ids[: max(1, len(ids) - behind)]
            seqs.admit(row, kept, params or SamplingParams(max_tokens=None))
        return seqs

    def place(self, behind: int) -> tuple[Callable[[], Sequences], Callable[[], Sequences]]:
        """All rows but for their last `behind` tokens, and a little earlier (see `StepTimer`)."""
        return lambda: self.start(behind + 2), lambda: self.start(behind)

    def drafter(self, part: str) -> Drafter:
        """A drafter for all of these rows."""
        return self._makers[part](len(self._ids), self.room, self.cached)


def resident(device: torch.device) -> int | None:
    """Bytes of memory that this process holds on `device` now; None where the system does not
    say."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    path = Path("/proc/self/statm")
    if not path.exists():
        return None
    return int(path.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
