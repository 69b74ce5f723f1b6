"""What is measured: the generators of one loaded model, each answer in a batch of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paceline.build import LLM
from paceline.core.params import SamplingParams
from paceline.core.sequences import check_room
from paceline.core.types import Emitted
from paceline.text.batch import Batch
from paceline.text.llm import Generator
from paceline.text.request import Request

_BUDGET = 256  # prompt tokens read at a time, as a generator does
_WARM_PROMPT, _WARM_ANSWER = 32, 16


class Fresh:
    """Answers of a generator that remembers nothing of those before: each is made in caches of its
    own, so that every repeat reads its prompt anew. `verify`: the verifier; None: its own."""

    def __init__(self, generator: Generator, verify: str | None = None) -> None:
        self._generator, self._verify = generator, verify

    def start(self, ids: Sequence[int], params: SamplingParams) -> _Answer:
        """Raises PacelineError for a prompt that is empty or longer than the context."""
        parts, context = self._generator.parts, self._generator.context
        params = replace(params, verify=self._verify)
        parts.check(params)
        check_room(len(ids), context)
        request = Request(ids, params, parts.tokenizer, parts.lossless(params))
        return _Answer(Batch(parts, 1, request.limit(context)), request)


class _Answer:
    def __init__(self, batch: Batch, request: Request) -> None:
        self.completion = request.completion
        self._batch, self._request = batch, request

    def read(self) -> None:
        self._batch.admit(self._request)
        while self._batch.unread:
            self._batch.read(_BUDGET)

    def step(self) -> Emitted:
        return self._batch.step()[0].emitted


class Engines:
    """Plain decoding and one engine for each of `cells`, all over the model that `llm` has loaded.
    `lossless[i]`: whether cell i's output is distributed as the target's own. Raises PacelineError
    for what cannot be loaded."""

    def __init__(self, llm: LLM, cells: Sequence[Mapping[str, Any]]) -> None:
        self.plain = Fresh(llm.with_draft("none"))
        generators: dict[tuple[Any, ...], Generator] = {}

        def generator(draft: str | None, k: int | None, window: str | None) -> Generator:
            key = (draft, k, window)
            if key not in generators:
                bare = key == (None, None, None)
                other = lambda: llm.with_draft(draft or llm.draft, k=k, window=window)  # noqa: E731
                generators[key] = llm if bare else other()
            return generators[key]

        self.cells: list[Fresh] = []
        self.lossless: list[bool] = []
        for cell in cells:
            own = generator(cell.get("draft"), cell.get("k"), cell.get("window"))
            verify = cell.get("verify")
            self.cells.append(Fresh(own, verify))
            self.lossless.append(own.parts.lossless(SamplingParams(verify=verify)))

    def warm_up(self, ids: Sequence[int], progress: Callable[[int, int, str], None]) -> None:
        """Have each answer a few words once: what is done at first is no part of what follows."""
        each = [self.plain, *self.cells]
        for done, engine in enumerate(each):
            progress(done, len(each), "warming up")
            answer = engine.start(ids[:_WARM_PROMPT], SamplingParams(max_tokens=_WARM_ANSWER))
            answer.read()
            while answer.step().finish is None:
                pass
        progress(len(each), len(each), "warming up")
