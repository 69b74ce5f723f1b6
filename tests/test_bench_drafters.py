"""The figures of `benchmarks/drafters.py` on scripted answers. Nothing here depends on a clock."""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from paceline import LLM, PacelineError, SamplingParams
from paceline.core.stats import Stats
from tiny import write_llama

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "benchmarks"))  # last: its other files have names like our folders'
answers, drafting, drafters = map(import_module, ("answers", "drafting", "drafters"))
Prompt, Run = answers.Prompt, answers.Run


def stats(rounds: int, accepted: int, rejected: int) -> Stats:
    """`accepted` of the tested tokens passed, all first in their drafts."""
    return Stats(
        rounds=rounds,
        drafted=accepted + rejected,
        accepted=accepted,
        emitted=rounds + accepted,
        tested=[accepted + rejected],
        passed=[accepted],
    )


def prompts(*kinds: str) -> list:
    return [Prompt(kind, f"{kind} {i}") for i, kind in enumerate(kinds)]


class Script:
    """Answers in so many seconds as it is told, and writes down what was asked."""

    def __init__(self, seconds) -> None:
        self.seconds, self.asked = seconds, []

    def __call__(self, draft: str, k: int, prompt: int):
        self.asked.append((draft, k, prompt))
        return Run([prompt], self.seconds(draft, k, prompt), stats(4, 4 if k else 0, 0))


def test_pooled_counts_are_sums_by_position():
    one = Stats(2, 8, 5, 7, [2, 2, 1], [2, 2, 1], 0.5, 1.0, 0.25)
    two = Stats(1, 4, 1, 2, [1, 1, 0, 0], [1, 0, 0, 0], 0.5, 2.0, 0.25)
    assert answers.pooled([one, two]) == Stats(
        3, 12, 6, 9, [3, 3, 1, 0], [3, 2, 1, 0], 1.0, 3.0, 0.5
    )
    assert answers.pooled([]) == Stats()


def test_the_first_third_is_one_of_every_kind():
    asked = prompts("code", "code", "chat", "code", "chat", "code", "edit")
    assert answers.first_third(asked) == [0, 1, 2, 6]


def test_k_is_chosen_on_the_first_third_and_the_rest_runs_at_it_and_at_k():
    script = Script(lambda draft, k, i: {("a", 2): 1.0, ("b", 6): 1.0}.get((draft, k), 2.0))
    asked = prompts(*["code"] * 3, *["chat"] * 3)
    heard: list[tuple[int, int]] = []

    def progress(done: int, total: int, what: str) -> None:
        heard.append((done, total))

    runs, best = answers.compare(
        script,
        asked,
        ["a", "b"],
        4,
        [2, 4, 6],
        lambda done, total, what: heard.append((done, total)),
    )
    assert best == {"a": 2, "b": 6}
    everyone = {0, 1, 2, 3, 4, 5}
    assert set(runs["none", 0]) == set(runs["a", 4]) == set(runs["a", 2]) == everyone
    assert set(runs["b", 6]) == everyone
    assert set(runs["a", 6]) == set(runs["b", 2]) == {0, 3}
    assert len(script.asked) == len(set(script.asked)) == heard[-1][0] == heard[-1][1]
    assert heard[-1][1] == answers.planned(asked, ["a", "b"], 4, [2, 4, 6]) == 2 * 7 + 4 * 5


def test_a_drafter_whose_best_k_is_k_answers_once():
    script = Script(lambda draft, k, i: 1.0)
    runs, best = answers.compare(
        script, prompts("code", "code", "code"), ["a"], 4, [4], lambda *heard: None
    )
    assert best == {"a": 4}
    assert len(script.asked) == 6
    assert set(runs) == {("none", 0), ("a", 4)}


def test_every_turn_asks_one_prompt_and_begins_with_another_way():
    script = Script(lambda draft, k, i: 1.0)
    answers.compare(script, prompts(*["code"] * 9), ["a", "b"], 4, [4], lambda *heard: None)
    turns = [script.asked[i : i + 3] for i in range(0, len(script.asked), 3)]
    assert [{i for _, _, i in turn} for turn in turns] == [{i} for i in range(9)]
    assert [turn[0][0] for turn in turns[3:]] == ["none", "a", "b", "none", "a", "b"]


def test_speedups_are_ratios_of_sums_and_the_least_is_named():
    asked = prompts("code", "code", "chat", "edit")
    plain = {0: 1.0, 1: 9.0, 2: 2.0, 3: 6.0}
    drafted = {0: 2.0, 1: 3.0, 2: 2.5, 3: 1.5}
    runs = {
        ("none", 0): {i: Run([i], s, stats(10, 0, 0)) for i, s in plain.items()},
        ("a", 4): {i: Run([i], 2 * s, stats(4, 3 + i, 1)) for i, s in drafted.items()},
        ("a", 2): {i: Run([i], s, stats(9, 9, 0)) for i, s in drafted.items()},
    }
    row = answers.figures("a", runs, asked, 4, 2)
    assert row["speedup"] == {"code": 2.0, "chat": 0.8, "edit": 4.0}
    assert row["speedup_at_k"] == {"4": {"code": 1.0, "chat": 0.4, "edit": 2.0}}
    assert row["least"] == {"kind": 0.8, "prompt": 0.5}
    # at K = 4, on code and chat alone: 3 + 4 + 5 accepted, 3 rejected, 12 rounds
    assert row["alpha"] == pytest.approx(12 / 15)
    assert row["tau"] == pytest.approx(24 / 12)
    assert row["tau_by_kind"] == {"code": 15 / 8, "chat": 9 / 4, "edit": 10 / 4}
    assert row["k"] == 2
    assert (row["answers"], row["differing"]) == (8, 0)


