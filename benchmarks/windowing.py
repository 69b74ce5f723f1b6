"""What `window.py` runs: targets that follow a script, drafters that are as good as one likes, and
answers under any window, timed round by round."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from paceline import PacelineError
from paceline.core.types import Output

if TYPE_CHECKING:
    from paceline.build.models import Loaded, Models
    from paceline.core.protocols import Controller, Drafter
    from paceline.core.sequences import Sequences

SEGMENT = 60
Builds = Callable[["Controller"], "Drafter"]


class Scripted:
    """A target that reads as `model` does and takes as long, but whose likeliest token at each
    place is that of `script`, which holds prompt and answer. One row, greedy."""

    def __init__(self, model: Any, script: Sequence[int]) -> None:
        self._model, self._script = model, torch.tensor(script)
        self.vocab_size, self.context, self.device = model.vocab_size, model.context, model.device

    def new_cache(self, batch: int, length: int) -> Any:
        return self._model.new_cache(batch, length)

    def forward(
        self, tokens: Tensor, at: Sequence[int], cache: Any, *, row: int = 0, logits: bool = True
    ) -> Output:
        return self._model.forward(tokens, at, cache, row=row, logits=logits)

    def best(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Any,
        *,
        row: int = 0,
        limit: int | None = None,
    ) -> Output:
        output = self._model.best(tokens, at, cache, row=row, limit=limit)
        places = (torch.arange(tokens.shape[1]) + at[0] + 1).clamp(max=len(self._script) - 1)
        return replace(output, top=self._script[places][None])

    def tapped(self, layers: Sequence[int]) -> Scripted:
        return Scripted(self._model.tapped(layers), self._script.tolist())


class Told:
    """A head that works as `head` does and takes as long, but drafts the token of `script` with
    chance `alpha`, and another one otherwise. How sure it is says nothing of which."""

    def __init__(self, head: Any, script: Sequence[int], alpha: float, vocab: int) -> None:
        self._head, self._script, self._alpha, self._vocab = head, script, alpha, vocab
        self.taps, self.ids, self.confidence = head.taps, None, 0.0

    def over(self, target: Any) -> _ToldReads:
        return _ToldReads(self._head.over(target), self._script, self._alpha, self._vocab)


class _ToldReads:
    def __init__(self, reads: Any, script: Sequence[int], alpha: float, vocab: int) -> None:
        self._reads, self._script, self._alpha, self._vocab = reads, script, alpha, vocab
        self._random = torch.Generator().manual_seed(0)

    def read(self, seqs: Sequences) -> Tensor:
        self._reads.read(seqs)
        return self._say(seqs.lengths[0])

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        self._reads.extend(seqs, tokens, behind)
        return self._say(seqs.lengths[0] + behind + 1)

    def _say(self, place: int) -> Tensor:
        luck, sure = torch.rand(2, generator=self._random).tolist()
        token = self._script[min(place, len(self._script) - 1)]
        if luck >= self._alpha:
            token = (token + 1 + int(luck * 1e6)) % self._vocab
        logits = torch.zeros(1, self._vocab)
        # which gives the token a share of anything from a third to nearly all
        logits[0, token] = 12 + 4 * sure
        return logits


@dataclass
class Answer:
    """One answer. `at[i]`: seconds when token i was there; `drafted[i]`: tokens that were drafted
    in the round that it came with."""

    ids: list[int] = field(default_factory=list[int])
    at: list[float] = field(default_factory=list[float])
    drafted: list[int] = field(default_factory=list[int])

    @property
    def seconds(self) -> float:
        """All of it; the prompt had been read."""
        return self.at[-1]


class Stage:
    """One loaded target, and what answers under any drafter and window take."""

    def __init__(self, target: Loaded, models: Models, room: int) -> None:
        self.target, self.models, self.room = target, models, room
        self.vocab = min(target.tokenizer.size, target.model.vocab_size)
        self._caches: dict[object, Any] = {}

    def cache(self, key: object, model: Any) -> Any:
        """A cache of one row for `model`, the same one for the same key."""
        from paceline.core.cached import CachedModel

        if key not in self._caches:
            self._caches[key] = CachedModel(model, 1, self.room, self.vocab)
        return self._caches[key]

    def answer(
        self, cached: Any, build: Builds, controller: Controller, ids: Sequence[int], tokens: int
    ) -> Answer:
        """`tokens` tokens behind `ids`, end tokens or not, from when the prompt has been read."""
        from paceline.core.loop import Loop
        from paceline.core.params import SamplingParams
        from paceline.core.sequences import Sequences
        from paceline.verifiers.greedy import Greedy

        seqs = Sequences(1, self.room)
        seqs.admit(0, list(ids), SamplingParams(max_tokens=tokens, ignore_eos=True))
        loop = Loop(cached, build(controller), Greedy(), controller)
        with torch.no_grad():
            cached.sync(seqs)
        answer, began = Answer(), perf_counter()
        while seqs.running[0]:
            emitted = loop.step(seqs).emitted[0]
            assert emitted is not None
            answer.ids += emitted.tokens
            answer.at += [perf_counter() - began] * len(emitted.tokens)
            answer.drafted += [emitted.drafted] * len(emitted.tokens)
        return answer


class Neighbour:
    """Another process that takes one core, from `begin` seconds on, for `seconds`."""

    def __init__(self, begin: float, seconds: float) -> None:
        self._code = f"import time; time.sleep({begin}); t = time.time()\n" \
                     f"while time.time() < t + {seconds}: pass"  # fmt: skip

    def __enter__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", self._code])
        sleep(0.2)

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()


def alternates(ids: list[int], loose: Sequence[int]) -> tuple[list[int], list[int]]:
    """A prompt `ids` and the answer that is dictated: SEGMENT tokens of the prompt and as many of
    `loose`, in no order, by turns."""
    random = torch.Generator().manual_seed(1)
    script: list[int] = []
    for turn in range(4):
        start = 40 + 70 * turn
        script += ids[start : start + SEGMENT]
        picked = torch.randint(len(loose), (SEGMENT,), generator=random).tolist()
        script += [loose[i] for i in picked]
    return ids, script


def advise_error(model: str, dtype: str) -> dict[str, Any]:
    """How far `paceline advise` is off, over its drafters and kinds of text."""
    out = subprocess.run(
        [sys.executable, "-m", "paceline", "advise", "--model", model, "--dtype", dtype, "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    if out.returncode:
        raise PacelineError("advise failed; it has said why")
    advice = json.loads(out.stdout)
    errors = {
        row["draft"]: {
            kind: part["trial"]["error"] for kind, part in row["kinds"].items() if part["trial"]
        }
        for row in advice["drafters"]
        if row.get("kinds")
    }
    worst = max((abs(e) for each in errors.values() for e in each.values()), default=0.0)
    return {"worst": worst, "errors": errors, "seconds": advice["seconds"]}
