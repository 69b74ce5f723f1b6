"""A drafter's own health, which lossless output would hide, and the caches of both models."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fakes import Accepts, HashLM, Scripted, Windows, drive, sequences
from naive import fresh_logits, fresh_pass
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.verifiers.rejection import Rejection


class Watch:
    """A drafter around a `ModelDrafter` at temperature 1: each q must be that of a fresh, uncached
    pass over the committed and drafted tokens."""

    def __init__(self, drafter: ModelDrafter, model: HashLM) -> None:
        self.drafter, self.model, self.watched = drafter, model, 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        draft = self.drafter.propose(seqs, k)
        for b, n in enumerate(draft.lengths):
            if n:
                ids = seqs.committed(b).tolist() + draft.tokens[b, : n - 1].tolist()
                right = fresh_pass(self.model, ids)[-n:].softmax(-1)
                assert float((draft.q[b, :n] - right).abs().max()) <= 1e-5
                self.watched += n
        return draft


def draft_cache_is_true(counts: Sequence[int] = (0, 4, 1, 3, 4, 2, 0), seed: int = 0) -> None:
    """Whatever was accepted, whoever drafted in between and whatever K was, the draft model reads
    exactly the committed tokens. Three ids only, so that stale entries often look right."""
    draft_model, target_model = HashLM(3, seed=seed), HashLM(3, seed=seed + 50)
    length = 128
    cached = CachedModel(draft_model, 3, length)
    watch = Watch(ModelDrafter(cached, temperature=1.0), draft_model)
    now_and_then = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 5 == 0 else [])
    for turn, prompts in enumerate([[[0, 1], [2] * 9, [1, 2, 0]], [[1], [2] * 5 + [0], [0] * 30]]):
        seqs = sequences(prompts, SamplingParams(max_tokens=70, temperature=1, seed=3), (), length)
        loop = Loop(
            CachedModel(target_model, 3, length),
            FirstOf(now_and_then, watch),
            Accepts(*counts),
            Windows(4, 4, 0, 1, 4, 0, 0, 2),
        )
        drive(loop, seqs)
        assert watch.watched > 60 * (turn + 1)


def perfect_drafter_is_accepted(temperature: float, tokens: int = 60) -> None:
    """The target's own weights as drafter: all accepted, also where another one drafts now and
    then, K is 0 now and then, and a slot is used again."""
    model, length = HashLM(3, seed=9), 300
    cached, scored = CachedModel(model, 2, length), CachedModel(model, 2, length)
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    for prompts in ([[1, 2], [0] * 20], [[2] * 11, [1]], [[2] * 11 + [0, 0], [1, 1]]):
        params = SamplingParams(max_tokens=tokens, temperature=temperature, seed=1)
        seqs = sequences(prompts, params, (), length)
        given = list(seqs.lengths)
        drafter = FirstOf(silly, ModelDrafter(cached))
        done = drive(Loop(scored, drafter, Rejection(), Windows(4, 0, 8, 1)), seqs)
        drafted = 0
        for b, rows in enumerate(done.emitted):
            at = given[b]
            for row in rows:
                if at % 7:
                    assert row.accepted == row.drafted
                    drafted += row.drafted
                at += len(row.tokens)
        assert drafted > 0.4 * tokens


class Interrupted(HashLM):
    """Writes its cache, then is interrupted, whenever `armed`."""

    armed = False

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        if self.armed:
            self.armed = False
            raise KeyboardInterrupt
        return output


def interrupted_reads_are_forgotten() -> None:
    """A pass that was cut short leaves nothing that a later request would trust."""
    model = Interrupted(5, seed=1)
    cached = CachedModel(model, 1, 32)
    params = SamplingParams()
    first, second = sequences([[1, 2, 3, 4]], params), sequences([[1, 4, 4, 4]], params)
    right = cached.read(first)
    model.armed = True
    try:
        cached.read(second)
    except KeyboardInterrupt:
        assert cached.seen(first, 0) <= 1
    assert torch.equal(cached.read(first), right)
    assert cached.read(second)[0].tolist() == fresh_logits(model, [1, 4, 4, 4])


def lookup_copies_what_followed() -> None:
    """The longest n-gram wins, then the latest place that K tokens follow."""
    cases = [
        (3, [1, 2, 3, 9, 1, 2, 3], 3, [9, 1, 2]),  # a trigram
        (3, [5, 3, 8, 1, 2, 3, 9, 4, 3, 7, 1, 2, 3], 2, [9, 4]),  # not the later single
        (3, [7, 3, 1, 6, 3, 2, 3], 1, [2]),  # a single one: its latest place
        (1, [7, 3, 1, 6, 3, 2, 3], 4, [1, 6, 3, 2]),  # an earlier place that 4 tokens follow
        (3, [7, 3, 1, 6, 3, 2, 3], 4, [2]),  # after a match of one token, one
        (3, [1, 2, 3, 9, 8, 5, 2, 3], 4, [9, 8]),  # after two, two
        (2, [1, 2, 3, 9, 8, 5, 2, 3], 4, [9, 8, 5, 2]),  # two are all that was looked for
        (1, [4, 4, 4], 5, [4, 4]),  # none has 5: the one that most follow
        (3, [4, 4, 4], 5, [4]),  # the longer n-gram first, though fewer follow
        (3, [1, 2, 3, 4], 4, []),
        (3, [1], 4, []),
        (3, [1, 2, 1], 0, []),
    ]
    for longest, ids, k, right in cases:
        draft = Lookup(longest).propose(sequences([ids], SamplingParams()), [k])
        assert draft.tokens[0, : draft.lengths[0]].tolist() == right
        assert draft.lengths == [len(right)]


def merged_drafts_keep_their_q() -> None:
    """In one batch a looked-up row is a point mass and a drawn row has its model's q."""
    model = HashLM(6, seed=1)
    params = SamplingParams(temperature=1, seed=1)
    seqs = sequences([[1, 2, 3, 1, 2], [4, 5]], params)
    drawn = ModelDrafter(CachedModel(model, 2, 256))
    alone = drawn.propose(seqs, [3, 3])
    draft = FirstOf(Lookup(2), drawn).propose(seqs, [3, 3])
    assert draft.lengths == [3, 3]
    assert draft.tokens.tolist() == [[3, 1, 2], alone.tokens[1].tolist()]
    assert torch.equal(draft.q[0], torch.eye(6)[[3, 1, 2]])
    assert torch.equal(draft.q[1], alone.q[1])
