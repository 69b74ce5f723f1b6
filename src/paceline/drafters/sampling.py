"""How a chain of tokens is drafted from a model's logits: the one place where q comes from."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from paceline.core.cached import SLACK
from paceline.core.protocols import Pace
from paceline.core.sequences import Sequences
from paceline.core.shape import distribution, largest
from paceline.core.types import Draft

MOST = SLACK - 1  # drafted tokens of a row that a cache has room for, beside the pending one


class Reads(Protocol):
    """What scores the next token and keeps a cache somewhere: a `CachedModel`, a model over the
    target's own cache, or a head that follows the target."""

    def read(self, seqs: Sequences) -> Tensor:
        """Logits [B, V'] behind the last committed token of each running row."""
        ...

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """Logits [B, V'] behind one more token a row, `tokens` [B]: the draft's token number
        `behind` (from 0). Called after `read`, for `behind` = 0, 1, …"""
        ...


@runtime_checkable
class Grows(Reads, Protocol):
    """A `Reads` that can look at a tree, a level at a time."""

    def level(self, seqs: Sequences, tokens: Tensor, parents: Tensor) -> Tensor:
        """Logits [B, W, V'] behind each of `tokens` [B, W], the last W of M nodes behind the
        committed tokens; `parents` [B, M] on the CPU: of all of them, as in `Draft.parents`, those
        of the padding -1. Called after `read`, each time with the nodes before and W more."""
        ...


class Chain:
    """Drafts token by token from what `reads` scores, each row at its own temperature and
    truncation, or at `temperature`; 0 drafts greedily.

    Rows without a temperature are drafted greedily unless `temperature` says otherwise. q is
    exactly what a token was drawn from: the shaped distribution, or a point mass for a greedy
    draft. `ids` [V'] int64: the target's id of each logit (None: the same); q is over those ids, of
    which there are `vocab` (None: as many as logits). How far a draft goes is for `pace` to say.
    """

    def __init__(
        self,
        reads: Reads,
        temperature: float | None = None,
        ids: Tensor | None = None,
        vocab: int | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._reads = reads
        self._temperature = temperature
        self._ids = ids
        self._vocab = vocab
        self._pace = pace
        # tokens that the head's vocabulary has and the target's has not are never drafted
        outside = None if ids is None or vocab is None else ids >= vocab
        self._outside = outside if outside is not None and bool(outside.any()) else None

    def propose(self, seqs: Sequences, lengths: list[int]) -> Draft:
        """`lengths[b]` tokens for row b, or fewer where `pace` ends the draft."""
        pace, width = self._pace, max(lengths)
        sure: list[list[float]] = [[] for _ in lengths]
        # a drawn token of a greedy row needs no q: its verifier does not look at one
        sampled = [b for b, n in enumerate(lengths) if n and heat(seqs, b, self._temperature) > 0]
        tokens: list[Tensor] = []
        q: list[Tensor] = []
        for j in range(width):
            if pace and not _go_on(pace, lengths, j, sure):
                break
            logits = self._reads.extend(seqs, tokens[-1], j - 1) if j else self._reads.read(seqs)
            if self._ids is None:
                logits = logits[:, : self._vocab]
            elif self._outside is not None:
                logits = logits.masked_fill(self._outside.to(logits.device), -torch.inf)
            if pace:
                values: list[float] = pace.measure(logits).tolist()  # pyright: ignore
                for b, n in enumerate(lengths):
                    if n > j:
                        sure[b].append(values[b])
                if not _go_on(pace, lengths, j, sure):
                    break
            token = logits.argmax(-1)
            if sampled:
                token, q_j = self._sample(seqs, logits, token, sampled, j)
                q.append(self._spread(q_j))
            tokens.append(token if self._ids is None else self._ids.to(token.device)[token])
        said = sure if pace else None
        if not tokens:
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), lengths, sure=said)
        chances = torch.stack(q, 1) if q else None
        return Draft(torch.stack(tokens, 1), lengths, chances, sure=said)

    def _sample(
        self, seqs: Sequences, logits: Tensor, top: Tensor, sampled: Sequence[int], j: int
    ) -> tuple[Tensor, Tensor]:
        """The draft's token number `j`, as indices [B], and their q [B, V']; one-hot at `top` for
        the rows that are not sampled."""
        q = torch.zeros_like(logits).scatter_(-1, top[:, None], 1.0)
        for b in sampled:
            hot = heat(seqs, b, self._temperature)
            q[b] = distribution(logits[b : b + 1], seqs.params[b], hot)[0]
        token = seqs.draw_draft(q, j, self._ids)
        # where the model gave no distribution (NaN): index 0 as a point mass, still lossless
        point = torch.zeros_like(q)
        point[:, 0] = 1
        return token.clamp(min=0), torch.where((token < 0)[:, None], point, q)

    def _spread(self, q: Tensor) -> Tensor:
        """q [B, V'] over the target's ids."""
        if self._ids is None:
            return q
        size = self._vocab or int(self._ids.max()) + 1
        inside = self._ids < size
        ids = self._ids[inside].to(q.device)
        whole = q.new_zeros(q.shape[0], size)
        return whole.index_copy_(1, ids, q if bool(inside.all()) else q[:, inside.to(q.device)])


def _go_on(pace: Pace, lengths: list[int], j: int, sure: Sequence[Sequence[float]]) -> bool:
    """End, in `lengths`, the drafts that are not to have a token number `j`; whether any is."""
    rows = [b for b, n in enumerate(lengths) if n > j]
    if not rows:
        return False
    on = pace.further(rows, j, sure)
    for b in rows:
        if b not in on:
            lengths[b] = j
    return bool(on)


class Doubts:
    """A `Pace` of the drafter's own: a draft ends before the token at which the product of the
    largest probabilities so far, the next one's included, is below `confidence`."""

    def __init__(self, confidence: float) -> None:
        self.confidence = confidence

    def limits(self, k: Sequence[int]) -> Sequence[int]:
        """As many as were asked for."""
        return k

    def measure(self, logits: Tensor) -> Tensor:
        """The largest probability."""
        return largest(logits)

    def further(
        self, rows: Sequence[int], drafted: int, sure: Sequence[Sequence[float]]
    ) -> Sequence[int]:
        """Those whose product is large enough."""
        return [b for b in rows if prod(sure[b]) >= self.confidence]

    def lengths(
        self, rows: Sequence[int], sure: Sequence[Sequence[float]], lengths: Sequence[int]
    ) -> Sequence[int]:
        """All of them."""
        return lengths


def growing(reads: Reads) -> Grows:
    """`reads`, if it can look at trees; ValueError if not."""
    if isinstance(reads, Grows):
        return reads
    raise ValueError(f"a {type(reads).__name__} reads chains alone")


def heat(seqs: Sequences, row: int, temperature: float | None) -> float:
    """At which temperature a row is drafted: `temperature`, or its own if that is None."""
    return seqs.params[row].temperature if temperature is None else temperature


def sure_of(matched: int) -> float:
    """How sure a copied token is behind `matched` tokens that agree with the place it is from."""
    return 1 - 1 / (matched + 1)


def padded(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """`rows` [B, longest] int64, with `value` behind their ends."""
    width = max(len(row) for row in rows)
    whole = torch.full((len(rows), width), value)
    for b, row in enumerate(rows):
        whole[b, : len(row)] = torch.tensor(row, dtype=torch.int64)
    return whole
