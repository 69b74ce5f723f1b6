"""Several drafters in order: for each row, the first one that proposes anything wins."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.core.protocols import Drafter
from paceline.core.sequences import Sequences
from paceline.core.types import Draft


class FirstOf:
    """`FirstOf(a, b)`: b drafts only for the rows in which a found nothing."""

    def __init__(self, *drafters: Drafter) -> None:
        self.drafters = drafters

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
    """Row by row whichever proposes something, `a` first."""
    if not any(b.lengths):
        return a
    if not any(a.lengths):
        return b
    device = b.tokens.device if a.q is None else a.tokens.device
    width = max(a.tokens.shape[1], b.tokens.shape[1])
    from_a = torch.tensor([bool(n) for n in a.lengths]).to(device, non_blocking=True)
    tokens = torch.where(from_a[:, None], _tokens(a, width, device), _tokens(b, width, device))
    lengths = [x or y for x, y in zip(a.lengths, b.lengths, strict=True)]
    if a.q is None and b.q is None:
        return Draft(tokens, lengths)
    vocabulary = max(_vocabulary(a), _vocabulary(b))
    q = torch.where(
        from_a[:, None, None],
        _dense(a, width, vocabulary, device),
        _dense(b, width, vocabulary, device),
    )
    return Draft(tokens, lengths, q)


def _vocabulary(draft: Draft) -> int:
    """How many ids its q must reach: a point mass may stand past the other's vocabulary."""
    return int(draft.tokens.max()) + 1 if draft.q is None else draft.q.shape[-1]


def _tokens(draft: Draft, width: int, device: torch.device) -> torch.Tensor:
    padding = (0, width - draft.tokens.shape[1])
    return torch.nn.functional.pad(draft.tokens, padding).to(device, non_blocking=True)


def _dense(draft: Draft, width: int, vocabulary: int, device: torch.device) -> torch.Tensor:
    if draft.q is None:
        tokens = _tokens(draft, width, device)
        return torch.nn.functional.one_hot(tokens, vocabulary).float()
    k, size = draft.q.shape[1:]
    return torch.nn.functional.pad(draft.q, (0, vocabulary - size, 0, width - k)).to(device)
