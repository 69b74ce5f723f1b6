"""Suffix drafting: what it drafts, held against a naive search, and its health."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checks.trees import is_a_tree, output_is_the_targets_own, paths
from fakes import Accepts, HashLM, TableModel, Windows, drive, run, sequences
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters import suffix_index
from paceline.drafters.suffix import Suffix, likeliest
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.verifiers.rejection import Rejection

IDS = st.lists(st.integers(0, 3), min_size=1, max_size=60)
OUTPUTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), max_size=4)


def drafted(suffix: Suffix, ids: list[int], k: int) -> list[int]:
    draft = suffix.propose(sequences([ids], SamplingParams()), [k])
    assert draft.q is None
    return draft.tokens[0, : draft.lengths[0]].tolist()


def naive(
    ids: list[int], k: int, depth: int = 24, factor: float = 1.0, outputs: Sequence[list[int]] = ()
) -> list[int]:
    """The same by comparing every place with every length, longest first."""
    for m in range(min(depth, len(ids)), 0, -1):
        last, most = ids[-m:], min(k, int(factor * m))
        # what follows each place; in the request, so much longer by what is drafted already
        own = [(ids, at) for at in range(m, len(ids)) if ids[at - m : at] == last]
        there = [(x, at) for x in outputs for at in range(m, len(x) + 1) if x[at - m : at] == last]
        if own or there:
            return elected(own or there, ids, most)
    return []


def elected(places: list[tuple[list[int], int]], ids: list[int], most: int) -> list[int]:
    made: list[int] = []
    alive = places
    while len(made) < most:
        votes: list[int] = []
        voters: list[tuple[list[int], int]] = []
        for text, at in alive:
            text_now = ids + made if text is ids else text
            if at + len(made) < len(text_now):
                votes.append(text_now[at + len(made)])
                voters.append((text, at))
        if not votes:
            break
        token = max(votes, key=lambda t: (votes.count(t), len(votes) - votes[::-1].index(t)))
        alive = [voter for voter, vote in zip(voters, votes, strict=True) if vote == token]
        if len(alive) / len(places) < 0.1:
            break
        made.append(token)
    return made


FREQUENT = [1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2]  # 3 twice, then 4 once
TIED = [1, 2, 3, 9, 1, 2, 4, 8, 1, 2]
LONG = [1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3]
NESTED = [1, 2, 3, 7, 5, 3, 8, 6, 3, 8, 1, 2, 3]


@pytest.mark.parametrize(
    ("ids", "k", "options", "right"),
    [
        (FREQUENT, 4, {}, [3, 1]),  # the latest would be 4
        (TIED, 4, {}, [4, 8]),  # once each: the latest
        (LONG, 8, {}, [4, 5, 6]),  # as many as match
        (LONG, 2, {}, [4, 5]),
        (LONG, 8, {"factor": 2.0}, [4, 5, 6, 7, 9, 1]),
        (LONG, 8, {"factor": 0.5}, [4]),
        (NESTED, 4, {}, [7, 5, 3]),  # 1 2 3, though 3 8 is more frequent
        (NESTED, 4, {"depth": 1}, [8]),
        (NESTED, 4, {"depth": 2}, [7, 5]),
        ([4, 4, 4], 5, {}, [4, 4]),  # runs into the draft
        ([5, 6, 5, 6, 5, 6], 8, {}, [5, 6, 5, 6]),
        ([1, 2, 3, 4], 4, {}, []),
        ([1], 4, {}, []),
        ([1, 2, 1], 0, {}, []),
    ],
)
def test_what_is_drafted(ids: list[int], k: int, options: dict, right: list[int]) -> None:
    assert drafted(Suffix(**options), ids, k) == right


@pytest.mark.parametrize(
    ("others", "right"), [(7, [5, 6, 12]), (8, [5, 6]), (26, [5, 6]), (27, [5, 6]), (28, [])]
)
def test_stops_where_the_path_is_less_likely_than_a_tenth(others: int, right: list[int]) -> None:
    """0 5 6 stands three times among 3 + `others` places of 0, and goes on in three ways: exactly
    a tenth is enough, of ten places as of thirty."""
    ids = [0, 5, 6, 10, 0, 5, 6, 11, 0, 5, 6, 12]
    ids = [t for i in range(others) for t in (0, 100 + i)] + ids + [99, 0]
    assert drafted(Suffix(factor=3.0), ids, 8) == right


def test_ties_are_named_latest_first() -> None:
    assert likeliest(np.array([3, 5, 3, 5, 7])) == [5, 3]
    assert likeliest(np.array([7] * 100)) == [7]
    assert likeliest(np.array([7] * 99 + [8])) == [7]
    assert likeliest(np.array([-1, -1, 2])) == [2]
    assert likeliest(np.array([-1] * 70)) == []


@settings(deadline=None, max_examples=80)
@given(IDS, st.sampled_from([1, 3, 24]), st.sampled_from([0, 64]), st.sampled_from([5, 4096]))
def test_the_scan_finds_the_longest_match_and_all_its_places(
    ids: list[int], depth: int, few: int, many: int
) -> None:
    """Among the latest places of the last token, where there are more than MANY."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_index, "_FEW", few)
        patch.setattr(suffix_index, "MANY", many)
        matched, places = suffix_index.scan(np.array(ids[:-1]), np.array(ids), depth)
    where = [at for at in range(len(ids) - 1) if ids[at] == ids[-1]][-many:]
    agree = dict.fromkeys(where, 1)
    for at, m in product(where, range(2, depth + 1)):
        if m <= at + 1 and ids[at + 1 - m : at + 1] == ids[-m:]:
            agree[at] = m
    assert matched == max(agree.values(), default=0)
    assert places.tolist() == [at for at in agree if agree[at] == matched]