def test_every_answer_that_is_not_the_plain_one_counts():
    asked = prompts("code", "chat")
    runs = {
        way: {i: Run([i, 7], 1.0, stats(2, 1, 1)) for i in range(2)}
        for way in (("none", 0), ("a", 4), ("a", 2))
    }
    runs["a", 2][1] = Run([1, 8], 1.0, stats(2, 1, 1))
    runs["a", 4][0] = Run([0], 1.0, stats(2, 1, 1))
    row = answers.figures("a", runs, asked, 4, 4)
    assert (row["answers"], row["differing"]) == (4, 2)


def test_the_table_replaces_what_stands_between_the_marks(tmp_path):
    readme = tmp_path / "README.md"
    begin, end = drafters.MARKS
    readme.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    row = {"drafter": "suffix", "needs": "nothing", "dtype": "fp16", "memory_gb": 0.25, "c": 0.01,
           "alpha": 0.5, "tau": 1.5, "tau_by_kind": {"code": 1.75, "chat": 1.25}, "k": 6,
           "speedup": {"code": 1.5, "chat": 1.1, "edit": 3.0},
           "least": {"prompt": 0.98}}  # fmt: skip
    drafters.rewrite(readme, [row, drafters.unmade("self:a|self:b", "fp16", "cannot be")])
    head, rule, good, bad = readme.read_text().split(begin)[1].split(end)[0].strip().splitlines()
    assert {line.count("|") for line in (head, rule, good, bad)} == {len(drafters.COLUMNS) + 1}
    assert good == (
        "| suffix | nothing | fp16 | 0.25 | 0.010 | 0.50 | 1.75 | 1.25 | 6 "
        "| 1.50x | 1.10x | 3.00x | 0.98x |"
    )
    assert bad.startswith("| self:a or self:b | cannot be | fp16 |")
    assert readme.read_text().startswith("before\n")
    assert readme.read_text().endswith("\nafter\n")
    readme.write_text("no marks")
    with pytest.raises(PacelineError, match="bench-drafters"):
        drafters.rewrite(readme, [])


def test_an_answer_that_differs_shows_in_the_place_of_figures():
    row = {"drafter": "a", "dtype": "native", "error": "2 of 4 answers", "speedup": {"code": 9.0}}
    assert drafters.cells(row)[:3] == ["a", "2 of 4 answers", "native"]
    assert "".join(drafters.cells(row)[3:]) == ""


def test_the_prompts_are_of_three_kinds_and_stand_nowhere_else():
    asked = drafters.prompts(1000)
    assert [sum(p.kind == kind for p in asked) for kind in answers.KINDS] == [20, 20, 6]
    lines = (ROOT / "examples" / "prompts.jsonl").read_text().splitlines()
    others = [json.loads(line)["prompt"] for line in lines]
    texts = [p.text for p in asked] + others
    assert len(set(texts)) == len(texts)
    files = [re.search(r"```\w+\n(.*)\n```$", p.text, re.DOTALL) for p in asked if p.kind == "edit"]
    assert all(25 <= len(file[1].splitlines()) <= 60 for file in files)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(write_llama(tmp_path_factory.mktemp("bench") / "llama", layers=5))


def test_the_bench_answers_as_the_engine_does(folder):
    texts = ["ab ab ab ab", "a longer prompt, which the last answer did not begin with"]
    bench = drafting.Bench(folder, "auto", texts, 24, 1, lambda *heard: None, lambda line: None)
    made = [drafters.make(bench, name)[0] for name in ("lookup:2", "self:skip=auto|self:skip=1")]
    assert made == ["lookup:2", "self:skip=1"]
    llm = LLM(folder, draft="none", threads=1)
    for i in (0, 1, 0):
        plain = llm.generate(texts[i], SamplingParams(max_tokens=24)).token_ids
        for name, k in (("none", 0), ("lookup:2", 4), ("self:skip=1", 3)):
            run = bench.answer(name, k, i)
            assert run.ids == plain
            assert run.stats.emitted == len(plain)
            assert run.stats.drafted > 0 or name == "none"
    assert set(bench.memory) == {"none", *made}
    t1, costs = bench.costs(made, 4, 5)
    assert t1 > 0
    assert set(costs) == set(made)
    with pytest.raises(PacelineError):
        drafters.make(bench, "self:skip=auto|self:skip=9")


def test_what_a_user_needs_is_named_for_every_part():
    assert drafters.needs("lookup:3-5+head:X") == "a trained head"
    assert drafters.needs("model:a") == "a smaller model"
    assert drafters.needs("self:skip=8") == drafters.needs("auto") == "nothing"
