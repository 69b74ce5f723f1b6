"""Which prompts are asked, and in which order."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.bench.suites import BUILTIN, Prompt, builtin, fingerprint, suite, title, user
from paceline.errors import PacelineError

CATEGORIES = ["code", "edit", "chat", "translation", "summary", "reasoning", "long"]


def test_the_built_in_suite_has_ten_of_each_and_two_of_them_are_quick():
    prompts = builtin()
    assert Counter(p.category for p in prompts) == dict.fromkeys(CATEGORIES, 10)
    assert Counter(p.category for p in prompts if p.quick) == dict.fromkeys(CATEGORIES, 2)
    assert len({p.name for p in prompts}) == len({p.messages[0]["content"] for p in prompts}) == 70
    for p in prompts:
        words = len(p.messages[0]["content"].split())
        assert words >= 600 or p.category != "long", p.name
        lines = p.messages[0]["content"].count("\n") - 3  # without the task and the fences
        assert 20 <= lines <= 60 or p.category != "edit", p.name


def test_categories_take_turns():
    names = [p.category for p in suite([BUILTIN], limit=9)]
    assert names == [*CATEGORIES, "code", "edit"]
    assert [p.name for p in suite([BUILTIN], categories=["chat", "code"], limit=3)] == [
        "chat-01",
        "code-01",
        "chat-02",
    ]
    assert [p.name for p in suite([BUILTIN], quick=True, categories=["edit"])] == [
        "edit-01",
        "edit-05",
    ]


def test_a_later_turn_never_comes_before_the_one_that_it_follows(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"turns": ["a", "b"], "category": "x", "id": 1}\n{"prompt": "c"}\n')
    for limit in (1, 2, 3):
        seen: list[str | None] = [None]
        for p in suite([str(path)], limit=limit):
            assert p.follows in seen
            seen.append(p.name)
    quick = suite([str(path)], quick=True)
    assert [p.name for p in quick] == ["1", "t.jsonl:2", "1.2"]


def test_several_sources_and_what_is_refused(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text('{"prompt": "a", "category": "mine"}\n')
    assert len(suite([BUILTIN, str(path)])) == 71
    assert title([BUILTIN, str(path)]) == "builtin+own.jsonl"
    with pytest.raises(PacelineError, match="second prompt that is called"):
        suite([str(path), str(path)])
    with pytest.raises(PacelineError, match="did you mean 'code'"):
        suite([BUILTIN], categories=["coda"])
    with pytest.raises(PacelineError, match="--limit"):
        suite([BUILTIN], limit=0)


def test_the_fingerprint_is_of_prompts_and_their_order():
    a, b = Prompt("a", "x", user("1")), Prompt("b", "x", user("2"))
    assert fingerprint([a, b]) == fingerprint([Prompt("a", "x", user("1")), b])
    others = [[b, a], [a], [a, Prompt("b", "x", user("3"))], [a, Prompt("b", "y", user("2"))]]
    assert len({fingerprint(each) for each in [[a, b], *others]}) == 5
