"""How tokens, their scores and their making are written in answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from paceline.core.stats import Stats
from paceline.text.completion import Completion, Token
from paceline.text.tokenizer import Tokenizer

_LEAST = -9999.0  # JSON has no -inf


class Names:
    """The tokens of `tokenizer` as OpenAI writes them."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def text(self, id: int) -> str:
        """A token's text alone; of one that has none, its name."""
        raw = self._tokenizer.token_bytes(id)
        return raw.decode(errors="replace") if raw else self._tokenizer.token_text(id)

    def key(self, id: int) -> str:
        """The text, or where a token is a part of a character "bytes:\\xe2\\x82": no two alike."""
        raw = self._tokenizer.token_bytes(id)
        try:
            return raw.decode() if raw else self._tokenizer.token_text(id)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def chat_logprobs(self, tokens: Iterable[Token]) -> dict[str, Any]:
        """The `logprobs` of a chat's choice."""
        return {
            "content": [
                {
                    **self._score(token.id, token.logprob or 0.0),
                    "top_logprobs": [self._score(*pair) for pair in (token.top or {}).items()],
                }
                for token in tokens
            ],
            "refusal": None,
        }

    def text_logprobs(self, tokens: Sequence[Token], offset: int, tops: bool) -> dict[str, Any]:
        """The `logprobs` of a completion's choice, whose text so far has `offset` characters."""
        offsets = []
        for token in tokens:
            offsets.append(offset)
            offset += len(token.text)
        return {
            "tokens": [self.key(token.id) for token in tokens],
            "token_logprobs": [_finite(token.logprob or 0.0) for token in tokens],
            "top_logprobs": [
                {self.key(id): _finite(value) for id, value in (token.top or {}).items()}
                for token in tokens
            ]
            if tops
            else None,
            "text_offset": offsets,
        }

    def details(self, tokens: Iterable[Token], drafted: Sequence[int]) -> dict[str, Any]:
        """The `speculation` of a choice: how its tokens were made, in rounds that had drafted so
        many."""
        return {"drafted": list(drafted), "tokens": [self._making(token) for token in tokens]}

    def _score(self, id: int, logprob: float) -> dict[str, Any]:
        raw = self._tokenizer.token_bytes(id)
        return {
            "token": self.text(id),
            "logprob": _finite(logprob),
            "bytes": list(raw) if raw else None,
        }

    def _making(self, token: Token) -> dict[str, Any]:
        making = token.making
        proposed = None if making is None else making.proposed
        return {
            "text": token.text,
            "origin": token.origin,
            "p": None if making is None else making.p,
            "q": None if making is None else making.q,
            "proposed": None if proposed is None else self.text(proposed),
        }


def usage(completions: Sequence[Completion], n: int) -> dict[str, Any]:
    """The `usage` of all answers to a request, `n` to a prompt; a prompt counts once."""
    prompt = sum(completion.prompt_tokens for completion in completions[::n])
    output = sum(len(completion.tokens) for completion in completions)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "speculation": _speculation([completion.stats for completion in completions])
        | {"lossless": all(completion.stats.lossless for completion in completions)},
    }


def _speculation(stats: Sequence[Stats]) -> dict[str, Any]:
    rounds, drafted = sum(s.rounds for s in stats), sum(s.drafted for s in stats)
    tested, passed = sum(sum(s.tested) for s in stats), sum(sum(s.passed) for s in stats)
    emitted = sum(s.emitted for s in stats)
    return {
        "rounds": rounds,
        "drafted": drafted,
        "accepted": sum(s.accepted for s in stats),
        "tau": emitted / rounds if drafted and rounds else None,
        "alpha": passed / tested if tested else None,
    }


def _finite(logprob: float) -> float:
    return logprob if logprob > _LEAST else _LEAST
