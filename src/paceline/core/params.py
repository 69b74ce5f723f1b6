"""What one request asks of sampling."""

from __future__ import annotations

import math
import numbers
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.core.protocols import Grammar


@dataclass(frozen=True)
class SamplingParams:
    """How one request's tokens are chosen and when it ends.

    The target's distribution p is made from its logits in this order, at every position from the
    prefix of that position: repetition penalty (prompt and output; Keskar et al. 2019), frequency
    and presence penalty (output only), `logit_bias`, end tokens masked below `min_tokens`, what
    `grammar` does not allow masked (see `paceline.text.grammar`), temperature (0 = greedy), top-k
    (0 = off), top-p, min-p.

    `max_tokens`: at most so many new tokens; None = as far as the context reaches. `stop`: strings
    that end the text (left out of it). `stop_token_ids`: further end tokens. `ignore_eos`: the
    model's own end tokens do not end it. `seed`: None = a fresh one for each request. `logprobs`:
    report each token's log-probability under the model's raw logits, and those of so many of the
    likeliest tokens (0 = of the token alone). `trace`: each token says how it was made (see
    `paceline.text.completion.Making`).

    How it is sped up, where a request wants it otherwise than its generator does: `k`: drafted
    tokens a round at most; `draft`: one of the drafters that are loaded, or "none"; `verify`: the
    verifier. Raises PacelineError, naming the field.
    """

    max_tokens: int | None = 256
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict[int, float])
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    seed: int | None = None
    logprobs: int | None = None
    grammar: Grammar | None = None
    k: int | None = None
    draft: str | None = None
    verify: str | None = None
    trace: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        if self.max_tokens is not None:
            _whole("max_tokens", self.max_tokens, 1)
        _real("temperature", self.temperature, 0, math.inf)
        _whole("top_k", self.top_k, 0)
        _real("top_p", self.top_p, 0, 1, open_low=True)
        _real("min_p", self.min_p, 0, 1)
        _real("repetition_penalty", self.repetition_penalty, 0, math.inf, open_low=True)
        _real("frequency_penalty", self.frequency_penalty, -math.inf, math.inf)
        _real("presence_penalty", self.presence_penalty, -math.inf, math.inf)
        _whole("min_tokens", self.min_tokens, 0)
        _kind("logit_bias", self.logit_bias, Mapping, "a map from token ids to numbers")
        for token, bias in self.logit_bias.items():
            _whole("logit_bias token", token, 0)
            if bias != -math.inf:  # which bans the token
                _real(f"logit_bias of token {token}", bias, -math.inf, math.inf)
        _kind("stop", self.stop, Collection, "one or more strings")
        _kind("stop_token_ids", self.stop_token_ids, Collection, "a list of token ids")
        for token in self.stop_token_ids:
            _whole("stop_token_ids", token, 0)
        if any(not isinstance(text, str) or not text for text in self.stop):  # pyright: ignore
            raise PacelineError("stop must be one or more strings that are not empty")
        if self.seed is not None:
            _whole("seed", self.seed, -(2**63), 2**64 - 1)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0)
        if self.k is not None:
            _whole("k", self.k, 0)
        if self.grammar is not None:
            _fits_grammar("ignore_eos", self.ignore_eos)
            _fits_grammar("min_tokens", self.min_tokens)

    @property
    def greedy(self) -> bool:
        """True if p is one-hot at its largest logit."""
        return self.temperature == 0

    @property
    def argmax_suffices(self) -> bool:
        """True if the raw logits' largest is all that a round needs to know of them."""
        return self.greedy and not self.adjusts and self.logprobs is None and not self.trace

    @property
    def adjusts(self) -> bool:
        """True if the logits themselves are changed before the temperature."""
        return bool(
            self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
            or self.logit_bias
            or self.min_tokens
            or self.grammar
        )


def _fits_grammar(name: str, value: int) -> None:
    if value:
        raise PacelineError(f"a grammar says where the output ends: leave out {name}")


def _kind(name: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise PacelineError(f"{name} must be {what}, not {value!r}")


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise PacelineError(f"{name} must be a whole number, not {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        bound = f"at least {low}" if high is None else f"between {low} and {high}"
        raise PacelineError(f"{name} must be {bound}, not {value}")


def _real(name: str, value: object, low: float, high: float, *, open_low: bool = False) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise PacelineError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:  # a whole number past the largest float
        number = math.inf
    if math.isnan(number) or math.isinf(number):
        raise PacelineError(f"{name} must be a finite number, not {value}")
    if number < low or number > high or (open_low and number == low):
        raise PacelineError(f"{name} is out of range: {value}")
