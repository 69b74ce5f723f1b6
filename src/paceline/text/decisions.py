"""How each drafted token of a round was decided on, in numbers: for those who want to see it.

Every rule tests tokens in a way of its own, and what its numbers mean depends on it:

- rejection, candidates, kseq: `u` against `need`, accepted where u < need. `need` is min(1, p/q)
  for a chain (p/(l q) with lenience l), and for one of several candidates the chance that it had
  after those before it were refused.
- block: the draft is cut behind its last token with u < need. `need` is the chance h that the draft
  is kept up to there, given that it was not kept any further; it is no chance of the token alone,
  so a token with p far below q may stand in a block that was kept.
- greedy, and coupled (a draw that is fixed by the seed): accepted where it is what the target says,
  `said`. `gap` (greedy): by how much, in nats, the target prefers that. With lenience: accepted
  where gap <= -log(l).
- typical: `need` is the bar, accepted where p > need and no longer path is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from paceline.core.noise import ACCEPT, race, uniforms
from paceline.core.tree import children, depths, parents_of
from paceline.text.completion import Seen
from paceline.verifiers.candidates import divisor, one_by_one
from paceline.verifiers.tree import offers_of
from paceline.verifiers.typical import Typical

Rule = Literal["greedy", "rejection", "block", "candidates", "kseq", "typical", "coupled"]
State = Literal["accepted", "rejected", "unused"]


@dataclass(frozen=True)
class Verifying:
    """How a run verifies, as its options say: see `paceline.build.verify.make_verifier`."""

    verify: str = "auto"
    lenience: float = 1.0
    deterministic: bool = False


@dataclass(frozen=True)
class Decision:
    """On one drafted token. `parent`: the token of the draft that it follows (-1: the last
    committed one). `p`, `q`: of the target and of the drafter at its place, each given the tokens
    before it. `unused`: behind a rejected token, beside an accepted one, or past the end of the
    answer. `said`: the target's own choice there. For the others see above; None where the rule has
    no such number, or the token was not tested."""

    id: int
    parent: int
    p: float
    q: float
    state: State
    u: float | None = None
    need: float | None = None
    gap: float | None = None
    said: int | None = None


def decisions(seen: Seen, how: Verifying) -> tuple[Rule, list[Decision]]:
    """The rule that decided in that round, and the decision on each drafted token."""
    look = _Look(seen)
    rule = _rule(look, how)
    states = _states(look, rule)
    u = need = gap = said = [None] * look.count
    if rule in ("greedy", "coupled"):
        said = look.said(rule)
        if rule == "greedy":
            gap = look.gaps(said)
    elif rule == "typical":
        need = look.bars()
    else:
        u = look.uniforms()
        if rule == "rejection":
            pairs = zip(look.p, look.q, strict=True)
            need = [min(1.0, p / (how.lenience * q)) if q > 0 else 0.0 for p, q in pairs]
        elif rule == "block":
            need = look.blocks()
        else:
            need = look.candidates(rule == "kseq")
    lists = (look.tokens, look.parents, look.p, look.q, states, u, need, gap, said)
    return rule, [Decision(*values) for values in zip(*lists, strict=True)]


class _Look:
    """One row of a round, on the host but for its distributions."""

    def __init__(self, seen: Seen) -> None:
        draft, target, row = seen.round.draft, seen.round.target, seen.row
        self.seen = seen
        self.count = draft.lengths[row]
        self.parents = parents_of(draft, row)
        self.tokens: list[int] = draft.tokens[row, : self.count].tolist()
        if seen.params.greedy:
            assert target.logits is not None  # a trace is asked for
            logits = target.adjusted.get(row, target.logits[row])[: self.count + 1]
            self.laws = logits.float().softmax(-1)
        else:
            assert target.dense is not None
            self.laws = target.dense[list(target.sampled).index(row), : self.count + 1]
        pairs = list(zip(self.parents, self.tokens, strict=True))
        self.p = [float(self.laws[parent + 1, token]) for parent, token in pairs]
        self.law = None if draft.q is None else draft.q[row].to(self.laws.device)
        law = self.law
        self.q = [1.0 if law is None else float(law[i, t]) for i, t in enumerate(self.tokens)]
        path = seen.round.verdict.path
        n = seen.emitted.accepted
        self.path = list(range(n)) if path is None else path[row, :n].tolist()
        # the places at which a token was chosen: behind the root and behind each accepted token
        self.places = [0, *(node + 1 for node in self.path)][: len(seen.emitted.tokens)]
        lines = [] if draft.draws is None or self.law is None else draft.draws[row].tolist()
        drawn = [[node for node in line if node >= 0] for line in lines]
        self.drawn = [line for line in drawn if line]
        self.offers = offers_of(self.parents, self.drawn)

    @property
    def is_chain(self) -> bool:
        straight = [*([node] for node in range(self.count)), []]
        return self.seen.round.draft.parents is None or self.offers == straight

    def said(self, rule: Rule) -> list[int | None]:
        """What the target says in the place of each token."""
        if rule == "greedy":
            top: list[int] = self.seen.round.target.top[self.seen.row].tolist()
            return [top[parent + 1] for parent in self.parents]
        seed, base = self.seen.seed, self.seen.base
        at = zip(self.parents, depths(self.parents), strict=True)
        return [int(race(self.laws[n + 1 : n + 2], [seed], [base + depth])) for n, depth in at]

    def gaps(self, said: Sequence[int | None]) -> list[float | None]:
        found: list[float | None] = []
        for parent, p, best in zip(self.parents, self.p, said, strict=True):
            most = float(self.laws[parent + 1, best]) if best is not None and best >= 0 else 0.0
            found.append(math.log(most / p) if p > 0 and most > 0 else None)
        return found

    def bars(self) -> list[float | None]:
        rule = Typical()
        entropy = -torch.xlogy(self.laws, self.laws).sum(-1, dtype=torch.float64)
        bars = (rule.delta * torch.exp(-entropy)).clamp(max=rule.epsilon).tolist()
        return [bars[parent + 1] for parent in self.parents]

    def uniforms(self) -> list[float | None]:
        """Those of the accept tests: they are addressed, so they can be had again."""
        return uniforms([self.seen.seed], [self.seen.base], ACCEPT, range(self.count))[0].tolist()

    def blocks(self) -> list[float | None]:
        """h of each token: see `paceline.verifiers.block`."""
        share, found = 1.0, []
        for i, (p, q) in enumerate(zip(self.p, self.q, strict=True)):
            share = min(1.0, share * p / q) if q > 0 else float(share * p > 0)
            h = share
            if i + 1 < self.count:
                rest = share * self.laws[i + 1].double()
                if self.law is None:
                    rest[self.tokens[i + 1]] = 0
                else:
                    rest[: self.law.shape[-1]] -= self.law[i + 1]
                lack = float(rest.clamp_(min=0).sum())
                h = lack / (lack + 1 - share) if lack + 1 - share > 0 else 0.0
            found.append(h)
        return found

    def candidates(self, kseq: bool) -> list[float | None]:
        """The chance of each candidate that was tested. One that was drawn several times has a test
        each time, with what is left of its number: the chance is that of any of them so far."""
        found: list[float | None] = [None] * self.count
        numbers = [u for u in self.uniforms() if u is not None]
        for place, accepted in zip(self.places, [*self.path, None], strict=False):
            here, nodes = self.laws[place], self.offers[place]
            for i, node in enumerate(nodes):
                chance = self._chance(here, nodes, i, numbers, kseq and len(nodes) > 1)
                before = found[node] or 0.0
                found[node] = chance if not before else 1 - (1 - before) * (1 - chance)
                if node == accepted and numbers[node] < (found[node] or 0.0):
                    break
        return found

    def _chance(
        self, p: Tensor, nodes: Sequence[int], i: int, u: Sequence[float], kseq: bool
    ) -> float:
        token = self.tokens[nodes[i]]
        if kseq and self.law is not None:
            law = self.law[nodes[0]]
            return min(1.0, float(p[token]) / (divisor(p, law, len(nodes)) * float(law[token])))
        _, left = one_by_one(p, nodes[:i], self.tokens, self.law, u)
        mass = float(left.sum(dtype=torch.float64)) if i else 1.0
        offered = mass * (1.0 if self.law is None else float(self.law[nodes[i], token]))
        return min(1.0, float(left[token]) / offered) if offered > 0 else 0.0


def _rule(look: _Look, how: Verifying) -> Rule:
    if look.seen.params.greedy:
        return "greedy"
    name = look.seen.params.verify or how.verify
    if how.deterministic:
        return "coupled"
    if name == "typical":
        return "typical"
    if look.is_chain:
        return "rejection" if name == "rejection" or how.lenience < 1 else "block"
    return "kseq" if name == "kseq" and look.drawn else "candidates"


def _states(look: _Look, rule: Rule) -> list[State]:
    """A place's candidates were all looked at where the rule asks what the target says; else those
    up to the one that was accepted."""
    states: list[State] = ["unused"] * look.count
    in_order = rule in ("candidates", "kseq")
    bars = look.bars() if rule == "typical" else []
    for place, accepted in zip(look.places, [*look.path, None], strict=False):
        for node in look.offers[place] if in_order else children(look.parents)[place]:
            if node == accepted:
                states[node] = "accepted"
                if in_order:
                    break
            elif states[node] == "unused" and (not bars or look.p[node] <= (bars[node] or 0)):
                states[node] = "rejected"
    return states