@settings(deadline=None, max_examples=80)
@given(IDS, st.integers(0, 8), st.sampled_from([1, 2, 5, 24]), st.sampled_from([0.5, 1.0, 3.0]))
def test_agrees_with_a_naive_search(ids: list[int], k: int, depth: int, factor: float) -> None:
    assert drafted(Suffix(depth, factor=factor), ids, k) == naive(ids, k, depth, factor)


@settings(deadline=None, max_examples=80)
@given(IDS, OUTPUTS, st.sampled_from([1, 2, 24]), st.sampled_from([0.5, 1.0, 3.0]))
def test_agrees_with_a_naive_search_in_a_corpus(
    tmp_path_factory, ids: list[int], outputs: list[list[int]], depth: int, factor: float
) -> None:
    """The longer match wins; the request, if both are as long."""
    corpus = SuffixCorpus(tmp_path_factory.mktemp("corpus") / "file", "m", 4)
    for output in outputs:
        corpus.add(output)
    corpus.save()
    right = naive(ids, 6, depth, factor, outputs)
    assert drafted(Suffix(depth, corpus, factor), ids, 6) == right


class Fresh:
    """Each draft must be that of a drafter that never saw anything else."""

    def __init__(self, suffix: Suffix) -> None:
        self.suffix, self.drafted = suffix, 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        draft = self.suffix.propose(seqs, k)
        for b, n in enumerate(draft.lengths):
            if seqs.running[b]:
                ids = seqs.committed(b).tolist()
                assert draft.tokens[b, :n].tolist() == naive(ids, k[b])
            self.drafted += n
        return draft


def test_after_every_commit_as_if_it_were_new() -> None:
    """Accepted, rejected in part or not asked at all; then other prompts in the same rows."""
    watch = Fresh(Suffix())
    for prompts in ([[0, 1], [2] * 9, [1, 2, 0]], [[2], [1] * 4 + [0], [2, 2, 1, 0] * 4]):
        seqs = sequences(prompts, SamplingParams(max_tokens=50), (), 128)
        target = CachedModel(HashLM(3, seed=2), 3, 128)
        drive(Loop(target, watch, Accepts(0, 4, 1, 3, 2, 0), Windows(4, 0, 6, 1)), seqs)
    assert watch.drafted > 100


