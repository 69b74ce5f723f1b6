"""An engine whose answers, and what each round takes on a clock, are written down beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.core.params import SamplingParams
from paceline.core.types import Emitted, Finish, Seconds
from paceline.text.completion import Completion, RequestStats, Token


@dataclass
class Clock:
    """Moves on when somebody works."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Step:
    """One round: what it emits, from how many drafted and accepted tokens, and its seconds."""

    tokens: list[int]
    drafted: int = 0
    accepted: int = 0
    draft: float = 0.0
    target: float = 0.0
    rest: float = 0.0


@dataclass
class Script:
    """Answers with `steps`, over and over; the n-th answer's rounds take `slower[n]` times as long.
    Reading a prompt takes `read` seconds. `heard`: the seeds of the answers."""

    clock: Clock
    steps: Sequence[Step]
    read: float = 1.0
    slower: Sequence[float] = (1.0,)
    finish: Finish = "length"
    heard: list[int | None] = field(default_factory=list)

    def start(self, ids: Sequence[int], params: SamplingParams) -> _Scripted:
        self.clock.now += 50  # getting ready is no part of an answer
        self.heard.append(params.seed)
        return _Scripted(self, self.slower[(len(self.heard) - 1) % len(self.slower)], len(ids))


class _Scripted:
    def __init__(self, script: Script, slower: float, prompt: int) -> None:
        self.completion = Completion(prompt, stats=RequestStats())
        self._script, self._slower, self._at = script, slower, 0

    def read(self) -> None:
        self._script.clock.now += self._script.read

    def step(self) -> Emitted:
        step = self._script.steps[self._at]
        self._at += 1
        last = self._at == len(self._script.steps)
        emitted = Emitted(
            step.tokens, step.drafted, step.accepted, self._script.finish if last else None
        )
        parts = [seconds * self._slower for seconds in (step.draft, step.target, step.rest)]
        self._script.clock.now += sum(parts)
        self.completion.stats.add(emitted, Seconds(*parts))
        origins = zip(step.tokens, emitted.origins(), strict=True)
        self.completion.tokens += [Token(id, chr(id), origin) for id, origin in origins]
        if last:
            self.completion.finish_reason = self._script.finish
        return emitted
