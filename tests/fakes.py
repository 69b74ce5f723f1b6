"""Small models and drafters with known answers. None of them needs a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.noise import Noise
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Drafter, Verifier
from paceline.core.sequences import Sequences
from paceline.core.target import Target
from paceline.core.tree import depths
from paceline.core.types import Draft, Emitted, Output, Round, Verdict
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
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: None,
        *,
        row: int = 0,
        logits: bool = True,
        parents: Tensor | None = None,
    ) -> Output:
        if self.by == "token":
            return Output(self.table[tokens.clamp(max=len(self.table) - 1)])
        steps = torch.arange(count := tokens.shape[1])
        if parents is not None:
            whole = torch.tensor([depths(nodes) for nodes in parents.tolist()])
            steps = whole[:, -count:] - (parents.shape[1] - count)
        places = torch.tensor(at)[:, None] + steps
        return Output(self.table[places.clamp(max=len(self.table) - 1)])

    def move(self, cache: None, row: int, source: Sequence[int], start: int) -> None:
        """There is nothing to move."""


class HashLM:
    """A model whose logits depend on every token of the prefix, through its cache.

    Each cache entry is a hash of the entry before it (in a tree, its parent's) and the token read,
    so a stale or misplaced entry changes everything that follows. `jitter` mixes in logits of
    another seed: a drafter that agrees with the plain one more or less often. `reads` counts the
    tokens read, padding too.
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
        return torch.full((batch, length + 1), -1, dtype=torch.int64)

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
        rows = torch.arange(len(at)) + row
        place, count = torch.tensor(at), tokens.shape[1]
        assert int(place.max()) + count < cache.shape[1], "past the end of the cache"
        nodes = torch.arange(-1, count - 1).expand(len(at), -1) if parents is None else parents
        read = nodes.shape[1] - count  # in earlier passes
        assert bool((nodes < torch.arange(nodes.shape[1])).all()), "a node before its parent"
        out: list[Tensor] = []
        for t in range(count):
            parent = place - read + nodes[:, read + t] + 1
            before = torch.where(parent == 0, 1, cache[rows, parent])
            assert bool((before >= 0).all()), "a position was left out"
            state = (before * 31 + tokens[:, t] * 17 + 3) % 1000003
            cache[rows, place + t + 1] = state
            out.append(self.table[state % self.states])
        self.reads += tokens.numel()
        return Output(torch.stack(out, 1))

    def move(self, cache: Tensor, row: int, source: Sequence[int], start: int) -> None:
        assert list(source) == sorted(source)
        for place, entry in enumerate(source, start + 1):
            assert entry + 1 >= place, "an entry that another one has taken the place of"
            cache[row, place] = cache[row, entry + 1]


class Faulty:
    """`model`, but its logits behind position `start` and all later ones of `row` (None: of every
    row) are `value`."""

    def __init__(
        self, model: HashLM, row: int | None = None, start: int = 0, value: float = torch.nan
    ) -> None:
        self.model, self.row, self.start, self.value = model, row, start, value
        self.vocab_size, self.context, self.device = model.vocab_size, model.context, model.device

    def new_cache(self, batch: int, length: int) -> Tensor:
        return self.model.new_cache(batch, length)

    def forward(
        self, tokens: Tensor, at: Sequence[int], cache: Tensor, *, row: int = 0, logits: bool = True
    ) -> Output:
        scores = self.model.forward(tokens, at, cache, row=row, logits=logits).logits.clone()
        for b, first in enumerate(at):
            if self.row in (None, row + b):
                scores[b, max(0, self.start - first) :] = self.value
        return Output(scores)


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
    """Drafts the tokens of `truth` (prompt and output), wrong at one offset of every block (-1: at
    none)."""
    return liars([truth], wrong_at, vocab)


def liars(truths: Sequence[list[int]], wrong_at: int, vocab: int, beyond: int = 0) -> Scripted:
    """A liar for each row; it knows the rows apart by what is committed, and drafts nothing for one
    that it does not know. Behind the end of a truth it drafts up to `beyond` zeros."""

    def script(ids: list[int], k: int) -> list[int]:
        truth = next((t for t in truths if t[: len(ids)] == ids), [])
        block = (truth + [0] * beyond)[len(ids) : len(ids) + k]
        return [(t + 1) % vocab if i == wrong_at else t for i, t in enumerate(block)]

    return Scripted(script)


def oracle(model: HashLM, seqs: Sequences) -> ModelDrafter:
    """A perfect drafter: the target's own weights behind a cache of its own."""
    return ModelDrafter(CachedModel(model, seqs.batch, seqs.tokens.shape[1]))


def model_drafter(model, temperature: float | None = None, vocab: int | None = None):
    """Makes a drafter for given sequences out of `model`."""
    return lambda seqs: ModelDrafter(
        CachedModel(model, seqs.batch, seqs.tokens.shape[1], vocab), temperature
    )


class Accepts:
    """A verifier that accepts as many drafted tokens as it is told, by the row and round in turn,
    whatever p says; then the likeliest token of p."""

    lossless = False

    def __init__(self, *counts: int) -> None:
        self.counts, self.calls = counts, 0

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        turn = [self.counts[(self.calls + b) % len(self.counts)] for b in range(len(p.top))]
        n = torch.minimum(torch.tensor(turn), torch.tensor(draft.lengths))
        self.calls += 1
        top = p.top.clone()
        if p.dense is not None:
            top[list(p.sampled)] = p.dense.argmax(-1)
        tokens = torch.cat([draft.tokens, top[:, :1]], 1)
        return Verdict(tokens.scatter(1, n[:, None], top.gather(1, n[:, None])), n)


class Careless(Fixed):
    """K tokens a round, also where a row has no room for them."""

    def window(self, seqs: Sequences) -> list[int]:
        return [self.k if run else 0 for run in seqs.running]


class Windows(Fixed):
    """K by the row and round in turn."""

    def __init__(self, *windows: int) -> None:
        super().__init__(max(windows))
        self.windows, self.calls = windows, 0

    def window(self, seqs: Sequences) -> list[int]:
        self.calls += 1
        turn = [self.windows[(self.calls + b) % len(self.windows)] for b in range(seqs.batch)]
        return [min(k, most) for k, most in zip(turn, super().window(seqs), strict=True)]


class Result(NamedTuple):
    """The new ids of each row, what each of its rounds emitted, and the rounds."""

    ids: list[list[int]]
    emitted: list[list[Emitted]]
    rounds: list[Round]

    def finish(self) -> list[str | None]:
        return [rows[-1].finish for rows in self.emitted]


def sequences(
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
    eos: Sequence[int] = (),
    length: int = 256,
) -> Sequences:
    """One row for each prompt, admitted."""
    seqs = Sequences(len(prompts), length)
    each = [params] * len(prompts) if isinstance(params, SamplingParams) else params
    for b, ids in enumerate(prompts):
        seqs.admit(b, ids, each[b], eos)
    return seqs


def drive(loop: Loop, seqs: Sequences) -> Result:
    """Step until no row runs."""
    emitted: list[list[Emitted]] = [[] for _ in range(seqs.batch)]
    rounds: list[Round] = []
    while any(seqs.running):
        rounds.append(loop.step(seqs))
        for b, row in enumerate(rounds[-1].emitted):
            if row is not None:
                emitted[b].append(row)
    new = [seqs.committed(b)[given:].tolist() for b, given in enumerate(seqs.prompts)]
    return Result(new, emitted, rounds)


def run(
    model: object,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams | Sequence[SamplingParams],
    drafter: Drafter | Callable[[Sequences], Drafter] | None = None,
    k: int | Controller = 4,
    eos: Sequence[int] = (),
    verifier: Verifier | None = None,
    length: int = 256,
    vocab: int | None = None,
) -> Result:
    """Run requests side by side to their end."""
    seqs = sequences(prompts, params, eos, length)
    if drafter is None:
        drafter = NoDraft()
    elif not hasattr(drafter, "propose"):
        drafter = drafter(seqs)  # type: ignore[operator]
    target = CachedModel(model, len(prompts), length, vocab)  # type: ignore[arg-type]
    controller = Fixed(k) if isinstance(k, int) else k
    return drive(Loop(target, drafter, verifier or Rejection(), controller), seqs)  # type: ignore[arg-type]
