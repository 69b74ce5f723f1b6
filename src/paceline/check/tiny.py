"""A tiny world whose laws can be written down: a model of few tokens, and noise that is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.core.noise import Noise
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Output

_STATES = 997


class Tiny:
    """A random model: what follows depends on every token before, through its cache.

    Each cache entry is a hash of the one before it and the token read, so that a stale or misplaced
    entry changes all that follows. Reads trees (see `Branching`).
    """

    def __init__(self, vocab: int, seed: int, sharpness: float = 1.2) -> None:
        make = torch.Generator().manual_seed(seed)
        self.table = torch.randn(_STATES, vocab, generator=make) * sharpness
        self.vocab_size = vocab
        self.context = 1 << 20
        self.device = torch.device("cpu")

    def new_cache(self, batch: int, length: int) -> Tensor:
        """[batch, length + 1] int64: entry i + 1 of a row is the state behind its token i."""
        cache = torch.full((batch, length + 1), -1, dtype=torch.int64)
        cache[:, 0] = 1
        return cache

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
        """See `Branching.forward`."""
        rows, count = torch.arange(len(at)) + row, tokens.shape[1]
        start = torch.tensor(at)
        skipped = 0 if parents is None else parents.shape[1] - count
        scores: list[Tensor] = []
        for t in range(count):
            before = start + t if parents is None else start - skipped + parents[:, skipped + t] + 1
            state = (cache[rows, before] * 31 + tokens[:, t] * 17 + 3) % 1000003
            cache[rows, start + t + 1] = state
            scores.append(self.table[state % _STATES])
        return Output(torch.stack(scores, 1))

    def move(self, cache: Tensor, row: int, source: Sequence[int], start: int) -> None:
        """See `Branching.move`."""
        moved = cache[row, torch.tensor(source) + 1]
        cache[row, start + 1 : start + 1 + len(source)] = moved

    def after(self, ids: Sequence[int]) -> Tensor:
        """Logits [V] behind `ids`, without any cache but its own."""
        scores = self.forward(torch.tensor([ids]), [0], self.new_cache(1, len(ids))).logits
        assert scores is not None
        return scores[0, -1]


@dataclass(frozen=True)
class Turn:
    """The noise of one round of one row: for the drafter's draws, the accept tests and the last
    draw, which is the same wherever it is made."""

    draft: Sequence[float] = ()
    accept: Sequence[float] = ()
    last: float = 0.5


class Script(Sequences):
    """Sequences whose noise is given: `turns[b]` is that of the round at hand of row b. `asked`:
    the most numbers that a drafter wanted in one round; those that are not given are 0.5."""

    def __init__(self, batch: int, length: int) -> None:
        super().__init__(batch, length)
        self.turns = [Turn()] * batch
        self.asked = [0]  # in a list: views (see `only`) share it

    def draft_noise(self, k: int) -> Tensor:
        """What the turns say."""
        self.asked[0] = max(self.asked[0], k)
        return _table([turn.draft for turn in self.turns], k)

    def noise(self, draft: Draft) -> Noise:
        """What the turns say."""
        k = draft.tokens.shape[1]
        last = torch.tensor([turn.last for turn in self.turns], dtype=torch.float64)
        accept = _table([turn.accept for turn in self.turns], k)
        return Noise(accept, last[:, None].expand(-1, k + 1))


def _table(rows: Sequence[Sequence[float]], width: int) -> Tensor:
    padded = [[*row[:width], *[0.5] * (width - len(row))] for row in rows]
    return torch.tensor(padded, dtype=torch.float64).reshape(len(rows), width)
