"""A drafter that keeps to a pace: whom it asks, what it keeps, and what it says of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from fakes import HashLM, sequences
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.paced import Paced


@dataclass
class Told:
    """A pace that does as it is told, and keeps what it was asked."""

    most: list[int]
    keep: list[int] | None = None
    steps: list[tuple[list[int], int, list[list[float]]]] = field(default_factory=list)
    end: int = 99  # of drafted tokens

    def limits(self, k):
        return [min(a, b) for a, b in zip(k, self.most, strict=True)]

    def measure(self, logits):
        return logits.softmax(-1).amax(-1)

    def further(self, rows, drafted, sure):
        self.steps.append((list(rows), drafted, [list(each) for each in sure]))
        return [b for b in rows if drafted < self.end]

    def lengths(self, rows, sure, lengths):
        return lengths if self.keep is None else self.keep


LOOP = [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]


def test_only_rows_with_a_limit_are_asked_for() -> None:
    seqs = sequences([LOOP, LOOP, LOOP], SamplingParams(max_tokens=20), length=64)
    draft = Paced(Lookup(3), Told([0, 2, 5]), 4).propose(seqs, [3, 3, 3])
    assert list(draft.lengths) == [0, 2, 3]
    assert draft.by == [-1, 4, 4]
    assert draft.tokens[2].tolist() == [3, 4, 1]
    seqs.finish(2)
    assert list(Paced(Lookup(3), Told([5, 5, 5])).propose(seqs, [3, 0, 3]).lengths) == [3, 0, 0]
    assert list(Paced(Lookup(3), Told([0, 0, 0])).propose(seqs, [3, 3, 3]).lengths) == [0, 0, 0]


def test_a_draft_that_was_not_drawn_may_be_cut_and_one_that_was_may_not() -> None:
    seqs = sequences([LOOP, LOOP], SamplingParams(max_tokens=20), length=64)
    cut = Paced(Lookup(3), Told([4, 4], [1, 2])).propose(seqs, [4, 4])
    assert (list(cut.lengths), cut.tokens.tolist()) == ([1, 2], [[3, 4], [3, 4]])
    drawn = sequences([LOOP, LOOP], SamplingParams(max_tokens=20, temperature=1), length=64)
    pace = Told([4, 4], [1, 2])
    made = ModelDrafter(CachedModel(HashLM(6), 2, 64), pace=pace)
    kept = Paced(made, pace).propose(drawn, [4, 4])
    assert kept.q is not None
    assert list(kept.lengths) == [4, 4]


def test_a_chain_asks_before_it_computes_and_before_it_draws() -> None:
    seqs = sequences([LOOP, LOOP], SamplingParams(max_tokens=20), length=64)
    pace = Told([4, 2], end=3)
    model = HashLM(6)
    draft = ModelDrafter(CachedModel(model, 2, 64), pace=pace).propose(seqs, [4, 2])
    assert list(draft.lengths) == [3, 2]
    asked = [(rows, drafted, len(sure[0])) for rows, drafted, sure in pace.steps]
    assert asked == [
        ([0, 1], 0, 0), ([0, 1], 0, 1),
        ([0, 1], 1, 1), ([0, 1], 1, 2),
        ([0], 2, 2), ([0], 2, 3),
        ([0], 3, 3),
    ]  # fmt: skip
    assert draft.sure is not None
    assert [len(each) for each in draft.sure] == [3, 2]
    first = CachedModel(model, 2, 64).read(seqs).softmax(-1).amax(-1)
    assert [each[0] for each in draft.sure] == first.tolist()


def test_nobody_is_asked_for_when_all_drafts_have_ended() -> None:
    class Stops(Told):
        def further(self, rows, drafted, sure):
            super().further(rows, drafted, sure)
            return [b for b in rows if b != 1 or drafted < 1]

    seqs = sequences([LOOP, LOOP], SamplingParams(max_tokens=20), length=64)
    pace = Stops([2, 4])
    draft = ModelDrafter(CachedModel(HashLM(6), 2, 64), pace=pace).propose(seqs, [2, 4])
    assert list(draft.lengths) == [2, 1]
    assert all(rows for rows, _, _ in pace.steps)


def test_the_second_drafter_is_asked_where_the_first_is_turned_down() -> None:
    seqs = sequences([LOOP, LOOP, [1, 2, 3]], SamplingParams(max_tokens=20), length=64)
    first, second = Told([4, 4, 4], [2, 0, 0]), Told([4, 1, 4])
    model = ModelDrafter(CachedModel(HashLM(6), 3, 64), pace=second)
    draft = FirstOf(Paced(Lookup(3), first), Paced(model, second, 1)).propose(seqs, [4, 4, 4])
    assert list(draft.lengths) == [2, 1, 4]
    assert draft.by == [0, 1, 1]
    assert draft.sure is not None
    assert [len(each) for each in draft.sure] == [4, 1, 4]  # what was cut was looked at, too


def test_where_nobody_proposes_it_is_the_last_who_was_asked() -> None:
    seqs = sequences([[1, 2, 3], [1, 2, 3]], SamplingParams(max_tokens=20), length=64)
    first, second = Told([4, 4]), Told([4, 0], end=0)
    model = ModelDrafter(CachedModel(HashLM(6), 2, 64), pace=second)
    draft = FirstOf(Paced(Lookup(3), first), Paced(model, second, 1)).propose(seqs, [4, 4])
    assert list(draft.lengths) == [0, 0]
    assert draft.by == [1, 0]


def test_a_drafter_that_says_nothing_of_itself_is_left_alone() -> None:
    class Mute:
        def propose(self, seqs, k):
            return Draft(torch.tensor([[1, 2, 3]]), [3])

    seqs = sequences([LOOP], SamplingParams(max_tokens=20), length=64)
    draft = Paced(Mute(), Told([4], [0])).propose(seqs, [4])
    assert list(draft.lengths) == [3]
