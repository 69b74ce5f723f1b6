"""The stop watch, on a clock that only moves when the script says so."""

from __future__ import annotations

import pytest
from scripted_answers import Clock, Script, Step

from paceline.bench.measure import Differs, Spoilt, pair, run
from paceline.core.params import SamplingParams

GREEDY = SamplingParams(max_tokens=8)
PLAIN = [Step([65 + i], target=0.5) for i in range(6)]
# the same six tokens: one, then four of three drafted ones, then one of which nothing was accepted
DRAFTED = [
    Step([65], target=0.5),
    Step([66, 67, 68, 69], 3, 3, draft=0.1, target=0.6, rest=0.1),
    Step([70], 2, 0, draft=0.1, target=0.5, rest=0.1),
]


def test_tokens_are_counted_and_the_first_round_is_apart():
    clock = Clock()
    found = run(Script(clock, DRAFTED, read=2.0), [1, 2], GREEDY, clock)
    assert found.ttft_s == pytest.approx(2.5)  # the prompt and the first round, not getting ready
    assert found.seconds == pytest.approx(2.5 + 0.8 + 0.7)
    assert found.tokens_per_second == pytest.approx(5 / 1.5)  # five tokens behind it, not two
    assert [round[:3] for round in found.rounds] == [(0, 0, 1), (3, 3, 4), (2, 0, 1)]
    assert [round[3] for round in found.rounds] == pytest.approx([0.5, 0.8, 0.7])


def test_a_first_round_of_many_tokens_is_not_counted_again():
    clock = Clock()
    steps = [Step([65, 66, 67], 2, 2, target=1.0), Step([68], target=0.5)]
    assert run(Script(clock, steps), [1], GREEDY, clock).tokens_per_second == pytest.approx(2.0)


def test_an_answer_of_one_round_has_the_rate_of_all_its_time():
    clock = Clock()
    alone = run(Script(clock, [Step([65, 66], 1, 1, target=1.0)], read=3.0), [1], GREEDY, clock)
    assert alone.tokens_per_second == pytest.approx(2 / 4)


def test_both_sides_of_a_prompt():
    clock = Clock()
    plain = Script(clock, PLAIN, slower=(1.0, 4.0, 2.0))
    drafted = Script(clock, DRAFTED, read=1.5, slower=(3.0, 1.0, 2.0))
    a, b, same = pair(plain, drafted, [1, 2], GREEDY, repeats=3, clock=clock)
    assert same is True
    assert a["tokens"] == b["tokens"] == 6
    assert a["seconds"] == pytest.approx([1 + 3.0, 1 + 12.0, 1 + 6.0])
    assert a["ttft_s"] == pytest.approx([1.5, 3.0, 2.0])
    assert a["tpot_s"] == pytest.approx([0.5, 2.0, 1.0])
    assert a["tokens_per_second"] == pytest.approx(1.0)  # the median, of the third answer
    assert b["tokens_per_second"] == pytest.approx(5 / 3.0)
    assert b["ttft_s"] == pytest.approx([3.0, 2.0, 2.5])
    assert (a["tau"], a["alpha"], a["alpha_at"]) == (1.0, None, [])
    assert b["tau"] == pytest.approx(2.0)
    assert b["alpha"] == pytest.approx(3 / 4)  # the second of the last two was never tested
    assert b["alpha_at"] == pytest.approx([0.5, 1.0, 1.0])
    assert (b["rounds"], b["drafted"], b["accepted"]) == (3, 5, 3)
    assert b["draft_s"] == pytest.approx(2 * 0.2)
    assert b["target_s"] == pytest.approx(2 * 1.6)
    assert b["overhead_s"] == pytest.approx(2 * 0.2)
    assert [entry[:3] for entry in b["round_log"]] == [[0, 0, 1], [3, 3, 4], [2, 0, 1]]
    assert b["made"][:3] == [["A", "plain"], ["B", "accepted"], ["C", "accepted"]]
    assert [origin for _, origin in b["made"][3:]] == ["accepted", "bonus", "recovered"]


def test_sides_take_turns_and_so_does_who_is_first():
    clock, order = Clock(), []

    class Heard(Script):
        def start(self, ids, params):
            order.append(self.read)
            return super().start(ids, params)

    a, b = Heard(clock, PLAIN, read=1), Heard(clock, PLAIN, read=2)
    pair(a, b, [1], GREEDY, repeats=3, clock=clock)
    pair(a, b, [1], GREEDY, repeats=1, turn=1, clock=clock)
    assert order == [1, 2, 2, 1, 1, 2, 2, 1]


def test_a_difference_ends_the_prompt_where_there_may_be_none():
    clock = Clock()
    other = Script(clock, [*PLAIN[:3], Step([90]), *PLAIN[4:]])
    with pytest.raises(Differs, match="differ from token 4 on"):
        pair(Script(clock, PLAIN), other, [1], GREEDY, repeats=1, clock=clock)
    shorter = Script(clock, PLAIN[:2])
    with pytest.raises(Differs, match="differ from token 3 on"):
        pair(Script(clock, PLAIN), shorter, [1], GREEDY, repeats=1, clock=clock)
    *_, same = pair(Script(clock, PLAIN), other, [1], GREEDY, repeats=1, exact=False, clock=clock)
    assert same is False


def test_drawn_answers_need_not_agree_and_every_repeat_draws_others():
    clock = Clock()
    a, b = Script(clock, PLAIN), Script(clock, [Step([90], target=1), Step([91], target=1)])
    drawn = SamplingParams(max_tokens=8, temperature=0.8)
    *_, same = pair(a, b, [1], drawn, repeats=3, clock=clock)
    assert same is None
    assert sorted(a.heard) == sorted(b.heard) == [0, 1, 2]


def test_scores_that_are_no_numbers():
    clock = Clock()
    with pytest.raises(Spoilt, match="NaN"):
        run(Script(clock, PLAIN, finish="error"), [1], GREEDY, clock)
