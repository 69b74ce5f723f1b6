"""What the training loop asks of the thing that it trains, and what passes between the two.

A row is a prompt with its answer, x_0 .. x_{L-1}. Where a drafter stands after a round, the last
committed token x_{t+1} is pending: the target's states are known for positions 0..t. That is the
*anchor* t. Unrolled step j = 0, 1, … of an anchor stands at position t+1+j, has read x_{t+1+j} and
guesses x_{t+2+j}; what it is measured by is p at that position, so `top[:, t+1+j]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from paceline.errors import PacelineError, unknown


@dataclass(frozen=True)
class Needs:
    """What a trainee reads of the target.

    `taps`: the layers whose entering states are wanted, ascending; the number of layers itself is
    what leaves the last one, before the final norm, and 0 the scaled embedding. `cache`: the layers
    whose keys and values are wanted.
    """

    taps: tuple[int, ...]
    cache: tuple[int, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Some rows and what the target makes of them; all tensors on the training device, float32.

    `tokens` [B, T] int64, right-padded with 0. `lengths[b]`: the real ones. `starts[b]`: position
    of the answer's first token (1 at least). `lines[b]`: the row's number in the answers file, from
    1. `hidden` [B, T, n, D]: the states that `Needs.taps` asks for, finite in the padding too.
    `top` [B, T] int64: the target's likeliest next token behind each position, over the whole
    vocabulary. `keys`, `values` [len(Needs.cache), B, kv_heads, T, head_dim] or None: as they stand
    in the target's cache, rotated; queries and keys each carry the root of the score's scale.
    """

    tokens: Tensor
    lengths: list[int]
    starts: list[int]
    lines: list[int]
    hidden: Tensor
    top: Tensor
    keys: Tensor | None = None
    values: Tensor | None = None

    def mask(self, step: int) -> Tensor:
        """[B, T] bool: the anchors t that count at unrolled step `step`. What they guess is in the
        answer, and its own token there is known, so that a later step can read it."""
        place = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        starts = torch.tensor(self.starts, device=place.device)[:, None]
        lengths = torch.tensor(self.lengths, device=place.device)[:, None]
        return (place >= starts - 2) & (place + 1 + step <= lengths - 2)

    @property
    def count(self) -> int:
        """The anchors of step 0: what "tokens trained" counts."""
        rows = zip(self.starts, self.lengths, strict=True)
        return sum(max(0, length - 2 - max(0, start - 2)) for start, length in rows)


@dataclass(frozen=True)
class Step:
    """What a trainee makes of a batch.

    `loss`: a scalar with its graph, a mean over the anchors and steps that count. For each unrolled
    step `agree[j]` [B, T] bool, by anchor: the likeliest token of q is the target's own; and, where
    the trainee has it, `overlap[j]` [B, T] float32: Σ min(p, q) over the whole vocabulary. What
    stands where `Batch.mask` is False does not count.
    """

    loss: Tensor
    agree: list[Tensor]
    overlap: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class Export:
    """What a drafter is loaded from: `tensors` for model.safetensors, `config` for config.json, to
    which the target's name and sizes are added, and the text of `files` beside them."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)


class Trainee(Protocol):
    """A head or a small model in training. It has no randomness of its own: the same call on the
    same weights gives the same bits. `kind`: the word on --kind; `settings`: JSON values that must
    be equal for a run to be continued; `needs`: what it reads of the target."""

    kind: str
    settings: dict[str, Any]
    needs: Needs

    def parameters(self) -> list[Tensor]:
        """What is trained: leaves, in the same order at every call."""
        ...

    @property
    def wants(self) -> int:
        """How many anchors a start in closed form is made from, before the first step; 0: none."""
        ...

    def absorb(self, batch: Batch) -> None:
        """Take in one more batch for it. What it adds up is part of `state` until `settle`."""
        ...

    def settle(self) -> None:
        """Make the start of what was absorbed. Called once; also where nothing was."""
        ...

    def loss(self, batch: Batch, steps: int) -> Step:
        """The loss over `steps` unrolled steps, in which the trainee reads the answer's own tokens
        and its own states."""
        ...

    def state(self) -> dict[str, Tensor]:
        """Everything that absorbing or training changes."""
        ...

    def load(self, state: dict[str, Tensor]) -> None:
        """Become what `state` returned, in place: `parameters` are the same leaves afterwards."""
        ...

    def export(self) -> Export:
        """What the drafter is loaded from."""
        ...


def options(given: Mapping[str, str], **defaults: Any) -> dict[str, Any]:
    """The options `given` as text on --set, over `defaults`, each read as its default's type (bool,
    int, float or str). Raises PacelineError for one that is not among `defaults` or does not read
    as its type."""
    values = dict(defaults)
    for name, text in given.items():
        if name not in defaults:
            raise unknown("option on --set", name, defaults)
        kind = type(defaults[name])
        try:
            values[name] = _BOOLS[text.lower()] if kind is bool else kind(text)
        except (KeyError, ValueError):
            what = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
            raise PacelineError(f"--set {name}={text}: {name} must be {what}") from None
    return values


_BOOLS = {"true": True, "1": True, "false": False, "0": False}
