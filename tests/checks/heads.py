"""A head's own health: it reads what the target knows of the committed tokens, and stops fairly."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fake_heads import HashHead, TappedLM
from fakes import Accepts, Scripted, Windows, drive, sequences
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.head import HeadDrafter

IDS = [0, 1, 2]
SAMPLED = SamplingParams(temperature=1, seed=3, max_tokens=70)


class Watch:
    """A drafter around a `HeadDrafter`: each q must be that of the head computed from nothing, over
    the committed tokens' features and its own states behind them."""

    def __init__(self, drafter: HeadDrafter, head: HashHead) -> None:
        self.drafter, self.head, self.watched = drafter, head, 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        draft = self.drafter.propose(seqs, k)
        for b, n in enumerate(draft.lengths):
            if n:
                ids = seqs.committed(b).tolist()
                right = self.head.fresh(ids, draft.tokens[b, : n - 1].tolist()).softmax(-1)
                q = draft.q[b, :n]
                assert float((q[:, self.head.ids] - right).abs().max()) <= 1e-6
                assert float((q.sum(-1) - 1).abs().max()) <= 1e-5
                self.watched += n
        return draft


def features_are_the_committed_ones(counts: Sequence[int] = (0, 4, 1, 3, 4, 2, 0)) -> None:
    """Whatever was accepted, whoever drafted in between, whatever K was and whoever had the slot
    before. Three ids only, so that stale entries often look right."""
    length, head = 128, HashHead(IDS, seed=len(counts))
    target = CachedModel(TappedLM(3, seed=7), 3, length)
    watch = Watch(HeadDrafter(target, head), head)
    now_and_then = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 5 == 0 else [])
    for turn, prompts in enumerate([[[0, 1], [2] * 9, [1, 2, 0]], [[1], [2] * 5 + [0], [0] * 30]]):
        seqs = sequences(prompts, SAMPLED, (), length)
        windows = Windows(4, 4, 0, 1, 4, 0, 0, 2)
        loop = Loop(target, FirstOf(now_and_then, watch), Accepts(*counts), windows)
        drive(loop, seqs)
        assert watch.watched > 60 * (turn + 1)


def doubt_ends_a_draft_fairly(temperature: float = 1.0) -> None:
    """The draft is the one that never stops, cut where the product of the largest probabilities,
    the next one's included, falls below: so whether a token is dropped never depends on it."""
    batch, k, least = 60, 6, 0.3
    params = [SamplingParams(temperature=temperature, seed=seed) for seed in range(batch)]
    prompts = [[b % 3, b % 2, b // 6 % 3, 1] for b in range(batch)]
    drafts = []
    for confidence in (0.0, least):
        target = CachedModel(TappedLM(3), batch, 64)
        drafter = HeadDrafter(target, HashHead(IDS, confidence=confidence))
        drafts.append(drafter.propose(sequences(prompts, params), [k] * batch))
    whole, cut = drafts
    assert whole.lengths == [k] * batch
    assert len({*cut.lengths}) > 3
    for b, n in enumerate(cut.lengths):
        assert cut.tokens[b, :n].tolist() == whole.tokens[b, :n].tolist()
        drafted = whole.tokens[b].tolist()
        sure = HashHead(IDS).fresh(prompts[b], drafted[:-1]).softmax(-1).amax(-1).cumprod(0)
        assert n == int((sure >= least).sum())
        if cut.q is not None:
            assert torch.equal(cut.q[b, :n], whole.q[b, :n])
