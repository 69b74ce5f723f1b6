"""Admission, and commit: the only place where a token becomes real."""

from __future__ import annotations

import pytest
import torch

from checks import output
from fakes import sequences
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft, Emitted, Verdict
from paceline.errors import PacelineError


def test_an_empty_prompt_and_one_without_room_are_refused() -> None:
    seqs = Sequences(1, 8)
    with pytest.raises(PacelineError, match="empty"):
        seqs.admit(0, [], SamplingParams())
    for n in (8, 9):
        with pytest.raises(PacelineError, match=f"{n} tokens and the context holds 8.* most 7"):
            seqs.admit(0, [1] * n, SamplingParams())
    assert seqs.running == [False]
    seqs.admit(0, [1] * 7, SamplingParams())
    assert (seqs.lengths, seqs.limits, seqs.running) == ([7], [8], [True])


@pytest.mark.parametrize(
    ("max_tokens", "limit"), [(1, 4), (4, 7), (17, 20), (18, 20), (None, 20), (10**9, 20)]
)
def test_the_limit_is_what_was_asked_for_or_the_context(max_tokens: int | None, limit: int) -> None:
    seqs = sequences([[1, 2, 3]], SamplingParams(max_tokens=max_tokens), length=20)
    assert seqs.limits == [limit]


def test_end_tokens() -> None:
    seqs = Sequences(4, 8)
    for row, params in enumerate(
        [
            SamplingParams(),
            SamplingParams(stop_token_ids=[5]),
            SamplingParams(ignore_eos=True),
            SamplingParams(ignore_eos=True, stop_token_ids=[5]),
        ]
    ):
        seqs.admit(row, [1], params, [3, 4])
    assert seqs.eos == [{3, 4}, {3, 4, 5}, set(), {5}]


def test_a_slot_is_admitted_again_with_nothing_left_of_the_first_request() -> None:
    seqs = sequences([[1, 2, 3, 4, 5]], SamplingParams(seed=1, stop_token_ids=[7]), [6])
    seqs.finish(0)
    seqs.admit(0, [9, 8], SamplingParams(max_tokens=3, seed=2))
    assert seqs.committed(0).tolist() == [9, 8]
    assert (seqs.lengths, seqs.prompts, seqs.limits) == ([2], [2], [5])
    assert (seqs.eos, seqs.seeds, seqs.running) == ([set()], [2], [True])


def test_seeds_that_were_not_given_differ() -> None:
    seqs = sequences([[1]] * 50, SamplingParams(temperature=1))
    assert len(set(seqs.seeds)) == 50


def committed(tokens: list[int], accepted: int, drafted: int, room: int, eos=()) -> tuple:
    seqs = sequences([[1, 2]], SamplingParams(max_tokens=room), eos, length=20)
    k = len(tokens) - 1
    verdict = Verdict(torch.tensor([tokens]), torch.tensor([accepted]))
    (row,) = seqs.commit(verdict, Draft(torch.zeros(1, k, dtype=torch.int64), [drafted]))
    assert seqs.committed(0).tolist() == [1, 2, *row.tokens]
    assert seqs.running == [row.finish is None]
    return row


@pytest.mark.parametrize(
    ("tokens", "accepted", "room", "eos", "right"),
    [
        ([5, 6, 7, 8, 9], 4, 9, (), Emitted([5, 6, 7, 8, 9], 4, 4)),
        ([5, 6, 7, 8, 9], 2, 9, (), Emitted([5, 6, 7], 4, 2)),
        ([5, 6, 7, 8, 9], 0, 9, (), Emitted([5], 4, 0)),
        ([5, 6, 7, 8, 9], 4, 3, (), Emitted([5, 6, 7], 4, 3, "length")),
        ([5, 6, 7, 8, 9], 4, 5, (), Emitted([5, 6, 7, 8, 9], 4, 4, "length")),
        ([5, 6, 7, 8, 9], 4, 9, (6,), Emitted([5, 6], 4, 2, "stop")),
        ([5, 6, 7, 8, 9], 1, 9, (6,), Emitted([5, 6], 4, 1, "stop")),
        ([5, 6, 7, 8, 9], 4, 2, (6,), Emitted([5, 6], 4, 2, "stop")),  # both at once: stop
        ([5, 6, 7, 8, 9], 4, 1, (6,), Emitted([5], 4, 1, "length")),
        ([5, 6, 7, 8, 9], 0, 9, (6,), Emitted([5], 4, 0)),  # behind the refusal: not real
        ([5, 6, -1, 8, 9], 2, 9, (), Emitted([5, 6], 4, 2, "error")),
        ([-1, 6, 7, 8, 9], 0, 9, (), Emitted([], 4, 0, "error")),
        ([5, -1, -1, -1, -1], 0, 9, (), Emitted([5], 4, 0)),
        ([5, 6, -1, 8, 9], 2, 2, (), Emitted([5, 6], 4, 2, "length")),
    ],
)
def test_commit_cuts(tokens, accepted, room, eos, right: Emitted) -> None:
    assert committed(tokens, accepted, 4, room, eos) == right


def test_rows_that_do_not_run_are_left_alone() -> None:
    seqs = sequences([[1, 2], [3]], SamplingParams(), length=20)
    seqs.finish(0)
    verdict = Verdict(torch.tensor([[7, 8], [7, 8]]), torch.tensor([1, 1]))
    rows = seqs.commit(verdict, Draft(torch.tensor([[7], [7]]), [0, 1]))
    assert rows == [None, Emitted([7, 8], 1, 1)]
    assert seqs.committed(0).tolist() == [1, 2]


def test_only_narrows_a_view_and_not_the_sequences() -> None:
    seqs = sequences([[1], [2], [3]], SamplingParams())
    seqs.finish(0)
    view = seqs.only([0, 1])
    assert view.running == [False, True, False]
    assert seqs.running == [False, True, True]
    assert view.tokens is seqs.tokens


def test_every_limit_is_exact() -> None:
    output.limits_are_exact()


def test_ends_inside_a_block() -> None:
    output.ends_inside_a_block()
