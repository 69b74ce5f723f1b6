"""Verifiers that are wrong on purpose. A check that passes one of them proves nothing.

The chain's rule is written out once more here, plainly, with each step in a method of its own; a
breakage overrides one of them. Unbroken it passes, so what is caught is the breakage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.build.verify import make_verifier
from paceline.core.noise import Noise, draw
from paceline.core.protocols import Verifier
from paceline.core.target import Target
from paceline.core.tree import children, parents_of
from paceline.core.types import Draft, Verdict


class Chain:
    """Token-by-token rejection of chains; all rows are sampled."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """See `Verifier.verify`."""
        assert p.dense is not None
        law, x = p.dense.double(), draft.tokens
        rows, k = x.shape
        q = torch.zeros(rows, k + 1, law.shape[-1], dtype=torch.float64)
        if draft.q is None:
            q[:, :k].scatter_(2, x[..., None], 1.0)
        else:
            q[:, :k, : draft.q.shape[-1]] = draft.q
        size = torch.tensor(draft.lengths)
        q[torch.arange(k + 1) >= size[:, None]] = 0
        px, qx = (of[:, :k].gather(-1, x[..., None])[..., 0] for of in (law, q))
        passes = self.accept(px, qx, noise.accept[:, :k]) & (torch.arange(k) < size[:, None])
        n = self.count(passes)
        row = torch.arange(rows)
        refused = n < size
        weights = self.left(law[row, n], q[row, n])
        weights = torch.where(refused[:, None], weights, self.bonus(law, n))
        weights = torch.where(weights.sum(-1, keepdim=True) > 0, weights, law[row, n])
        last = draw(weights, self.last(noise, n))
        tokens = torch.cat([x, x.new_zeros(rows, 1)], 1)
        tokens[row, n] = last
        return Verdict(tokens, n)

    def accept(self, px: Tensor, qx: Tensor, u: Tensor) -> Tensor:
        """Which tokens pass [B, K]."""
        return u * qx < px

    def count(self, passes: Tensor) -> Tensor:
        """n [B]."""
        return passes.long().cumprod(-1).sum(-1)

    def left(self, p: Tensor, q: Tensor) -> Tensor:
        """Weights [B, V] behind a refusal."""
        return (p - q).clamp(min=0)

    def bonus(self, p: Tensor, n: Tensor) -> Tensor:
        """Weights [B, V] behind a draft that was accepted whole, from p [B, K+1, V]."""
        return p[torch.arange(len(n)), n]

    def last(self, noise: Noise, n: Tensor) -> Tensor:
        """The uniform [B] of the last draw."""
        return noise.last[torch.arange(len(n)), n]


class _Strict(Chain):
    def accept(self, px: Tensor, qx: Tensor, u: Tensor) -> Tensor:
        return px >= qx


class _FromP(Chain):
    def left(self, p: Tensor, q: Tensor) -> Tensor:
        return p


class _Softmax(Chain):
    def left(self, p: Tensor, q: Tensor) -> Tensor:
        return super().left(p, q).softmax(-1)


class _First(Chain):
    def accept(self, px: Tensor, qx: Tensor, u: Tensor) -> Tensor:
        passes = super().accept(px, qx, u)
        passes[:, :1] = True
        return passes


class _NoQ(Chain):
    def accept(self, px: Tensor, qx: Tensor, u: Tensor) -> Tensor:
        return u < px


class _Sharper(Chain):
    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        q = None if draft.q is None else draft.q**1.5
        q = None if q is None else q / q.sum(-1, keepdim=True).clamp(min=1e-30)
        return super().verify(p, Draft(draft.tokens, draft.lengths, q), noise)


class _Before(Chain):
    def bonus(self, p: Tensor, n: Tensor) -> Tensor:
        return p[torch.arange(len(n)), (n - 1).clamp(min=0)]


class _Holes(Chain):
    def count(self, passes: Tensor) -> Tensor:
        return passes.long().sum(-1)


class _Reuse(Chain):
    def last(self, noise: Noise, n: Tensor) -> Tensor:
        if not noise.accept.shape[1]:
            return super().last(noise, n)
        return noise.accept[torch.arange(len(n)), n.clamp(max=noise.accept.shape[1] - 1)]


class _EarlyBlock:
    """Block verification that ends at the first test that fails."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        block = make_verifier("block")
        whole = block.verify(p, draft, noise)
        n = whole.accepted
        # a prefix is accepted only if each shorter one would have been: cut where one would not
        for length in range(draft.tokens.shape[1] - 1, 0, -1):
            refuse = noise.accept.clone()
            refuse[:, length:] = 1 - 2.0**-53  # nothing longer
            shorter = block.verify(p, draft, Noise(refuse, noise.last))
            n = torch.where(shorter.accepted < length, torch.minimum(n, shorter.accepted), n)
        refuse = torch.where(
            torch.arange(draft.tokens.shape[1]) < n[:, None], noise.accept, 1 - 2.0**-53
        )
        return block.verify(p, draft, Noise(refuse, noise.last))


