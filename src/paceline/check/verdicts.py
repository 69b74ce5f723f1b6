"""All that a verifier can say of given drafts, with the probability of each verdict."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from paceline.check.pieces import pieces
from paceline.check.tiny import Turn
from paceline.core.noise import Noise
from paceline.core.protocols import Verifier
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict

Said = tuple[float, tuple[int, ...], Turn]
"""How likely, what is emitted, and noise that leads there."""


def to_one(p: Tensor) -> Tensor:
    """`p` [..., V] in float64, with sums of 1; a row of zeros stays one."""
    p = p.double()
    total = p.sum(-1, keepdim=True)
    return torch.where(total > 0, p / total, p)


@dataclass
class Watch:
    """The production verifier, whose whole law is taken down for each row while `laws` is a list.
    It is shown p and q in float64, each with a sum of 1."""

    inner: Verifier
    laws: list[list[Said]] | None = None

    def __post_init__(self) -> None:
        self.lossless = self.inner.lossless

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """The verifier's own verdict."""
        assert p.dense is not None
        p = replace(p, dense=to_one(p.dense))
        draft = replace(draft, q=None if draft.q is None else to_one(draft.q))
        if self.laws is not None:
            self.laws = verdict_laws(self.inner, p, draft)
        return self.inner.verify(p, draft, noise)

    def take(self) -> list[list[Said]]:
        """The laws, and no more from now on."""
        found, self.laws = self.laws or [], None
        return found


def verdict_laws(verifier: Verifier, p: Target, draft: Draft) -> list[list[Said]]:
    """All verdicts for each row of a batch of sampled ones."""
    assert p.dense is not None
    batch, k = draft.tokens.shape
    base = max(p.dense.shape[-1] + 1, k + 1)

    def judge(which: np.ndarray, points: np.ndarray) -> Verdict:
        rows = torch.from_numpy(which)
        u = torch.from_numpy(np.ascontiguousarray(points))
        noise = Noise(u[:, :k], u[:, k:].expand(-1, k + 1))
        return verifier.verify(target_rows(p, rows), draft_rows(draft, rows), noise)

    def rule(which: np.ndarray, points: np.ndarray) -> np.ndarray:
        verdict = judge(which, points)
        inside = torch.arange(k + 1) <= verdict.accepted[:, None]
        digits = [torch.where(inside, verdict.tokens + 1, 0)]
        if verdict.path is not None:
            digits.append(torch.where(inside[:, 1:], verdict.path + 1, 0))
        code = verdict.accepted.clone()
        for column in torch.cat(digits, 1).T:
            code = code * base + column
        return code.numpy()

    # trees are verified row by row: few questions; chains all at once: few calls
    found = pieces(rule, batch, k + 1, 16 if draft.parents is None else 2)
    verdict = judge(found.which, found.point)
    laws: list[list[Said]] = [[] for _ in range(batch)]
    for i, (n, tokens) in enumerate(
        zip(verdict.accepted.tolist(), verdict.tokens.tolist(), strict=True)
    ):
        point = found.point[i].tolist()
        turn = Turn((), tuple(point[:k]), point[k])
        laws[found.which[i]].append((float(found.weight[i]), tuple(tokens[: n + 1]), turn))
    return laws


def target_rows(p: Target, rows: Tensor) -> Target:
    """A Target whose row i is row `rows[i]` of `p`, all of whose rows are sampled."""
    assert p.dense is not None
    assert len(p.sampled) == len(p.top)
    return replace(
        p,
        logits=None if p.logits is None else p.logits[rows],
        top=p.top[rows],
        sampled=range(len(rows)),
        dense=p.dense[rows],
    )


def draft_rows(draft: Draft, rows: Tensor) -> Draft:
    """A Draft whose row i is row `rows[i]` of `draft`."""
    lengths = [draft.lengths[row] for row in rows.tolist()]
    parts = {
        name: None if (part := getattr(draft, name)) is None else part[rows]
        for name in ("q", "parents", "draws")
    }
    return Draft(draft.tokens[rows], lengths, **parts)
