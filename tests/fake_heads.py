"""A target whose features can be read, and heads over it, all of them hashes of what they read."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from fakes import HashLM
from paceline.core.cached import CachedModel
from paceline.core.follower import Follower
from paceline.core.sequences import Sequences
from paceline.core.types import Output

_PRIME = 1000003


class TappedLM(HashLM):
    """A HashLM whose features at a position are the hash of all tokens up to there, plus the
    layer's number: no two prefixes have the same."""

    taps: Sequence[int] = ()

    def tapped(self, layers: Sequence[int]) -> TappedLM:
        other = copy.copy(self)
        other.taps = list(layers)
        return other

    def forward(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Tensor,
        *,
        row: int = 0,
        logits: bool = True,
        parents: Tensor | None = None,
    ) -> Output:
        output = super().forward(tokens, at, cache, row=row, logits=logits, parents=parents)
        places = torch.tensor(at)[:, None] + torch.arange(tokens.shape[1]) + 1
        states = cache[torch.arange(len(at))[:, None] + row, places]
        return Output(output.logits, states[..., None].float() + torch.tensor(self.taps).float())


class HashHead:
    """A head with a cache of its own: each entry is a hash of the entry before it, the state that
    it reads and the token. Its tokens are `ids` of the target's."""

    def __init__(self, ids: Sequence[int], seed: int = 0, confidence: float = 0.0) -> None:
        make = torch.Generator().manual_seed(seed)
        self.table = torch.randn(997, len(ids), generator=make) * 2
        self.ids = torch.tensor(ids)
        self.confidence = confidence
        self.taps = [1, 3]

    def over(self, target: CachedModel) -> Follower:
        return Follower(target, self)

    def new_cache(self, batch: int, length: int) -> Tensor:
        return torch.full((batch, length + 1), -1, dtype=torch.int64)

    def combine(self, features: Tensor) -> Tensor:
        return features.sum(-1, keepdim=True)

    def forward(
        self,
        states: Tensor,
        tokens: Tensor,
        at: Sequence[int],
        cache: Tensor,
        rows: Sequence[int],
        *,
        parents: Tensor | None = None,
    ) -> Tensor:
        place, count = torch.tensor(at), tokens.shape[1]
        assert int(place.max()) + count < cache.shape[1], "past the end of the cache"
        chain = torch.arange(-1, count - 1).expand(len(at), -1)
        nodes = chain if parents is None else parents
        base = place - (nodes.shape[1] - count)
        out: list[Tensor] = []
        for t in range(count):
            parent = base + nodes[:, nodes.shape[1] - count + t] + 1
            before = torch.where(parent == 0, 1, cache[list(rows), parent])
            assert bool((before >= 0).all()), "an entry was left out"
            entry = (before * 31 + states[:, t, 0].long() * 7 + tokens[:, t] * 17 + 3) % _PRIME
            cache[list(rows), place + t + 1] = entry
            out.append(entry.float())
        return torch.stack(out, 1)[..., None]

    def score(self, states: Tensor) -> Tensor:
        return self.table[states[:, 0].long() % 997]

    def fresh(self, ids: Sequence[int], drafted: Sequence[int]) -> Tensor:
        """Logits [len(drafted) + 1, V'] behind `ids` and behind each of `drafted`, from nothing."""
        state, features = 1, []
        for token in ids[:-1]:
            state = (state * 31 + token * 17 + 3) % _PRIME
            features.append(2 * state + sum(self.taps))
        entry, out = 1, []
        for i, token in enumerate([*ids[1:], *drafted]):
            read = features[i] if i < len(features) else entry
            entry = (entry * 31 + read * 7 + token * 17 + 3) % _PRIME
            if i >= len(ids) - 2:
                out.append(self.table[entry % 997])
        return torch.stack(out)


class Perfect:
    """A head that gives the target's own logits, in another order."""

    confidence = 0.0
    taps = (2,)

    def __init__(self, model: HashLM) -> None:
        self.model = model
        self.ids = torch.arange(model.vocab_size).flip(0)

    def over(self, target: CachedModel) -> Perfect:
        batch, length = target.ids.shape
        self._cached = CachedModel(self.model, batch, length)
        return self

    def read(self, seqs: Sequences) -> Tensor:
        return self._cached.read(seqs)[:, self.ids]

    def extend(self, seqs: Sequences, tokens: Tensor, behind: int) -> Tensor:
        return self._cached.extend(seqs, tokens, behind)[:, self.ids]

    def level(self, seqs: Sequences, tokens: Tensor, parents: Tensor) -> Tensor:
        return self._cached.level(seqs, tokens, parents)[..., self.ids]
