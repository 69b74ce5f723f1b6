"""Where sampled rounds are looked at: p and q at one place, kept, so that thousands of rounds cost
no pass of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from paceline.check.pair import Pair
from paceline.check.tiny import Script, Turn
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.types import Draft

TOP_K = 8  # truncation where two tokens are looked at: what may come first stays few
ROOM = 8  # tokens behind a context


@dataclass(frozen=True)
class One:
    """One drafted token. `p` [2, V]: behind the context, and behind the drafted token (of one
    drawn draft: only what is drawn behind it hangs on that). `q` [V'] is what it is drawn from;
    None: it is always `x`. `x` -1: nothing is drafted."""

    where: str
    p: Tensor
    q: Tensor | None = None
    x: int = -1


@dataclass(frozen=True)
class Two:
    """Up to two drafted tokens, over the few tokens that can come at all, here 0..V-1. `first` [V],
    `second` [V, V]: p behind the context, and behind each token there; `q_first`, `q_second` the
    same of q, where one-hot rows are point masses; `drawn`: q is one that tokens are drawn from.
    `lengths` [V]: how many tokens a draft has that begins with each token (0: none does)."""

    where: str
    first: Tensor
    second: Tensor
    q_first: Tensor
    q_second: Tensor
    drawn: bool
    lengths: Sequence[int]


class Reader:
    """Reads p and q at places of the user's pair."""

    def __init__(self, pair: Pair, length: int) -> None:
        self._target = CachedModel(pair.model, 1, length + ROOM, pair.tokenizer.size)
        self._drafter = pair.make_drafter(1, length + ROOM, self._target)
        self._length = length + ROOM

    @torch.no_grad()
    def one(self, where: str, ids: Sequence[int]) -> One:
        """At temperature 1, over the whole vocabulary."""
        seqs = self._sequences(ids, SamplingParams(temperature=1))
        draft = self._drafter.propose(seqs, [1])
        p = self._p(seqs, draft).cpu()
        if not draft.lengths[0]:
            return One(where, torch.cat([p[:1], p[:1]]))
        q = None if draft.q is None else draft.q[0, 0].cpu()
        return One(where, p[:2], q, int(draft.tokens[0, 0]))

    @torch.no_grad()
    def two(self, where: str, ids: Sequence[int]) -> Two:
        """At temperature 1, cut to the TOP_K likeliest."""
        seqs = self._sequences(ids, SamplingParams(temperature=1, top_k=TOP_K))
        p = self._p(seqs, _chain([])).cpu()[0]
        drafts = self._drafts(seqs)
        begun = {int(d.tokens[0, 0]): d for d in drafts if d.lengths[0]}
        firsts = sorted({*p.nonzero()[:, 0].tolist(), *begun})
        behind = {t: self._p(seqs, _chain([t])).cpu()[1] for t in firsts}
        drawn = any(d.q is not None for d in drafts)
        q_first = torch.zeros_like(p)
        q_behind: dict[int, Tensor] = {}
        for token, draft in begun.items():
            rows = _laws(draft, len(p))
            q_first = rows[0]
            if draft.lengths[0] > 1:
                q_behind[token] = rows[1]
        every = torch.stack([p, q_first, *behind.values(), *q_behind.values()])
        known = {int(t): i for i, t in enumerate(every.any(0).nonzero()[:, 0])}
        few = torch.tensor(list(known))
        second, q_second = torch.zeros(2, len(few), len(few))
        lengths = [0] * len(few)
        for token, row in behind.items():
            second[known[token]] = row[few]
        for token, draft in begun.items():
            lengths[known[token]] = min(2, draft.lengths[0])
            if token in q_behind:
                q_second[known[token]] = q_behind[token][few]
        return Two(where, p[few], second, q_first[few], q_second, drawn, lengths)

    def _drafts(self, seqs: Script) -> list[Draft]:
        """A draft of two tokens for each first token that can be drawn; the first draw is told."""
        draft = self._drafter.propose(seqs, [2])
        if draft.q is None or not draft.lengths[0]:
            return [draft]
        sums = draft.q[0, 0].double().cpu().cumsum(-1)
        found: list[Draft] = []
        for token in draft.q[0, 0].nonzero()[:, 0].tolist():
            before = float(sums[token - 1]) if token else 0.0
            seqs.turns = [Turn(draft=((before + float(sums[token])) / 2 / float(sums[-1]),))]
            found.append(self._drafter.propose(seqs, [2]))
        return found

    def _sequences(self, ids: Sequence[int], params: SamplingParams) -> Script:
        seqs = Script(1, self._length)
        seqs.admit(0, list(ids), replace(params, max_tokens=None, seed=0))
        return seqs

    def _p(self, seqs: Script, draft: Draft) -> Tensor:
        dense = seqs.probs(self._target.score(seqs, draft), draft).dense
        assert dense is not None
        return dense[0]


def _chain(tokens: Sequence[int]) -> Draft:
    return Draft(torch.tensor([list(tokens)], dtype=torch.int64), [len(tokens)])


def _laws(draft: Draft, vocab: int) -> Tensor:
    """q [K, V] of a draft's tokens, one-hot for point masses."""
    rows = torch.zeros(draft.tokens.shape[1], vocab)
    if draft.q is None:
        return rows.scatter_(1, draft.tokens[0, :, None].cpu(), 1.0)
    rows[:, : draft.q.shape[-1]] = draft.q[0].cpu()
    return rows


def synthetic(vocab: int, seed: int) -> One:
    """As a language model has it: a few likely tokens and a long tail; a drafter that agrees
    fairly well."""
    make = torch.Generator().manual_seed(seed)
    logits = torch.randn(3, vocab, generator=make) * 2.5
    logits[2] = logits[0] + logits[2] * 0.4
    laws = torch.softmax(logits, -1)
    return One(f"made up, {vocab} tokens", laws[:2], laws[2], int(laws[2].argmax()))


def synthetic_two(vocab: int, seed: int) -> Two:
    """The same for two tokens."""
    make = torch.Generator().manual_seed(seed)
    logits = torch.randn(vocab + 1, vocab, generator=make) * 1.5
    p = torch.softmax(logits, -1)
    q = torch.softmax(logits + torch.randn(logits.shape, generator=make), -1)
    where = f"made up, {vocab} tokens"
    return Two(where, p[0], p[1:], q[0], q[1:], True, [2] * vocab)
