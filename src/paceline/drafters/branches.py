"""Several continuations at once: a wide draft for a target that verifies one tree.

A draft model is small, and a pass over B continuations of it costs little more than over one. They
are drawn independently of each other and merged where they agree, so the target scores each token
once, and any of the B may be the one that it goes along with (SpecInfer, Miao et al. 2024; SpecTr,
Sun et al. 2023).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from paceline.core.noise import race
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.sampling import MOST, Chain, Grows, Reads, heat, padded

T = TypeVar("T")


class Repeated(Sequences):
    """The rows of `origin` as they are now, each `copies` times side by side: copy c of row b is
    row b * copies + c. For reading; nothing can be admitted or committed."""

    def __init__(self, origin: Sequences, copies: int) -> None:
        self.origin = origin
        self.copies = copies
        known = origin.tokens[:, : max(1, *origin.lengths)]
        self.tokens = known[:, None].expand(-1, copies, -1).flatten(0, 1)  # of one row: a view
        self.lengths = _repeat(origin.lengths, copies)
        self.prompts = _repeat(origin.prompts, copies)
        self.limits = _repeat(origin.limits, copies)
        self.running = _repeat(origin.running, copies)
        self.params = _repeat(origin.params, copies)
        self.eos = _repeat(origin.eos, copies)
        self.seeds = _repeat(origin.seeds, copies)
        self.coupled = origin.coupled
        self.slots = [slot * copies + c for slot in origin.slots for c in range(copies)]

    def draft_noise(self, k: int) -> Tensor:
        """[B * copies, k], other numbers for each copy: token j of copy c has offset j * copies + c
        of the row's. So they depend on no other row's k, and one copy draws what a chain draws."""
        whole = self.origin.draft_noise(k * self.copies).view(-1, k, self.copies)
        return whole.transpose(1, 2).flatten(0, 1)

    def draw_draft(self, q: Tensor, j: int, ids: Tensor | None = None) -> Tensor:
        """See `Sequences`. Where draws are coupled to the target's, those of the copies would all
        be the same: they begin with the first tokens of the race to arrive, each with another."""
        if not self.coupled or j:
            return super().draw_draft(q, j, ids)
        drawn: list[Tensor] = []
        for copy in range(self.copies):
            left = q[copy :: self.copies].clone()
            for token in drawn:
                left.scatter_(1, token.clamp(min=0)[:, None], 0.0)
            drawn.append(race(left, self.origin.seeds, self.origin.lengths, ids))
        return torch.stack(drawn, 1).flatten()


class Wide:
    """`grows` as the `Reads` of `Repeated` rows: the copies of a row are branches of one tree. The
    committed tokens are read once for all, which a cache of its own for each copy would not do."""

    def __init__(self, grows: Grows) -> None:
        self._grows = grows

    def read(self, seqs: Sequences) -> Tensor:
        """See `Reads`; `seqs` are `Repeated`."""
        assert isinstance(seqs, Repeated)
        return self._grows.read(seqs.origin).repeat_interleave(seqs.copies, 0)

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """See `Reads`; `seqs` are `Repeated`."""
        assert isinstance(seqs, Repeated)
        level = torch.arange(behind * seqs.copies)  # the node that each further one follows
        parents = torch.cat([torch.full((seqs.copies,), -1), level])
        tokens = tokens.view(-1, seqs.copies)
        return self._grows.level(seqs.origin, tokens, parents.expand(len(tokens), -1)).flatten(0, 1)


class Branches:
    """Drafts `count` continuations of each row, merged into one tree.

    `reads` reads `Repeated` rows: a `CachedModel` for `count` times as many, or `Wide`. Rows with a
    temperature (their own, or `temperature`): independent continuations, drawn as a `Chain` draws
    one (`Draft.draws`). The others: the `count` likeliest first tokens, each continued greedily. A
    `count` of 1 is the `Chain`'s draft, to the bit.
    """

    def __init__(self, reads: Reads, count: int, temperature: float | None = None) -> None:
        self.count = count
        self._temperature = temperature
        self._chain = Chain(_Apart(reads, temperature), temperature)

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """`count` times `k[b]` tokens for each running row, fewer where continuations agree or a
        cache has no room for so many."""
        most = max(1, MOST // self.count)
        lengths = [min(n, most) if run else 0 for n, run in zip(k, seqs.running, strict=True)]
        if not max(lengths):
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), lengths)
        draft = self._chain.propose(Repeated(seqs, self.count), _repeat(lengths, self.count))
        if self.count == 1:
            return draft
        drawn = [b for b in range(seqs.batch) if heat(seqs, b, self._temperature) > 0]
        return merged(draft, self.count, drawn)


class _Apart:
    """`reads`, but the copies of a row that is drafted greedily begin with different tokens."""

    def __init__(self, reads: Reads, temperature: float | None) -> None:
        self._reads = reads
        self._temperature = temperature

    def read(self, seqs: Sequences) -> Tensor:
        """See `Reads`; `seqs` are `Repeated`. Of the c-th copy, c > 0, the logit of the c-th token
        behind the likeliest one alone."""
        assert isinstance(seqs, Repeated)
        logits, copies = self._reads.read(seqs), seqs.copies
        others = min(copies, logits.shape[-1]) - 1
        first = [b for b in range(0, seqs.batch, copies) if not heat(seqs, b, self._temperature)]
        if not others or not first:
            return logits
        logits = logits.clone()
        for row in first:
            rest = logits[row].clone()
            rest[rest.argmax()] = -torch.inf
            apart = logits[row + 1 : row + 1 + others]
            apart.fill_(-torch.inf).scatter_(1, rest.topk(others).indices[:, None], 0.0)
        return logits

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        """See `Reads`."""
        return self._reads.extend(seqs, tokens, behind)


def merged(chains: Draft, count: int, drawn: Collection[int]) -> Draft:
    """The rows of `chains`, `count` for each row of the result, as one tree each: equal beginnings
    share their tokens. `drawn`: the rows of the result that were drawn independently."""
    width = chains.tokens.shape[1]
    host: list[list[int]] = chains.tokens.tolist()  # pyright: ignore
    batch = len(host) // count
    parents: list[list[int]] = []
    sources: list[list[int]] = []  # where each token stands among the row's count * width
    draws = torch.full((batch, count, width), -1)
    for b in range(batch):
        nodes: dict[tuple[int, int], int] = {}  # by parent and token
        source: list[int] = []
        for c in range(count):
            row, node = b * count + c, -1
            for j, token in enumerate(host[row][: chains.lengths[row]]):
                node = nodes.setdefault((node, token), len(nodes))
                if node == len(source):
                    source.append(c * width + j)
                if b in drawn:
                    draws[b, c, j] = node
        parents.append([above for above, _ in nodes])
        sources.append(source)
    lengths = [len(source) for source in sources]
    index = padded(sources, 0).to(chains.tokens.device, non_blocking=True)
    rows = torch.arange(batch, device=index.device)[:, None]
    tokens = chains.tokens.view(batch, -1)[rows, index]
    q = None if chains.q is None else chains.q.view(batch, count * width, -1)[rows, index]
    drawing = q is not None and any(lengths[b] for b in drawn)
    return Draft(tokens, lengths, q, padded(parents, -1), draws if drawing else None)


def _repeat(values: Iterable[T], copies: int) -> list[T]:
    return [value for value in values for _ in range(copies)]
