"""One target with all of its drafters: answers, the cost of a draft step, memory.

Seconds of an answer begin when its prompt has been read, by the target and by the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from answers import Run

from paceline.core.stats import Stats

if TYPE_CHECKING:
    from paceline.build.drafts import Spec
    from paceline.core.cached import CachedModel
    from paceline.core.params import SamplingParams
    from paceline.core.protocols import Drafter
    from paceline.core.sequences import Sequences
    from paceline.models.progress import Note, Progress


class Bench:
    """One target and its drafters, which run over the target's caches in turn. `prompts`: token
    ids. `memory[draft]`: bytes by which the process grew with the drafter (None: not known)."""

    def __init__(
        self,
        model: str,
        dtype: str,
        prompts: Sequence[str],
        max_tokens: int,
        threads: int | None,
        progress: Progress,
        note: Note,
    ) -> None:
        import torch

        from paceline.build.models import Models
        from paceline.text.chat import prompt_ids

        if threads:
            torch.set_num_threads(threads)
        self._models = Models(dtype, "auto", threads, progress, note)
        self._target = self._models(model)
        self._prompts = [prompt_ids(self._target.tokenizer, text) for text in prompts]
        self._max_tokens = max_tokens
        self._room = max(map(len, self._prompts)) + max_tokens + 1
        self._caches: dict[str, CachedModel] = {}
        self._made: dict[str, tuple[CachedModel, Drafter]] = {}
        self.memory: dict[str, int | None] = {}
        self.add("none")

    @property
    def dtype(self) -> str:
        """The weight format that the target runs in."""
        return self._target.dtype

    def add(self, draft: str) -> str:
        """Make a drafter; its name with "auto" resolved. Trees stand behind an @: "@nodes=auto",
        "@branches=3". Raises PacelineError as `LLM` does."""
        from paceline.advise.stage import resident
        from paceline.build.drafts import DraftSetting, Spec, resolve
        from paceline.build.trees import Shape

        name, _, tree = draft.partition("@")
        kind, _, size = tree.partition("=")
        branches = int(size) if kind == "branches" else 1
        shape = Shape.read(branches, size if kind == "nodes" else None)
        resolved = resolve(name, self._target)
        spec = Spec(resolved)
        cached = self._cache(spec)
        before = resident(self._target.model.device)
        setting = DraftSetting(shape=shape)
        make = spec.maker(setting, self._target, self._models)
        self._made[draft] = cached, make(1, self._room, cached)
        self.answer(draft, 2, 0, max_tokens=8)  # its weights come into memory with their first use
        after = resident(self._target.model.device)
        self.memory[draft] = None if before is None or after is None else max(0, after - before)
        return resolved

    def _cache(self, spec: Spec) -> CachedModel:
        """One for all, but for a head: it has the target write down more than others need."""
        from paceline.core.cached import CachedModel

        key = "+".join(value for kind, value in spec.parts if kind == "head")
        if key not in self._caches:
            size, target = self._target.tokenizer.size, self._target.model
            self._caches[key] = CachedModel(target, 1, self._room, size)
            self._caches[key].sync(self._start(self._prompts[0], 1))
        return self._caches[key]

    def _start(
        self, ids: list[int], max_tokens: int, params: SamplingParams | None = None
    ) -> Sequences:
        from paceline.core.params import SamplingParams
        from paceline.core.sequences import Sequences

        seqs = Sequences(1, min(self._room, self._target.model.context))
        params = replace(params or SamplingParams(), max_tokens=max_tokens)
        seqs.admit(0, ids, params, self._target.tokenizer.eos_ids)
        return seqs

    def answer(
        self,
        draft: str,
        k: int,
        prompt: int,
        max_tokens: int | None = None,
        params: SamplingParams | None = None,
        verify: str = "auto",
    ) -> Run:
        """An answer to the prompt of that number, greedy without `params`; the prompt has been read
        by then."""
        import torch

        from paceline.build.verify import make_verifier
        from paceline.controllers.fixed import Fixed
        from paceline.core.loop import Loop

        cached, drafter = self._made[draft]
        ids, stats = self._prompts[prompt], Stats()
        seqs = self._start(ids, max_tokens or self._max_tokens, params)
        loop = Loop(cached, drafter, make_verifier(verify), Fixed(k))
        with torch.no_grad():
            cached.sync(seqs)
            drafter.propose(seqs, [1 if k else 0])  # which has a draft model read the prompt, too
        began = perf_counter()
        while any(seqs.running):
            round = loop.step(seqs)
            emitted = round.emitted[0]
            assert emitted is not None
            stats.add(emitted, round.seconds)
        seconds = perf_counter() - began
        return Run(seqs.committed(0)[len(ids) :].tolist(), seconds, stats)

    def costs(self, drafts: Sequence[str], k: int, turns: int) -> tuple[float, dict[str, float]]:
        """T(1) in seconds, and c of each drafter: a draft step, `propose` over the steps that it
        took for up to `k` tokens, over T(1). Medians over as many places in answers; at each the
        drafters and the target take turns."""
        import torch

        from paceline.core.types import Draft

        empty = Draft(torch.zeros(1, 0, dtype=torch.int64), [0])
        plain = self._caches[""]
        one_token = plain.best if plain.ranks else plain.score
        passes: list[float] = []
        steps: dict[str, list[float]] = {draft: [] for draft in drafts}
        with torch.no_grad():
            for turn in range(turns):
                number = turn * len(self._prompts) // turns
                begun = self.answer("none", 0, number, max_tokens=min(16, self._max_tokens)).ids
                # without its last token, which may be one that ends the answer
                seqs = self._start(self._prompts[number] + begun[:-1], 1)
                passes.append(_timed(lambda seqs=seqs: one_token(seqs, empty))[0])
                first = turn % max(1, len(drafts))
                for draft in [*drafts[first:], *drafts[:first]]:
                    cached, drafter = self._made[draft]
                    cached.sync(seqs)
                    taken, made = _timed(lambda d=drafter, s=seqs: d.propose(s, [k]))
                    found = made.lengths[0]
                    steps[draft].append(taken / min(k, found + 1) / passes[-1])
        return median(passes), {draft: median(values) for draft, values in steps.items()}


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a second call, and what it returned: the first one reads what is unread."""
    call()
    began = perf_counter()
    made = call()
    return perf_counter() - began, made
