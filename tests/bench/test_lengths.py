"""Whether the gain grows with the length of the output, of answers where that is known."""

from __future__ import annotations

import random

import pytest

from bench import records as made
from paceline.bench import lengths
from paceline.bench.recorded import load

TOKENS = 200


def answer(before: float, behind: float, tokens: int = TOKENS, name: str = "a-1", category="a"):
    """A prompt whose speedup is `before` up to token 100 and `behind` from there on."""
    plain = [[0, 0, 1, 0.06]] * tokens
    drafted = [
        [3, 3, 4, 4 * 0.06 / (before if 4 * n < 100 else behind)] for n in range(tokens // 4)
    ]
    line = made.prompt(random.Random(1), category, 1) | {"prompt": name, "category": category}
    for side, log in (("plain", plain), ("speculative", drafted)):
        line[side] = made.side(random.Random(1), tokens, None) | {"round_log": log}
    line["plain"]["tokens_per_second"] = 10.0
    line["speculative"]["tokens_per_second"] = 10.0 * before
    return line


def pairs(tmp_path, lines):
    return load(made.write(tmp_path / "r.jsonl", [made.header(), *lines])).pairs


def many(before: float, behind: float, tokens: int = TOKENS):
    return [answer(before, behind, tokens, f"a-{n}") for n in range(8)]


@pytest.mark.parametrize(
    ("before", "behind", "verdict"),
    [
        (2.0, 3.0, "True of these answers"),
        (3.0, 2.0, "False of these answers: it shrinks"),
    ],
)
def test_an_answer_is_held_against_itself(tmp_path, before, behind, verdict) -> None:
    found = pairs(tmp_path, many(before, behind))
    ratio = lengths.beyond(found)
    assert ratio is not None
    assert (ratio.value, ratio.n) == (pytest.approx(behind / before), 8)
    along = lengths.stretches(found)
    assert [each.start for each in along] == [0, 25, 50, 75, 100, 150]
    assert [each.speedup.value for each in along] == pytest.approx([before] * 4 + [behind] * 2)
    said = lengths.answer(found)
    assert verdict in said
    assert f"{behind / before:.2f} ({behind / before:.2f}" in said


def test_where_it_goes_both_ways_nothing_is_shown(tmp_path) -> None:
    up, down = many(2.0, 2.2), many(2.2, 2.0)
    both = [line | {"prompt": f"{n}"} for n, line in enumerate(up + down)]
    assert "Not shown" in lengths.answer(pairs(tmp_path, both))


def test_short_answers_and_few_of_them_cannot_tell(tmp_path) -> None:
    for lines in (many(2.0, 3.0, tokens=112), many(2.0, 3.0)[:7]):
        assert "cannot be told" in lengths.answer(pairs(tmp_path, lines))


def test_what_comes_with_the_first_round_counts_on_neither_side(tmp_path) -> None:
    """A first round of hours, which read the prompt, changes nothing."""
    slow = many(2.0, 3.0)
    for line in slow:
        log = line["speculative"]["round_log"]
        log[0] = [3, 3, 4, 9999.0]
    [first, *_] = lengths.stretches(pairs(tmp_path, slow))
    assert first.speedup.value == pytest.approx(2.0)


def test_categories_are_kept_apart(tmp_path) -> None:
    """Long edits are fast and short chats are slow: that says nothing about length. Within each,
    twice the length goes with 1.1 times the speedup."""
    lines = [
        answer(base * 1.1**step, 1.0, first * 2**step, f"{category}-{step}", category)
        for category, base, first in (("chat", 1.1, 16), ("edit", 3.0, 64))
        for step in range(4)
    ]
    found = lengths.per_doubling(pairs(tmp_path, lines))
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((1.1, 1.1, 1.1))


def test_answers_of_like_lengths_say_nothing_of_length(tmp_path) -> None:
    lines = [answer(1.0 + step / 9, 1.0, 85 + step, f"chat-{step}", "chat") for step in range(12)]
    assert lengths.per_doubling(pairs(tmp_path, lines)) is None
    assert "twice the length" not in lengths.answer(pairs(tmp_path, lines))
