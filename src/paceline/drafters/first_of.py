"""Several drafters in order: for each row, the first one that proposes anything wins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from paceline.core.protocols import Drafter, Syncs
from paceline.core.sequences import Sequences
from paceline.core.tree import parents_of
from paceline.core.types import Draft


class FirstOf:
    """`FirstOf(a, b)`: b drafts only for the rows in which a found nothing."""

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `paceline.core.protocols.Syncs`: all that read."""
        return sum(d.sync(seqs, budget) for d in self.drafters if isinstance(d, Syncs))

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """The merged draft; q is a point mass for the rows whose drafter gave none."""
        draft = self.drafters[0].propose(seqs, k)
        for drafter in self.drafters[1:]:
            missing = [
                b for b in range(seqs.batch) if seqs.running[b] and k[b] and not draft.lengths[b]
            ]
            if missing:
                draft = merge(draft, drafter.propose(seqs.only(missing), k))
        return draft


def merge(a: Draft, b: Draft) -> Draft:
    """Row by row whichever proposes something, `a` first. Beside a tree a chain is a tree, too.
    What they say of themselves (`sure`, `by`) is of whichever was asked last."""
    asked = [n if n >= 0 else m for m, n in zip(_by(a), _by(b), strict=True)]
    by = None if a.by is None and b.by is None else asked
    sure: list[Sequence[float]] | None = None
    if a.sure is not None or b.sure is not None:
        last = [a.sure if n else b.sure for n in a.lengths]
        sure = [[] if each is None else each[i] for i, each in enumerate(last)]
    return replace(_merge(a, b), sure=sure, by=by)


def _merge(a: Draft, b: Draft) -> Draft:
    """Without what they say of themselves."""
    if not any(b.lengths):
        return a
    if not any(a.lengths):
        return b
    device = b.tokens.device if a.q is None else a.tokens.device
    width = max(a.tokens.shape[1], b.tokens.shape[1])
    choice = torch.tensor([bool(n) for n in a.lengths])
    from_a = choice.to(device, non_blocking=True)
    tokens = torch.where(from_a[:, None], _tokens(a, width, device), _tokens(b, width, device))
    lengths = [x or y for x, y in zip(a.lengths, b.lengths, strict=True)]
    parents = draws = None
    if a.parents is not None or b.parents is not None:
        parents = torch.where(choice[:, None], _parents(a, width), _parents(b, width))
    if a.draws is not None or b.draws is not None:
        each = [x.draws.shape[1:] for x in (a, b) if x.draws is not None]
        size = [max(sizes) for sizes in zip(*each, strict=True)]
        draws = torch.where(choice[:, None, None], _draws(a, size), _draws(b, size))
    if a.q is None and b.q is None:
        return Draft(tokens, lengths, None, parents, draws)
    vocabulary = max(_vocabulary(a), _vocabulary(b))
    q = torch.where(
        from_a[:, None, None],
        _dense(a, width, vocabulary, device),
        _dense(b, width, vocabulary, device),
    )
    return Draft(tokens, lengths, q, parents, draws)


def _by(draft: Draft) -> Sequence[int]:
    return [-1] * len(draft.lengths) if draft.by is None else draft.by


def _vocabulary(draft: Draft) -> int:
    """How many ids its q must reach: a point mass may stand past the other's vocabulary."""
    return int(draft.tokens.max()) + 1 if draft.q is None else draft.q.shape[-1]


def _tokens(draft: Draft, width: int, device: torch.device) -> torch.Tensor:
    padding = (0, width - draft.tokens.shape[1])
    return torch.nn.functional.pad(draft.tokens, padding).to(device, non_blocking=True)


def _parents(draft: Draft, width: int) -> torch.Tensor:
    rows = [parents_of(draft, b) for b in range(len(draft.lengths))]
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows])


def _draws(draft: Draft, size: Sequence[int]) -> torch.Tensor:
    """[B, *size]; -1 throughout where the draft has none."""
    if draft.draws is None:
        return torch.full((len(draft.lengths), *size), -1)
    count, depth = draft.draws.shape[1:]
    padding = (0, size[1] - depth, 0, size[0] - count)
    return torch.nn.functional.pad(draft.draws, padding, value=-1)


def _dense(draft: Draft, width: int, vocabulary: int, device: torch.device) -> torch.Tensor:
    if draft.q is None:
        tokens = _tokens(draft, width, device)
        return torch.nn.functional.one_hot(tokens, vocabulary).float()
    k, size = draft.q.shape[1:]
    return torch.nn.functional.pad(draft.q, (0, vocabulary - size, 0, width - k)).to(device)
