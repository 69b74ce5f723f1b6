"""Drafters asked along a known answer: round for round what the loop does with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.advise.replay import Said, Scanning, Stepping, counted, replay, survey
from paceline.advise.stage import Lane, Made, Stage
from paceline.core.stats import Stats
from paceline.core.types import Emitted
from paceline.text.prompts import Prompt
from tiny import write_llama
from tiny_heads import write_head

TEXT = "abcabcabd abcabcabd abc"
TOKENS = 60
WINDOWS = range(1, 5)
DRAFTS = ["lookup:3", "suffix", "model:{other}", "self:skip=1", "self:int8", "head:{head}"]


class Pair:
    """A random target with drafters of every kind, and its answer to one prompt."""

    def __init__(self, home: Path) -> None:
        names = {
            "other": str(write_llama(home / "other", seed=0, layers=7)),
            "head": str(write_head(home / "head")),
        }
        target = str(write_llama(home / "target", layers=8))
        self.stage = Stage(target, "fp32", "cpu", 1, lambda *heard: None, lambda line: None)
        self.stage.add("none")
        self.made: dict[str, Made] = {
            draft: self.stage.add(draft.format(**names))
            for draft in [*DRAFTS, "lookup:3+model:{other}"]
        }
        [self.lane] = self.stage.lanes([Prompt(TEXT)], TOKENS)
        self.ran = self.lane.record(TOKENS)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    with pytest.MonkeyPatch.context() as patch:
        home = tmp_path_factory.mktemp("advise")
        patch.setenv("PACELINE_HOME", str(home / "home"))
        return Pair(home)


def says(lane: Lane, part: str, depth: int = WINDOWS[-1]) -> Scanning | Stepping:
    """One part along the whole answer."""
    drafter = lane.drafters[part]
    if part.startswith(("lookup", "suffix")):
        return Scanning(lane, drafter, lambda: 0.0)
    said = survey(lane, drafter, range(len(lane.answer)), depth)
    return Stepping(said, depth, lambda n: 0.0)


def counts(stats: Stats) -> tuple[object, ...]:
    """All that does not depend on a clock."""
    return (
        stats.rounds, stats.drafted, stats.accepted, stats.emitted, stats.tested, stats.passed,
    )  # fmt: skip


@pytest.mark.parametrize("draft", [*DRAFTS, "lookup:3+model:{other}"])
def test_a_replay_counts_what_a_drafted_run_counts(pair: Pair, draft: str) -> None:
    lane, parts = pair.lane, pair.made[draft].parts
    ways = [says(lane, part) for part in parts]
    end = len(lane.answer)
    accepted = 0
    for start, stop in ((0, end), (7, end), (3, 30)):
        for k in WINDOWS:
            with lane.kept():
                ran = lane.run(parts, k, start, stop - start)
            assert ran.ids == lane.answer[start : start + len(ran.ids)]
            assert len(ran.ids) >= stop - start
            found = counted(replay(lane.answer, ways, k, start, stop, TOKENS))
            assert counts(found) == counts(ran.stats)
            assert found.tau == ran.stats.tau
            accepted += found.accepted
    if not draft.startswith("head"):  # a random head knows nothing
        assert accepted > 0


@pytest.mark.parametrize("draft", ["model:{other}", "self:skip=1"])
def test_a_draft_model_need_be_asked_for_one_token_a_place(pair: Pair, draft: str) -> None:
    """It says the same of the same tokens; over the target's cache nearly so."""
    lane = pair.lane
    [part] = pair.made[draft].parts
    shallow, deep = says(lane, part, depth=1), says(lane, part)
    for k in WINDOWS:
        few, all_ = (
            counted(replay(lane.answer, [way], k, 0, TOKENS, TOKENS)) for way in (shallow, deep)
        )
        if draft.startswith("model"):
            assert counts(few) == counts(all_)
        else:
            assert few.tau == pytest.approx(all_.tau, rel=0.1)


