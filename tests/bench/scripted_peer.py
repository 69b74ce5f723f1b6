"""A peer that does what a script says, in this process or in one of its own."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from paceline.bench.peer import Answer, Job, Note

JOB = Job("model.gguf", 2, 256, [0], [1, 2, 3])


class ScriptedPeer:
    """Answers `ids`, of which one comes first, at `rate` tokens a second; fails in the modes of
    `fails` from the second answer to prompt [1] on."""

    def __init__(
        self,
        name: str = "scripted",
        ids: Sequence[int] = (5, 6, 7),
        rates: dict[str, float] | None = None,
        fails: Sequence[str] = (),
    ) -> None:
        self.name, self._ids, self._fails = name, list(ids), fails
        self._rates = rates or {"plain": 10.0}
        self.settings = {mode: {"threads": 2} for mode in self._rates}
        self.about = ["scripted 1.0", "no bits at all"]
        self.absent = {"assisted": "it needs no help"}
        self.asked: list[str] = []

    def generate(self, ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
        if list(ids) == [1]:
            self.asked.append(mode)
        if mode in self._fails and self.asked.count(mode) > 1:
            raise RuntimeError("out of\nbreath")
        made = self._ids[:max_tokens]
        return Answer(made, 1, 0.5, 0.5 + (len(made) - 1) / self._rates[mode])


def open_peer(job: Job, note: Note) -> ScriptedPeer:
    """As adapters have it; a model called "none" is refused."""
    if job.model == "none":
        raise ValueError("no such model")
    print("a library talks to stdout")
    note("threads 2: 10.0 tokens/s")
    peer: Any = ScriptedPeer(rates={"plain": 10.0, "lookup": 20.0}, fails=["lookup"])
    if job.model == "dies":
        answer = peer.generate

        def generate(ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
            return sys.exit("a wheel came off") if ids == [1] else answer(ids, max_tokens, mode)

        peer.generate = generate
    return peer
