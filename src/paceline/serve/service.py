"""What the endpoints share: the engine, what its model is called, grammars."""

from __future__ import annotations

import asyncio
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from paceline.build.verify import VERIFIERS
from paceline.serve.answer import Answer
from paceline.serve.chat import ChatWriter, chat_plan
from paceline.serve.completions import MAX_TOKENS, CompletionWriter, completion_prompts
from paceline.serve.engine import Engine
from paceline.serve.errors import not_ready
from paceline.serve.feed import Bell
from paceline.serve.sampling import Call, check_model, make_call
from paceline.serve.schema import ChatRequest, CompletionRequest
from paceline.serve.settings import Settings
from paceline.serve.tokens import Names
from paceline.serve.writer import Writer
from paceline.text.grammar import Grammars

if TYPE_CHECKING:
    from paceline.build import LLM


class Service:
    """Answers requests from `engine`."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self.llm = cast("LLM", engine.llm)  # what is served has a name
        self.model = settings.model or self.llm.name
        self._settings = settings
        self._names = Names(self.llm.tokenizer)
        self._bell: Bell | None = None
        self._grammars: Grammars | None = None
        self._lock = Lock()

    @property
    def grammars(self) -> Grammars:
        """Made when first asked for: it takes a moment. From any thread."""
        with self._lock:
            if self._grammars is None:
                self._grammars = Grammars(self.llm.tokenizer)
            return self._grammars

    async def complete(self, fields: CompletionRequest) -> Response:
        """The response to a completion request. Raises ApiError and PacelineError."""
        self._check(fields)
        call = await run_in_threadpool(self._completion, fields)
        return self._answer(CompletionWriter(call, self._names))

    async def chat(self, fields: ChatRequest) -> Response:
        """The response to a chat request. Raises ApiError and PacelineError."""
        self._check(fields)
        return self._answer(await run_in_threadpool(self._chat, fields))

    def status(self) -> dict[str, Any]:
        """What runs here and how busy it is."""
        load, llm = self.engine.load, self.llm
        return {
            "model": self.model,
            "dtype": llm.dtype,
            "context": llm.context,
            "slots": load.slots,
            "queue": load.queue,
            "running": load.running,
            "waiting": load.waiting,
            "drafts": list(llm.drafts),
            "draft": llm.draft,
            "verifiers": list(VERIFIERS),
            "k": llm.k,
            "plain_tokens_per_second": self.engine.plain_rate,
            "lossless": llm.lossless,
        }

    def _check(self, fields: CompletionRequest | ChatRequest) -> None:
        if not self.engine.ready:
            raise not_ready()
        check_model(fields, self.model)

    @property
    def _most(self) -> int:
        """Answers that a request may ask for: more could never be admitted together."""
        load = self.engine.load
        return load.slots + load.queue

    def _answer(self, writer: Writer) -> Response:
        loop = asyncio.get_running_loop()
        if self._bell is None or self._bell.loop is not loop:
            self._bell = Bell(loop)
        return Answer(self.engine, self._bell, writer, self._settings.unsent_limit)

    def _completion(self, fields: CompletionRequest) -> Call:
        return make_call(
            fields,
            self.llm,
            self.model,
            completion_prompts(fields, self.llm, self._most),
            max_tokens=fields.max_tokens or MAX_TOKENS,
            logprobs=fields.logprobs,
            grammar=None if fields.grammar is None else self.grammars.lark(fields.grammar),
        )

    def _chat(self, fields: ChatRequest) -> ChatWriter:
        plan = chat_plan(fields, self.llm, self._most)
        call = make_call(
            fields,
            self.llm,
            self.model,
            [plan.ids],
            max_tokens=plan.max_tokens,
            logprobs=plan.logprobs,
            grammar=plan.grammar(self.grammars) if plan.grammar else None,
        )
        return ChatWriter(call, self._names, plan.calls)