def test_the_record_is_plain_decoding_and_nothing_that_drafters_do_changes_it(pair: Pair) -> None:
    lane = pair.lane
    assert lane.answer == pair.ran.ids
    assert pair.ran.stats.tau == 1
    before = lane.cached.ids.clone()
    with lane.kept():
        lane.run(pair.made["self:int8"].parts, 4, 0, TOKENS)
    assert bool((lane.cached.ids == before).all())
    assert lane.cached.seen(lane.at(len(lane.answer)), 0) == len(lane.prompt) + TOKENS - 1


class Script:
    """Says so much at each place, whatever K, in a second each time."""

    def __init__(self, said: dict[int, tuple[int, int]]) -> None:
        self.said = said

    def at(self, place: int, k: int) -> Said:
        drafted, agreeing = self.said.get(place, (0, 0))
        return Said(min(k, drafted), min(k, agreeing), 1.0)


def test_rounds_by_hand() -> None:
    """Nothing, then 3 of 3 and one more, then 1 of 2 and one more; of the last three tokens two may
    be drafted, and the very last never."""
    first = Script({1: (3, 3), 5: (2, 1), 7: (3, 1), 9: (3, 1)})
    turns = replay([*range(10, 20)], [first], 4, 0, 10, 10)
    assert [turn.emitted for turn in turns] == [
        Emitted([10], 0, 0),
        Emitted([11, 12, 13, 14], 3, 3),
        Emitted([15, 16], 2, 1),
        Emitted([17, 18], 2, 1),
        Emitted([19], 0, 0),
    ]
    assert [turn.draft_s for turn in turns] == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_an_answer_that_ended_by_itself_might_have_been_longer() -> None:
    """So its last tokens were drafted like all others; what stands behind its end is not counted.
    A replay that stops earlier finishes its round."""
    [turn] = replay([*range(3)], [Script({0: (4, 3)})], 4, 0, 3, 100)
    assert turn.emitted == Emitted([0, 1, 2], 4, 3)
    [turn] = replay([*range(9)], [Script({0: (4, 3)})], 4, 0, 2, 9)
    assert turn.emitted == Emitted([0, 1, 2, 3], 4, 3)


def test_the_first_part_that_says_anything_drafts_and_all_that_were_asked_take_time() -> None:
    first, second = Script({0: (2, 0)}), Script({0: (4, 4), 1: (4, 3)})
    turns = replay([*range(4)], [first, second], 4, 0, 4, 100)
    assert [turn.emitted.drafted for turn in turns] == [2, 4]
    assert [turn.draft_s for turn in turns] == [1.0, 2.0]


def test_a_stepping_drafter_goes_on_behind_what_agrees() -> None:
    """Asked for two tokens a place: 0 goes on at 2, which ends by itself; 4 is wrong at once and
    would go on all the same; 5 has nothing to say."""
    said = {0: (2, 2), 2: (1, 1), 4: (2, 0), 5: (0, 0)}
    way = Stepping({n: Said(*each, 9.0) for n, each in said.items()}, 2, lambda n: (1 + n) / 2)
    assert way.at(0, 1) == Said(1, 1, 1.0)
    assert way.at(0, 2) == Said(2, 2, 1.5)
    assert way.at(0, 8) == Said(3, 3, 2.5)  # and a fourth step, in which it stopped
    assert way.at(4, 8) == Said(8, 0, 4.5)
    assert way.at(5, 8) == Said(0, 0, 1.0)


def test_what_was_asked_for_just_so_many_tokens_comes_first() -> None:
    way = Stepping({0: Said(4, 3, 9.0)}, 4, lambda n: (1 + n) / 2)
    way.exactly[2] = {0: Said(2, 1, 9.0)}
    assert way.at(0, 2) == Said(2, 1, 1.5)
    assert way.at(0, 3) == Said(3, 3, 2.0)
