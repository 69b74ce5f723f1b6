"""What comes out: pieces of text while they are made, and the finished completion."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from paceline.core.stats import Stats
from paceline.core.types import Emitted, Origin

if TYPE_CHECKING:
    from paceline.controllers.adaptive import Choice
    from paceline.core.params import SamplingParams
    from paceline.core.types import Round


@dataclass(frozen=True)
class Making:
    """How one token was made. `p`: its probability under the target, at the request's temperature
    (of a greedy request: at temperature 1); `proposed`: the id that the draft had in its place
    (None: there was none); `q`: with which probability that was drawn (1: it was no draw)."""

    p: float
    proposed: int | None = None
    q: float | None = None


@dataclass(frozen=True)
class Token:
    """One token of the output. `text`: the part of the answer that became certain with it; all of
    them joined are the answer. `logprob`: under the target's raw logits; `top`: the likeliest
    tokens there and their logprobs, best first. `making`: see there. None unless asked for."""

    id: int
    text: str
    origin: Origin
    logprob: float | None = None
    top: dict[int, float] | None = None
    making: Making | None = None


@dataclass(frozen=True)
class Seen:
    """One round as a request of `params` saw it, which was row `row` of it. `emitted`: what counts
    of what it emitted; `base`: how many tokens, the prompt's included, it had before; `seed`: what
    its randomness comes from; `choice`: why the draft was so long, where the window is adaptive.
    Looked at before the next round: the model may use the memory of its scores again."""

    round: Round
    row: int
    params: SamplingParams
    emitted: Emitted
    base: int
    seed: int
    choice: Choice | None = None


@dataclass(frozen=True)
class Piece:
    """What one round added to a stream, behind a draft of `drafted` tokens. The text may lag behind
    the tokens: the beginning of a character or of a stop string is held back until it is
    certain. `seen`: the round itself, where a stream is asked for `rounds`."""

    tokens: list[Token]
    drafted: int = 0
    seen: Seen | None = None

    @property
    def text(self) -> str:
        """The text that the round added; all pieces joined are the answer."""
        return "".join(token.text for token in self.tokens)


@dataclass
class RequestStats(Stats):
    """A request's counts and times. `first_round`: the tokens that came with the first one;
    `ttft_s`: seconds until they were there, reading the prompt included; `total_s`: all of it.
    `lossless`: the output is distributed as the target's own."""

    lossless: bool = True
    first_round: int = 0
    ttft_s: float = 0.0
    total_s: float = 0.0

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first round, over the time they took; over all of the time if the
        first round was the only one."""
        rest = self.emitted - self.first_round
        if rest > 0 and self.total_s > self.ttft_s:
            return rest / (self.total_s - self.ttft_s)
        return self.emitted / self.total_s if self.total_s else 0.0

    def to_dict(self) -> dict[str, Any]:
        """For JSON; α, τ are null where nothing was drafted."""
        return {
            "rounds": self.rounds,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "alpha": self.alpha,
            "tau": self.tau,
            "alpha_at": self.alpha_at,
            "tokens_per_second": self.tokens_per_second,
            "ttft_s": self.ttft_s,
            "total_s": self.total_s,
            "target_s": self.target_s,
            "draft_s": self.draft_s,
            "overhead_s": self.overhead_s,
            "lossless": self.lossless,
        }


@dataclass
class Completion:
    """One finished answer.

    `finish_reason`: "stop" (an end token, which is the last of the ids; or a stop string, which is
    not part of the text), "length", or "error": the target's scores were not numbers; of a request
    to a server also "time", "cancelled" and "failed". The ids are those that plain decoding makes
    until it stops.
    """

    prompt_tokens: int
    tokens: list[Token] = field(default_factory=list[Token])
    finish_reason: str = "length"
    stats: RequestStats = field(default_factory=RequestStats)

    @property
    def text(self) -> str:
        """The answer, without end tokens and stop strings."""
        return "".join(token.text for token in self.tokens)

    @property
    def token_ids(self) -> list[int]:
        """The ids of the output."""
        return [token.id for token in self.tokens]

    @property
    def logprobs(self) -> list[float] | None:
        """One for each id, or None if they were not asked for."""
        values = [token.logprob for token in self.tokens]
        return None if None in values else values  # type: ignore[return-value]

    @property
    def usage(self) -> dict[str, int]:
        """Tokens of the prompt as it was fed, and of the output."""
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": len(self.tokens)}
