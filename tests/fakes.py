"""Small models and drafters with known answers. None of them needs a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Drafter, Verifier
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Emitted, Output, Round
from paceline.drafters.model import ModelDrafter
from paceline.drafters.none import NoDraft
from paceline.verifiers.rejection import Rejection


class TableModel:
    """Logits from a table [rows, V]: by the last token (`by="token"`) or by position (`"position"`,
    the last row going on for ever)."""

    def __init__(self, logits: Sequence[Sequence[float]], by: str = "position") -> None:
        self.table = torch.tensor(logits, dtype=torch.float32)
        self.by = by
        self.vocab_size = self.table.shape[1]
        self.context = 1 << 20
        self.device = torch.device("cpu")

    @classmethod
    def of_probs(cls, *rows: Sequence[float]) -> TableModel:
        """By position, from probabilities."""
        return cls(torch.tensor(rows).log().tolist())

    def new_cache(self, batch: int, length: int) -> None:
        return None

    def forward(
        self, tokens: Tensor, at: Sequence[int], cache: None, *, row: int = 0, logits: bool = True
    ) -> Output:
        if self.by == "token":
            return Output(self.table[tokens.clamp(max=len(self.table) - 1)])
        places = torch.tensor(at)[:, None] + torch.arange(tokens.shape[1])
        return Output(self.table[places.clamp(max=len(self.table) - 1)])


class HashLM:
    """A model whose logits depend on every token of the prefix, through its cache.

    Each cache entry is a hash of the entry before it and the token read, so a stale or misplaced
    entry changes everything that follows. `jitter` mixes in logits of another seed: a drafter that
    agrees with the plain one more or less often. `reads` counts the tokens read.
    """

    states = 997

    def __init__(
        self, vocab: int = 11, seed: int = 0, jitter: float = 0.0, sharpness: float = 2.0
    ) -> None:
        make = torch.Generator().manual_seed(seed)
        self.table = torch.randn(self.states, vocab, generator=make) * sharpness
        other = torch.Generator().manual_seed(seed + 1000)
        self.table += jitter * torch.randn(self.states, vocab, generator=other) * sharpness
        self.vocab_size = vocab
        self.context = 1 << 20
        self.device = torch.device("cpu")
        self.reads = 0

    def new_cache(self, batch: int, length: int) -> Tensor:
        return torch.full((batch, length + 1), 7, dtype=torch.int64)

    def forward(
        self, tokens: Tensor, at: Sequence[int], cache: Tensor, *, row: int = 0, logits: bool = True
    ) -> Output:
        rows = torch.arange(len(at)) + row
        place = torch.tensor(at)
        assert int(place.max()) + tokens.shape[1] < cache.shape[1], "past the end of the cache"
        out: list[Tensor] = []
        for t in range(tokens.shape[1]):
            before = torch.where(place + t == 0, 1, cache[rows, place + t])
            state = (before * 31 + tokens[:, t] * 17 + 3) % 1000003
            cache[rows, place + t + 1] = state
            out.append(self.table[state % self.states])
        self.reads += tokens.numel()
        return Output(torch.stack(out, 1))


class Scripted:
    """Drafts what `script(ids, k)` says follows the committed `ids` of each row."""

    def __init__(self, script: Callable[[list[int], int], list[int]]) -> None:
        self.script = script

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        rows = [
            self.script(seqs.committed(b).tolist(), k[b])[: k[b]] if seqs.running[b] else []
            for b in range(seqs.batch)
        ]
        lengths = [len(row) for row in rows]
        width = max(lengths)
        return Draft(
            torch.tensor([row + [0] * (width - len(row)) for row in rows])
            .reshape(seqs.batch, width)
            .long(),
            lengths,
        )


def liar(truth: list[int], wrong_at: int, vocab: int) -> Scripted:
    """Drafts the tokens of `truth` (prompt and output), wrong at one offset of every block."""

    def script(ids: list[int], k: int) -> list[int]:
        block = truth[len(ids) : len(ids) + k]
        return [(t + 1) % vocab if i == wrong_at else t for i, t in enumerate(block)]

    return Scripted(script)


def oracle(model: HashLM, seqs: Sequences) -> ModelDrafter:
    """A perfect drafter: the target's own weights behind a cache of its own."""
    return ModelDrafter(CachedModel(model, seqs.batch, seqs.tokens.shape[1]))


def run(
    model: object,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
    drafter: Drafter | Callable[[Sequences], Drafter] | None = None,
    k: int = 4,
    eos: Sequence[int] = (),
    verifier: Verifier | None = None,
    length: int = 256,
    vocab: int | None = None,
) -> tuple[list[list[int]], list[list[Emitted]], list[Round]]:
    """Run requests side by side to their end: new ids, emitted and rounds."""
    seqs = Sequences(len(prompts), length)
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    for b, ids in enumerate(prompts):
        seqs.admit(b, ids, each[b], eos)
    if drafter is None:
        drafter = NoDraft()
    elif not hasattr(drafter, "propose"):
        drafter = drafter(seqs)  # type: ignore[operator]
    target = CachedModel(model, len(prompts), length, vocab)  # type: ignore[arg-type]
    loop = Loop(target, drafter, verifier or Rejection(), Fixed(k))  # type: ignore[arg-type]
    emitted: list[list[Emitted]] = [[] for _ in prompts]
    rounds: list[Round] = []
    while any(seqs.running):
        rounds.append(loop.step(seqs))
        for b, row in enumerate(rounds[-1].emitted):
            if row is not None:
                emitted[b].append(row)
    new = [seqs.committed(b)[len(ids) :].tolist() for b, ids in enumerate(prompts)]
    return new, emitted, rounds
