"""Each row by the verifier that it asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from paceline.core.noise import Noise
from paceline.core.protocols import NeedsLogits, Verifier
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict


class Each:
    """`first`, or for rows that name one of `others`, that one. `lossless`: of `first`."""

    def __init__(self, first: Verifier, others: Mapping[str, Verifier]) -> None:
        self.first = first
        self.others = others
        self.lossless = first.lossless
        self.needs_logits = isinstance(first, NeedsLogits) and first.needs_logits

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """Raises KeyError for a name that is none of them."""
        names = set(p.verify) or {None}
        each = {name: self._of(name).verify(p, draft, noise) for name in names}
        if len(each) == 1:
            return each.popitem()[1]
        return _chosen([each[name] for name in p.verify])

    def _of(self, name: str | None) -> Verifier:
        return self.first if name is None else self.others[name]


def _chosen(verdicts: Sequence[Verdict]) -> Verdict:
    """Row b of `verdicts[b]`."""
    paths = [verdict.path for verdict in verdicts if verdict.path is not None]
    return Verdict(
        _rows([verdict.tokens for verdict in verdicts]),
        _rows([verdict.accepted for verdict in verdicts]),
        _rows(paths) if paths else None,
    )


def _rows(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part[b] for b, part in enumerate(parts)])