def test_a_loop_is_drafted_without_a_miss() -> None:
    """A target that goes round in circles of three; K is 0 now and then and slots are used again
    by prompts that have nothing in common with those before."""
    follow = [[8.0 * (t == 3 * (i // 3) + (i + 1) % 3) for t in range(9)] for i in range(9)]
    target = CachedModel(TableModel(follow, by="token"), 2, 200)
    suffix = Suffix()
    for prompts in ([[0, 1, 2] * 3, [5, 3, 4] * 3], [[8, 6, 7] * 3, [1, 2, 0] * 4]):
        seqs = sequences(prompts, SamplingParams(max_tokens=60), (), 200)
        done = drive(Loop(target, suffix, Rejection(), Windows(4, 0, 8, 1)), seqs)
        for rounds in done.emitted:
            assert all(round.accepted == round.drafted for round in rounds[:-1])
            assert sum(round.accepted for round in rounds) > 35


def test_an_earlier_output_is_drafted_again(tmp_path: Path) -> None:
    """The second time, nearly every token comes from the corpus, and the output is the same."""
    model, prompts = HashLM(200, seed=1), [[5, 6, 7], [8, 9]]
    params = SamplingParams(max_tokens=80)
    plain = run(model, prompts, params)
    corpus = SuffixCorpus(tmp_path / "file", "m", 200)
    suffix = Suffix(corpus=corpus)
    for ids in plain.ids:
        corpus.add(ids)
    unsaved = run(model, prompts, params, suffix, 6)
    assert len(unsaved.rounds) > 60  # not visible before it is saved
    corpus.save()
    again = run(model, prompts, params, suffix, 6)
    assert plain.ids == unsaved.ids == again.ids
    assert len(again.rounds) < 25


def tree(suffix: Suffix, ids: list[int], k: int) -> list[list[int]]:
    draft = suffix.propose(sequences([ids], SamplingParams()), [k])
    is_a_tree(draft, [k])
    assert draft.q is None
    assert draft.draws is None
    return paths(draft, 0)


THRICE = [1, 2, 3, 9, 1, 2, 4, 8, 1, 2, 5, 6, 1, 2]


@pytest.mark.parametrize(
    ("ids", "k", "options", "right"),
    [
        (TIED, 4, {}, [[4], [3], [4, 8], [3, 9]]),
        (TIED, 3, {}, [[4], [3], [4, 8]]),  # k tokens of all branches
        (TIED, 1, {}, [[4]]),
        (TIED, 4, {"factor": 0.5}, [[4], [3]]),  # no deeper than half of what matched
        (THRICE, 4, {}, [[5], [4], [3], [5, 6]]),
        (THRICE, 4, {"least": 0.4}, []),  # each is a third
        ([1, 2, 3, 1, 2, 3, 1, 2, 4, 1, 2], 4, {}, [[3], [3, 1]]),  # no tie: as without branches
        ([0, 1, 0, 2, 0, 1, 0, 2, 0], 8, {"depth": 1, "factor": 3.0},
         [[2], [1], [2, 0], [1, 0], [1, 0, 2], [2, 0, 2], [2, 0, 1]]),
    ],
)  # fmt: skip
def test_a_tie_is_followed_all_ways(ids: list[int], k: int, options: dict, right: list) -> None:
    found = tree(Suffix(branches=True, **options), ids, k)
    assert found == right, found


def test_each_branch_runs_into_itself() -> None:
    """The places near the end go on with the branch's own tokens, not with another's."""
    ids = [7, 5, 8, 5]
    assert tree(Suffix(factor=4.0, branches=True), ids, 6) == [[8], [8, 5], [8, 5, 8], [8, 5, 8, 5]]
    ids = [5, 1, 5, 2, 5]
    found = tree(Suffix(depth=1, factor=4.0, branches=True), ids, 8)
    assert [2, 5, 2, 5] in found
    assert [1, 5, 2] in found


@settings(deadline=None, max_examples=80)
@given(IDS, st.integers(0, 8), st.sampled_from([1, 2, 24]), st.sampled_from([0.5, 1.0, 3.0]))
def test_the_first_ways_are_the_drafts_without_branches(
    ids: list[int], k: int, depth: int, factor: float
) -> None:
    """Every branch has the most places where it turns off, the latest first: so the chain's first
    tokens are there; and where nothing ties it is the chain."""
    chain = drafted(Suffix(depth, factor=factor), ids, k)
    found = tree(Suffix(depth, factor=factor, branches=True), ids, k)
    assert len(found) <= k
    assert found[:1] == [chain[:1]] * bool(chain)
    longest = max((n for n in range(len(chain) + 1) if chain[:n] in found), default=0)
    assert all(chain[: n + 1] in found for n in range(longest))
    if all(len(path) == n for n, path in enumerate(found, 1)):
        assert found == [chain[: n + 1] for n in range(len(chain))]


def test_greedy_output_of_branches_is_the_targets_own() -> None:
    output_is_the_targets_own(lambda seqs: Suffix(depth=1, factor=4.0, branches=True), 6)
