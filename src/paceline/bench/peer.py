"""Other engines to compare with: what is asked of them, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol

PLAIN, LOOKUP, ASSISTED = "plain", "lookup", "assisted"
Note = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """What a peer needs to begin. `model`: a .gguf file or a folder; `context`: most tokens of
    prompt and output together; `eos_ids`: each of these ends an answer; `trial`: ids of a short
    prompt, on which it finds its best settings; `draft`: a smaller model for its assisted mode."""

    model: str
    threads: int
    context: int
    eos_ids: Sequence[int]
    trial: Sequence[int]
    draft: str | None = None


@dataclass(frozen=True)
class Answer:
    """The ids of an answer. `first` of them were there after `first_s` seconds, reading the prompt
    included, and all of them after `seconds`."""

    ids: list[int]
    first: int
    first_s: float
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Tokens behind the first ones, over the time that they took; over all of the time where
        there are none. As for our own answers."""
        rest, time = len(self.ids) - self.first, self.seconds - self.first_s
        return rest / time if rest and time else len(self.ids) / self.seconds


class Peer(Protocol):
    """An engine in its best settings, ready to answer greedily.

    `settings`: what they are, by mode; their keys are the modes that it has. `about`: what differs
    from ours (version, bits, kernels). `absent`: why it lacks a mode, by mode.
    """

    name: str
    settings: Mapping[str, Mapping[str, Any]]
    about: Sequence[str]
    absent: Mapping[str, str]

    def generate(self, ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
        """The answer to a prompt: up to an end token, which is its last id, or `max_tokens`. The
        prompt is read anew. Raises whatever the engine does when it fails."""
        ...


@dataclass
class Meter:
    """Takes the ids of an answer as they come, those of one pass together, and the time."""

    clock: Callable[[], float] = perf_counter
    _ids: list[int] = field(default_factory=list[int])
    _first: int = 0

    def __post_init__(self) -> None:
        self._began = self._first_at = self._last_at = self.clock()

    def __call__(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        self._last_at = self.clock()
        if not self._ids:
            self._first, self._first_at = len(ids), self._last_at
        self._ids += ids

    def answer(self) -> Answer:
        """What has come so far."""
        first_s, seconds = self._first_at - self._began, self._last_at - self._began
        return Answer(self._ids, self._first, first_s, seconds)
