"""What passes cost here and now, for drafts that grow as far as they pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import median
from time import perf_counter

import torch

from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.protocols import Model
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.grow import Costs
from paceline.drafters.sampling import Grows

_TARGET = (1, 2, 3, 4, 5, 6, 8, 11, 16)  # tokens of a pass that are timed; between them, a line
_DRAFT = (1, 2, 4, 8)
_TURNS = 3
_CONTEXT = 64


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
