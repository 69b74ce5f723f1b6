"""`POST /v1/completions`: texts that are continued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from paceline.serve.sampling import Call, check_number, check_text
from paceline.serve.schema import CompletionRequest
from paceline.serve.tokens import Names
from paceline.serve.writer import Writer, quote, reason
from paceline.text.completion import Completion, Token

if TYPE_CHECKING:
    from paceline.build import LLM

MAX_TOKENS = 16  # where a request does not say: as OpenAI's


def completion_prompts(fields: CompletionRequest, llm: LLM, most: int) -> list[list[int]]:
    """The ids of each prompt, `most` at most. Raises ApiError for one that is much too long,
    PacelineError for one that is empty."""
    prompt: Any = fields.prompt
    many = [prompt] if isinstance(prompt, str) or isinstance(prompt[0], int) else prompt
    check_number(len(many), fields.n or 1, most)
    return [_ids(one, llm) if isinstance(one, str) else list(one) for one in many]


def _ids(text: str, llm: LLM) -> list[int]:
    check_text(text, llm)
    return llm.tokenizer.prompt(text)


class CompletionWriter(Writer):
    """Writes completions."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def __init__(self, call: Call, names: Names) -> None:
        super().__init__(call, names)
        self._tops = bool(call.asks[0][1].logprobs)
        self._offsets = [0] * len(call.asks)  # characters so far

    def chunk(self, index: int, tokens: Sequence[Token], drafted: Sequence[int]) -> str:
        text = "".join(token.text for token in tokens)
        if not text and not self.scored and not self.call.details:
            return ""
        extra = self.details(tokens, drafted)
        if self.scored:
            scores = self.names.text_logprobs(tokens, self._offsets[index], self._tops)
            self._offsets[index] += len(text)
            extra = f',"logprobs":{quote(scores)}{extra}'
        else:
            extra = f',"logprobs":null{extra}'
        return self.event(index, f'"text":{quote(text)}', extra)

    def ending(self, index: int, completion: Completion) -> str:
        return self.event(index, '"text":""', ',"logprobs":null', reason(completion))

    def choice(self, index: int, completion: Completion, drafted: Sequence[int]) -> dict[str, Any]:
        tokens = completion.tokens
        scores = self.names.text_logprobs(tokens, 0, self._tops) if self.scored else None
        choice: dict[str, Any] = {
            "index": index,
            "text": completion.text,
            "logprobs": scores,
            "finish_reason": reason(completion),
        }
        if self.call.details:
            choice["speculation"] = self.names.details(tokens, drafted)
        return choice
