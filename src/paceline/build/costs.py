"""What passes cost here and now, for drafts that grow as far as they pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.protocols import Model
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.grow import Costs
from paceline.drafters.sampling import Grows

if TYPE_CHECKING:
    from paceline.build.drafts import MakesPart

_TARGET = (1, 2, 3, 4, 5, 6, 8, 11, 16)  # tokens of a pass that are timed; between them, a line
_DRAFT = (1, 2, 4, 8)
MAX_TIMED = _TARGET[-1] - 1  # drafted tokens of the largest tree that is known to pay
_TURNS = 3
_CONTEXT = 64
_SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 25, 41)
_DRAFTED = 4
_BUDGET = 1.5
_MOST_TURNS = 9


def measure(model: Model, vocab: int, over: Callable[[CachedModel], Grows]) -> Costs:
    """Times passes of `model` over up to 16 tokens, and passes of the draft that `over` builds for
    a target over up to 8, behind a short context. Takes the time of about a hundred passes.

    All sizes take turns and each counts with its median: another program's seconds hit all alike.
    """
    target = CachedModel(model, 1, 2 * _CONTEXT, vocab)
    draft = over(target)
    seqs = Sequences(1, 2 * _CONTEXT)
    seqs.admit(0, [i % vocab for i in range(1, _CONTEXT)], SamplingParams())
    score = target.best if target.ranks else target.score
    passes: dict[int, list[float]] = {n: [] for n in _TARGET}
    levels: dict[int, list[float]] = {w: [] for w in _DRAFT}
    with torch.no_grad():
        for turn in range(_TURNS + 1):  # the first one warms up
            for n in _TARGET:
                chain = Draft(torch.zeros(1, n - 1, dtype=torch.int64), [n - 1])
                taken = _timed(lambda chain=chain: score(seqs, chain))
                passes[n] += [taken] if turn else []
            for w in _DRAFT:
                draft.read(seqs)
                tokens = torch.arange(w)[None] % vocab
                parents = torch.full((1, w), -1)
                taken = _timed(lambda t=tokens, p=parents: draft.level(seqs, t, p))
                levels[w] += [taken] if turn else []
    t1 = median(passes[1])
    return Costs(
        _curve(_TARGET, [median(passes[n]) / t1 for n in _TARGET]),
        _curve(_DRAFT, [median(levels[w]) / t1 for w in _DRAFT]),
    )


def time_rounds(
    model: Model, vocab: int, parts: Sequence[MakesPart], batch: int, most: int
) -> tuple[list[float], list[float]]:
    """The seconds of a pass of `model` over `batch` rows of 1..`most` tokens each, behind a short
    context, and what a step of each drafter costs in units of the first of them.

    All take turns, for about _BUDGET seconds, and each counts with its median.
    """
    target = CachedModel(model, batch, 2 * _CONTEXT, vocab)
    drafters = [make(batch, 2 * _CONTEXT, target) for make in parts]
    seqs = Sequences(batch, 2 * _CONTEXT)
    for b in range(batch):
        seqs.admit(b, [i % vocab for i in range(1, _CONTEXT)], SamplingParams())
    score = target.best if target.ranks else target.score
    sizes = [n for n in _SIZES if n < most] + [most]
    passes: dict[int, list[float]] = {n: [] for n in sizes}
    steps: list[list[float]] = [[] for _ in drafters]
    began, turn = perf_counter(), 0
    with torch.no_grad():
        while turn < _TURNS or (perf_counter() - began < _BUDGET and turn < _MOST_TURNS):
            for n in sizes:
                chain = Draft(torch.zeros(batch, n - 1, dtype=torch.int64), [n - 1] * batch)
                taken = _timed(lambda chain=chain: score(seqs, chain))
                passes[n] += [taken] if turn else []
            for drafter, found in zip(drafters, steps, strict=True):
                target.sync(seqs)
                drafter.propose(seqs, [1] * batch)  # what is unread is no part of a step
                start = perf_counter()
                draft = drafter.propose(seqs, [_DRAFTED] * batch)
                taken = perf_counter() - start
                looked = draft.lengths if draft.sure is None else map(len, draft.sure)
                found += [taken / max(1, *looked)] if turn else []
            turn += 1
    t1 = median(passes[1])
    curve = _curve(sizes, [median(passes[n]) for n in sizes])
    return curve, [median(found) / t1 for found in steps]


def _timed(call: Callable[[], object]) -> float:
    began = perf_counter()
    call()
    return perf_counter() - began


def _curve(sizes: Sequence[int], values: Sequence[float]) -> list[float]:
    """The value at every size from 1 to the last."""
    found: list[float] = []
    for i, (low, high) in enumerate(pairwise(sizes)):
        rise = (values[i + 1] - values[i]) / (high - low)
        found += [values[i] + rise * (n - low) for n in range(low, high)]
    return [*found, values[-1]]
