"""Passes of a model over some rows of a cache, by whatever it can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from paceline.core.protocols import Branching, Model, Ragged, Ranks
from paceline.core.types import Output


class Passes:
    """Passes of `model`. `ranks`, `branches`, `ragged`: see the protocols of these names."""

    def __init__(self, model: Model) -> None:
        self._forward: Callable[..., Output] = model.forward
        self._best: Callable[..., Output] | None = model.best if isinstance(model, Ranks) else None
        self.ranks = self._best is not None
        self.branches = isinstance(model, Branching)
        self.ragged = isinstance(model, Ragged) and model.ragged

    def __call__(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Any,
        slots: Sequence[int],
        real: Sequence[int],
        parents: Tensor | None,
        logits: bool,
        limit: int | None,
    ) -> Output:
        """Read `tokens` [B, T], of which the first `real[b]` of row b mean something, from
        positions `at` on into rows `slots` of the cache; with `parents` a tree. With `logits`
        these, or with a `limit` the likeliest of so many ids, if the model `ranks`. Raises
        ValueError for a tree if the model cannot read one."""
        if parents is not None and not self.branches:
            raise ValueError("this model reads chains alone, and the draft is a tree")

        def read(part: slice, where: Mapping[str, Any]) -> Output:
            tree = {} if parents is None else {"parents": parents[part]}
            if limit is not None and self._best:
                return self._best(tokens[part], at[part], cache, limit=limit, **where, **tree)
            scored = logits or limit is not None
            return self._forward(tokens[part], at[part], cache, logits=scored, **where, **tree)

        if self.ragged:
            return read(slice(None), {"rows": slots, "counts": real})
        outputs = [read(part, {"row": slots[part.start]}) for part in _runs(slots)]
        return outputs[0] if len(outputs) == 1 else _joined(outputs)


def _runs(slots: Sequence[int]) -> list[slice]:
    """Where slots follow one another."""
    ends = [i for i in range(1, len(slots)) if slots[i] != slots[i - 1] + 1]
    return [slice(start, end) for start, end in zip([0, *ends], [*ends, len(slots)], strict=True)]


def _joined(outputs: Sequence[Output]) -> Output:
    def cat(parts: Sequence[Tensor | None]) -> Tensor | None:
        there = [part for part in parts if part is not None]
        return torch.cat(there) if there else None

    return Output(
        cat([output.logits for output in outputs]),
        cat([output.hidden for output in outputs]),
        cat([output.top for output in outputs]),
    )