class _Siblings:
    """Recursive rejection that tests every candidate against p itself, not what is left of it."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        assert p.dense is not None
        rows, width = draft.tokens.shape
        tokens = torch.zeros(rows, width + 1, dtype=torch.int64)
        path = torch.full((rows, width), -1)
        accepted = torch.zeros(rows, dtype=torch.int64)
        for b in range(rows):
            nodes = self._walk(p.dense[b].double(), draft, b, noise)
            here = nodes[-1] + 1 if nodes else 0
            weights = p.dense[b, here].double()
            refused = children(parents_of(draft, b))[here]
            if refused and draft.q is not None:
                width_q = draft.q.shape[-1]
                weights = weights.clone()
                weights[:width_q] -= draft.q[b, refused[0]].double()
                weights = weights.clamp(min=0)
            n = len(nodes)
            said = [int(draft.tokens[b, node]) for node in nodes]
            said.append(int(draw(weights[None], noise.last[b, n : n + 1])))
            tokens[b, : n + 1] = torch.tensor(said)
            path[b, :n] = torch.tensor(nodes, dtype=torch.int64)
            accepted[b] = n
        return Verdict(tokens, accepted, path)

    def _walk(self, p: Tensor, draft: Draft, row: int, noise: Noise) -> list[int]:
        below = children(parents_of(draft, row))
        nodes: list[int] = []
        here = 0
        while True:
            for node in below[here]:
                x = int(draft.tokens[row, node])
                qx = 1.0 if draft.q is None else float(draft.q[row, node, x])
                if float(noise.accept[row, node]) * qx < float(p[here, x]):
                    nodes.append(node)
                    here = node + 1
                    break
            else:
                return nodes


@dataclass(frozen=True)
class Breakage:
    """A broken verifier and the way to draft that it is tried with: in the exact part, and in the
    sampled one."""

    what: str
    verifier: Verifier
    draft: str = "model"
    form: str = "chain"


def breakages() -> Sequence[Breakage]:
    """All of them."""
    return (
        Breakage("accepts only where p >= q", _Strict()),
        Breakage("draws from p behind a refusal", _FromP()),
        Breakage("puts the residual through a softmax", _Softmax()),
        Breakage("always accepts the first token", _First()),
        Breakage("leaves q out of the accept test", _NoQ()),
        Breakage("scores the draft at another temperature", _Sharper()),
        Breakage("draws the bonus token one place too early", _Before()),
        Breakage("counts tokens accepted behind a refusal", _Holes()),
        Breakage("uses the accept test's noise for the last draw", _Reuse()),
        Breakage("block verification that stops at the first failure", _EarlyBlock()),
        Breakage("lenience 0.9", make_verifier("rejection", 0.9)),
        Breakage("typical acceptance", make_verifier("typical")),
        Breakage(
            "tests siblings against p, not what is left of it",
            _Siblings(),
            "tree, drawn",
            "tree, drawn",
        ),
    )
