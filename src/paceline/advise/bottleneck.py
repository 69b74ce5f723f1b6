"""Where the time of one plain token goes, and how much of the memory bandwidth it uses.

The kernels' parts cannot be timed one by one, so they are told apart by what a pass leaves out:
without the output head, and behind a short context instead of a long one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from paceline.advise.timing import Rounds, timed
from paceline.build.memory import Weighs, bandwidth, kv_bytes
from paceline.core.protocols import Model, Ranks
from paceline.models.cache import Cache

_NEAR, _FAR = 64, 1088  # committed tokens behind which a pass is timed
_TURNS = 7


@dataclass(frozen=True)
class Bottleneck:
    """One plain token behind `context` tokens, in seconds by part: `linear` layers, `attention`,
    output `head`, `verification` (choosing the token and committing it) and `python` (the rest of
    the pass, outside the model). `weights` and `kv`: bytes that it reads (None: not known).
    `bandwidth`: bytes a second that memory gives, measured as `how` says."""

    context: int
    linear: float
    attention: float
    head: float
    verification: float
    python: float
    weights: int | None
    kv: int | None
    bandwidth: float
    how: str

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by the name of the part."""
        names = ("linear", "attention", "head", "verification", "python")
        return {name: getattr(self, name) for name in names}

    @property
    def mbu(self) -> float | None:
        """The share of the bandwidth that a plain token uses."""
        if self.weights is None:
            return None
        return (self.weights + (self.kv or 0)) / self.seconds / self.bandwidth


def find(model: Model, rounds: Rounds, at: int, context: int, threads: int) -> Bottleneck:
    """Time the parts of a plain token behind `context` tokens. `rounds`: of one row behind `at`
    tokens."""
    near, far = (min(place, model.context - 1) for place in (_NEAR, _FAR))
    with torch.no_grad():
        seconds, per_token = _parts(model, rounds, near, far)
    each = (seconds["far"] - seconds["near"]) / max(1, far - near)  # token of the context
    speed, how = bandwidth(model.device, threads)
    return Bottleneck(
        context,
        linear=max(0.0, seconds["near"] - each * near),
        attention=max(0.0, each * context),
        head=max(0.0, seconds["scored"] - seconds["near"]),
        verification=seconds["rest"],
        python=max(0.0, seconds["pass"] - seconds["scored"] - each * (at - near)),
        weights=model.nbytes if isinstance(model, Weighs) else None,
        kv=None if per_token is None else per_token * context,
        bandwidth=speed,
        how=how,
    )


def _parts(
    model: Model, rounds: Rounds, near: int, far: int
) -> tuple[dict[str, float], int | None]:
    """Median seconds of a pass of one token without the head behind `near` and `far` tokens, and
    with it behind `near`, of the pass of a round and of its rest, all in turns; and the bytes of
    keys and values of a token."""
    token = torch.zeros(1, 1, dtype=torch.int64)
    token = token.to(model.device)
    caches = {at: _filled(model, at) for at in (near, far)}

    def scored() -> object:
        if isinstance(model, Ranks):
            return model.best(token, [near], caches[near])
        return model.forward(token, [near], caches[near])

    calls: dict[str, Callable[[], object]] = {
        "near": lambda: model.forward(token, [near], caches[near], logits=False),
        "far": lambda: model.forward(token, [far], caches[far], logits=False),
        "scored": scored,
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    for turn in range(_TURNS + 1):
        for name, call in calls.items():
            taken, _ = timed(model.device, call)
            seconds[name] += [taken] if turn else []
        whole, rest = rounds.of(1)
        seconds["pass"].append(whole)
        seconds["rest"].append(rest)
    return {name: median(values) for name, values in seconds.items()}, kv_bytes(caches[near])


def _filled(model: Model, length: int) -> Any:
    """A cache of one row with `length` entries; of what does not matter where it can be written."""
    cache = model.new_cache(1, length + 1)
    if isinstance(cache, Cache):
        cache.data.normal_()
    else:
        tokens = torch.zeros(1, length, dtype=torch.int64).to(model.device)
        model.forward(tokens, [0], cache, logits=False)
    return cache
