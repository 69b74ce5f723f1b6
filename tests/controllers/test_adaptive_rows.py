"""Many rows and many drafters under one adaptive window."""

from __future__ import annotations

from dataclasses import replace

import pytest
from adaptive_rounds import a_round, rows_of
from worlds import FLAT, T1

from paceline.controllers.adaptive import Adaptive
from paceline.controllers.cost import CostBook
from paceline.core.params import SamplingParams


def test_a_busy_batch_speculates_less() -> None:
    """The same easy rows: the more there are, the dearer is each further token."""
    book = {1: [T1 * r for r in FLAT], 8: [T1 * (1 + 1.2 * n) for n in range(9)]}
    drafts = {}
    for batch in (1, 8):
        controller = Adaptive(8, CostBook(book, {1: [0.02], 8: [0.02]}))
        pace, seqs = controller.pace(0), rows_of(batch)
        for _ in range(30):
            window = controller.window(seqs)
            limits = list(pace.limits(window))
            good = [min(n, 3) for n in limits]  # three tokens in four
            a_round(controller, seqs, limits, good, by=[0 if n else -1 for n in limits])
        drafts[batch] = max(limits)
    assert drafts[1] >= 3
    assert drafts[8] <= 1


def test_a_request_in_a_bad_mood_is_no_concern_of_its_neighbour() -> None:
    book = CostBook({2: [T1 * r for r in FLAT]}, {2: [0.02]})
    controller = Adaptive(8, book)
    pace, seqs = controller.pace(0, 0.0), rows_of(2)
    for _ in range(12):
        controller.window(seqs)
        pace.limits([8, 8])
        sure = [[0.9] * 4, [0.9] * 4]
        a_round(controller, seqs, [4, 4], [0, 4], by=[0, 0], sure=sure)
    moods = [controller._rows[request].moods[0] for request in seqs.requests]
    assert moods[0].chance(0.5) < 0.3
    assert moods[1].chance(0.5) > 0.5
    seqs.admit(0, [1, 2], SamplingParams(max_tokens=50))  # the next one in the same row
    controller.window(seqs)
    fresh, known = (controller._rows[request] for request in seqs.requests)
    assert fresh.moods[0].chance(0.5) == pytest.approx(0.5)
    assert known.moods[0] is moods[1]


def test_the_better_drafter_of_two_is_asked() -> None:
    controller = Adaptive(8, CostBook({1: [T1 * r for r in FLAT]}, {1: [0.05, 0.05]}))
    paces, seqs = [controller.pace(i) for i in (0, 1)], rows_of(1)
    asked = []
    for _ in range(60):
        window = controller.window(seqs)
        for i, pace in enumerate(paces):
            n = pace.limits(window)[0]
            if n or i == 1:
                asked.append(i if n else None)
                good = 0 if i == 0 else n
                a_round(controller, seqs, [n], [good], by=[i if n else -1])
                break
    assert asked[-30:].count(1) >= 27


def test_a_request_keeps_its_mood_when_rows_change_places() -> None:
    """Rounds are of those rows that are ready, side by side: row 0 may be another one next time."""
    controller = Adaptive(8, CostBook({2: [T1 * r for r in FLAT]}, {2: [0.02]}))
    pace, whole = controller.pace(0, 0.0), rows_of(2)
    for turn in range(12):
        order = [0, 1] if turn % 2 else [1, 0]
        seqs = whole.select(order)
        controller.window(seqs)
        pace.limits([8, 8])
        good = [0 if b == 0 else 4 for b in order]
        a_round(controller, seqs, [4, 4], good, by=[0, 0], sure=[[0.9] * 4] * 2)
    bad, well = (controller._rows[request].moods[0] for request in whole.requests)
    assert bad.chance(0.5) < 0.3
    assert well.chance(0.5) > 0.5


def test_rows_that_name_a_drafter_are_decided_for_among_their_own() -> None:
    """The first drafter is useless and the other one perfect: the rows of each find out."""
    controller = Adaptive(8, CostBook({2: [T1 * r for r in FLAT]}, {2: [0.05, 0.05]}), ragged=True)
    paces = [controller.pace(0), controller.pace(1, draft="good")]
    seqs = rows_of(2)
    seqs.params[1] = replace(seqs.params[1], draft="good")
    asked: list[list[int]] = []
    for _ in range(40):
        window = controller.window(seqs)
        lengths = [paces[b].limits([n if i == b else 0 for i, n in enumerate(window)])[b]
                   for b in range(2)]  # fmt: skip
        a_round(
            controller, seqs, lengths, [0, lengths[1]], by=[b if lengths[b] else -1 for b in (0, 1)]
        )
        asked.append(lengths)
    assert sum(first for first, _ in asked[20:]) <= 2
    assert all(second >= 6 for _, second in asked[20:])


def test_without_padding_each_row_goes_as_far_as_it_pays_for_itself() -> None:
    """One row is sure of its draft, its neighbour is not: only the first goes on."""
    book = {2: [T1 * (1 + 0.6 * n) for n in range(9)]}
    for ragged, wanted in ((True, [0]), (False, [])):
        controller = Adaptive(8, CostBook(book, {2: [0.02]}), ragged=ragged)
        pace, seqs = controller.pace(0, 0.0), rows_of(2)
        for _ in range(30):  # sure ones are right, others are not
            controller.window(seqs)
            pace.limits([8, 8])
            a_round(controller, seqs, [3, 3], [3, 0], by=[0, 0], sure=[[0.99] * 3, [0.2] * 3])
        controller.window(seqs)
        pace.limits([8, 8])
        assert list(pace.further([0, 1], 1, [[0.99, 0.99], [0.2, 0.2]])) == wanted


@pytest.mark.parametrize("k", [0, 1, 3])
def test_no_request_gets_more_than_it_wants(k: int) -> None:
    controller = Adaptive(8, CostBook({2: [T1 * r for r in FLAT]}, {2: [0.01]}))
    controller.pace(0)
    seqs = rows_of(3)
    seqs.params[1] = SamplingParams(k=k)
    seqs.params[2] = SamplingParams(draft="none")
    assert controller.window(seqs) == [8, k, 0]
