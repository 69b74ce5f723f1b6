"""Strings in, streams of text out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol, overload

import torch

from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Drafter, Model, Verifier
from paceline.core.sequences import Sequences
from paceline.core.types import Emitted, Round
from paceline.text.chat import chat_ids, prompt_ids
from paceline.text.completion import Completion, Piece, RequestStats, Token
from paceline.text.stream import TextStream
from paceline.text.tokenizer import Tokenizer

Prompt = str | Sequence[int]
BATCH = 8  # rows that run side by side
_BUDGET = 256  # prompt tokens read between two reports of progress


class MakesDrafter(Protocol):
    """Builds a drafter for that many rows of that many tokens, beside `target`."""

    def __call__(self, batch: int, length: int, target: CachedModel) -> Drafter: ...


@dataclass(frozen=True)
class Parts:
    """All that generating takes. `make_drafter` is called anew when more room is needed. `ended`
    hears what was generated, a list of ids a request, when a call is over. `prepare(batch)` is
    called before a loop of so many rows first runs. `coupled`: see `Sequences`."""

    model: Model
    tokenizer: Tokenizer
    make_drafter: MakesDrafter
    verifier: Verifier
    controller: Controller
    ended: Callable[[list[list[int]]], None] | None = None
    prepare: Callable[[int], None] | None = None
    coupled: bool = False


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
        self._parts = parts
        self._progress = progress
        self._loop: Loop | None = None
        self._room = (0, 0)

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
        done: list[Completion] = []
        for start in range(0, len(ids), BATCH):
            group = slice(start, start + BATCH)
            requests = [_Request(i, p, self) for i, p in zip(ids[group], each[group], strict=True)]
            for _ in self._run(requests):
                pass
            done += [request.completion for request in requests]
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
    ) -> Stream:
        """The same as `generate` (or `chat`, for messages) for one prompt, piece by piece."""
        if isinstance(prompt, str):
            ids = prompt_ids(self.tokenizer, prompt, chat)
        elif prompt and isinstance(prompt[0], dict):
            ids = chat_ids(self.tokenizer, prompt)  # type: ignore[arg-type]
        else:
            ids = list(prompt)  # type: ignore[arg-type]
        request = _Request(ids, params or SamplingParams(), self)
        return Stream(request.completion, self._run([request]))

    def _run(self, requests: list[_Request]) -> Iterator[Piece]:
        """Run requests side by side to their end; the pieces of the first one."""
        began = perf_counter()
        seqs = Sequences(len(requests), self.context, self._parts.coupled)
        for row, request in enumerate(requests):
            seqs.admit(row, request.ids, request.params, self.tokenizer.eos_ids)
        loop = self._loop_for(len(requests), max(seqs.limits))
        total = sum(seqs.lengths)
        left = total
        while left:
            left = loop.target.sync(seqs, _BUDGET)
            if self._progress is not None:
                self._progress(total - left, total, "reading the prompt")
        try:
            while any(seqs.running):
                round = loop.step(seqs)
                now = perf_counter() - began
                for row, request in enumerate(requests):
                    if (emitted := round.emitted[row]) is None:
                        continue
                    piece, ended = request.add(round, row, emitted, now)
                    if ended:
                        seqs.finish(row)
                    if row == 0:
                        yield piece
        finally:  # also where a stream is left early
            if self._parts.ended is not None:
                self._parts.ended([request.completion.token_ids for request in requests])

    def _loop_for(self, batch: int, length: int) -> Loop:
        """The loop of the last call if there is room in it, else a new one."""
        rows, room = self._room
        if self._loop is None or rows != batch or room < length:
            # twice what is needed: a conversation grows, and a new cache starts empty
            room = min(self.context, max(2048, 2 * length))
            self._loop, self._room = None, (batch, room)
            if self._parts.prepare is not None:
                self._parts.prepare(batch)
            target = CachedModel(self._parts.model, batch, room, self.tokenizer.size)
            drafter = self._parts.make_drafter(batch, room, target)
            self._loop = Loop(target, drafter, self._parts.verifier, self._parts.controller)
        return self._loop

    @property
    def lossless(self) -> bool:
        """True if the output is distributed as the target's own."""
        return self._parts.verifier.lossless


class Stream(Iterator[Piece]):
    """The pieces of one answer; `completion` grows with them and is whole when they end."""

    def __init__(self, completion: Completion, pieces: Iterator[Piece]) -> None:
        self.completion = completion
        self._pieces = pieces

    def __next__(self) -> Piece:
        return next(self._pieces)


class _Request:
    """One request while it runs: cuts at stop strings, counts, and builds the completion."""

    def __init__(self, ids: list[int], params: SamplingParams, owner: Generator) -> None:
        self.ids = ids
        self.params = params
        self.completion = Completion(len(ids), stats=RequestStats(lossless=owner.lossless))
        self._text = TextStream(owner.tokenizer, params.stop)

    def add(self, round: Round, row: int, emitted: Emitted, now: float) -> tuple[Piece, bool]:
        """Take one round of this row, `now` seconds after the start. The piece, and if it ended."""
        done, stats = self.completion, self.completion.stats
        before = self._text.kept
        texts = [self._text.push([id]) for id in emitted.tokens]
        if self._text.stopped is not None:  # plain decoding would have stopped here
            kept = emitted.tokens[: self._text.kept - before]
            accepted = min(emitted.accepted, len(kept))
            emitted = replace(emitted, tokens=kept, accepted=accepted, finish="stop")
        tokens = self._tokens(round, row, emitted, texts)
        if emitted.finish:
            done.finish_reason = emitted.finish
            rest = self._text.finish()
            if rest and tokens:  # what was held back belongs to the token that ended it
                tokens[-1] = replace(tokens[-1], text=tokens[-1].text + rest)
        done.tokens += tokens
        stats.add(emitted, round.seconds)
        stats.total_s = now
        if stats.rounds == 1:
            stats.first_round, stats.ttft_s = len(emitted.tokens), now
        return Piece(tokens), emitted.finish is not None

    def _tokens(self, round: Round, row: int, emitted: Emitted, texts: list[str]) -> list[Token]:
        parts = zip(emitted.tokens, texts, emitted.origins(), strict=False)
        plain = [Token(id, text, origin) for id, text, origin in parts]
        wanted = self.params.logprobs
        if wanted is None or not plain:
            return plain
        assert round.target.logits is not None  # `argmax_suffices` saw to it
        places = [0, *(node + 1 for node in _path(round, row, emitted.accepted))][: len(plain)]
        scores = round.target.logits[row, places].float().log_softmax(-1)
        own = scores.gather(-1, torch.tensor(emitted.tokens, device=scores.device)[:, None])
        best = scores.topk(min(wanted, scores.shape[-1]), dim=-1)
        tops = [
            dict(zip(ids, values, strict=True))
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        return [
            replace(token, logprob=logprob[0], top=top)
            for token, logprob, top in zip(plain, own.tolist(), tops, strict=True)
        ]


def _path(round: Round, row: int, accepted: int) -> list[int]:
    """The drafted tokens that a row accepted, as indices in its draft."""
    path = round.verdict.path
    return list(range(accepted)) if path is None else path[row, :accepted].tolist()
