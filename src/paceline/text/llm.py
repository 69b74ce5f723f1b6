"""Strings in, streams of text out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, overload

from paceline.core.params import SamplingParams
from paceline.core.sequences import check_room
from paceline.text.batch import Batch
from paceline.text.chat import chat_ids, prompt_ids
from paceline.text.completion import Completion, Piece
from paceline.text.parts import Parts
from paceline.text.request import Request

Prompt = str | Sequence[int]
BATCH = 8  # rows that run side by side
_BUDGET = 256  # prompt tokens read between two reports of progress


class Generator:
    """Generates text from `parts`. Keeps its caches between calls: what one prompt shares with the
    last one that ran in the same row is not read again. `context`: the most tokens of prompt and
    output together. `progress(done, total, what)` hears of prompts being read. One call at a time.
    """

    def __init__(
        self,
        parts: Parts,
        context: int | None = None,
        progress: Callable[[int, int, str], None] | None = None,
    ) -> None:
        self.model = parts.model
        self.tokenizer = parts.tokenizer
        self.context = min(parts.model.context, context or parts.model.context)
        self.parts = parts
        self._progress = progress
        self._batch: Batch | None = None

    @overload
    def generate(
        self, prompts: str, params: SamplingParams | None = None, *, chat: bool | None = None
    ) -> Completion: ...
    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool | None = None,
    ) -> list[Completion]: ...
    def generate(
        self,
        prompts: str | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        chat: bool | None = None,
    ) -> Completion | list[Completion]:
        """A completion of a string, or one for each of a list of prompts (strings or token ids).

        A string is put into the model's chat template as a user's message if it has one (`chat`
        None), always (True) or never (False); ids are fed as they are. `params`: one for all, or
        one each. Raises PacelineError for a prompt that is empty or longer than the context.
        """
        many = [prompts] if isinstance(prompts, str) else list(prompts)
        ids = [prompt_ids(self.tokenizer, p, chat) if isinstance(p, str) else list(p) for p in many]
        one = params is None or isinstance(params, SamplingParams)
        each = [params or SamplingParams()] * len(ids) if one else list(params)  # type: ignore
        if len(each) != len(ids):
            raise ValueError(f"{len(ids)} prompts but {len(each)} sampling parameters")
        requests = [self._request(i, p) for i, p in zip(ids, each, strict=True)]
        for _ in self._run(requests):
            pass
        done = [request.completion for request in requests]
        return done[0] if isinstance(prompts, str) else done

    def chat(
        self, messages: Sequence[dict[str, Any]], params: SamplingParams | None = None
    ) -> Completion:
        """The assistant's answer to a conversation, [{"role": …, "content": …}, …]."""
        return self.generate([chat_ids(self.tokenizer, messages)], params)[0]

    def stream(
        self,
        prompt: Prompt | Sequence[dict[str, Any]],
        params: SamplingParams | None = None,
        *,
        chat: bool | None = None,
        rounds: bool = False,
    ) -> Stream:
        """The same as `generate` (or `chat`, for messages) for one prompt, piece by piece.
        `rounds`: each piece holds the round that made it (see `Seen`); this implies `trace`."""
        if isinstance(prompt, str):
            ids = prompt_ids(self.tokenizer, prompt, chat)
        elif prompt and isinstance(prompt[0], dict):
            ids = chat_ids(self.tokenizer, prompt)  # type: ignore[arg-type]
        else:
            ids = list(prompt)  # type: ignore[arg-type]
        params = params or SamplingParams()
        request = self._request(ids, replace(params, trace=True) if rounds else params, rounds)
        return Stream(request.completion, self._run([request]))

    def _request(self, ids: Sequence[int], params: SamplingParams, rounds: bool = False) -> Request:
        self.parts.check(params)
        check_room(len(ids), self.context)
        return Request(ids, params, self.tokenizer, self.parts.lossless(params), rounds)

    def _run(self, requests: Sequence[Request]) -> Iterator[Piece]:
        """Run requests side by side to their end; the pieces of the first one."""
        batch = self._batch_for(requests)
        waiting, total = deque(requests), 0
        try:
            while waiting or batch.requests:
                while waiting and batch.free:
                    request = waiting.popleft()
                    request.began = perf_counter()
                    batch.admit(request)
                    total += len(request.ids)
                while batch.unread:
                    batch.read(_BUDGET)
                    if self._progress is not None:
                        self._progress(total - batch.unread, total, "reading the prompt")
                for grown in batch.step():
                    if grown.request is requests[0]:
                        yield grown.piece
        finally:  # also where a stream is left early
            for request in batch.requests:
                batch.remove(request)
            if self.parts.ended is not None:
                self.parts.ended([request.completion.token_ids for request in requests])

    def _batch_for(self, requests: Sequence[Request]) -> Batch:
        """The batch of the last call if there is room in it, else a new one."""
        slots = min(len(requests), BATCH)
        longest = max((r.limit(self.context) for r in requests), default=1)
        if self._batch is None or self._batch.slots < slots or self._batch.length < longest:
            # twice what is needed: a conversation grows, and a new cache starts empty
            length = min(self.context, max(2048, 2 * longest))
            self._batch = None
            self._batch = Batch(self.parts, max(1, slots), length)
        return self._batch

    @property
    def lossless(self) -> bool:
        """True if the output is distributed as the target's own."""
        return self.parts.verifier.lossless


class Stream(Iterator[Piece]):
    """The pieces of one answer; `completion` grows with them and is whole when they end."""

    def __init__(self, completion: Completion, pieces: Iterator[Piece]) -> None:
        self.completion = completion
        self._pieces = pieces

    def __next__(self) -> Piece:
        return next(self._pieces)
