"""--nodes and --branches, end to end on a tiny model: the same tokens, and trees if asked for."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from paceline import LLM, SamplingParams
from paceline.build import costs
from paceline.build.trees import Shape
from paceline.errors import PacelineError
from tiny import write_llama

PROMPTS = ["abcabcabc", "x", "the same, the same, the same"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def names(home: Path) -> dict[str, str]:
    other = write_llama(home / "other", seed=1, layers=1)
    swapped = write_llama(home / "swapped", swap=(40, 41))
    return {"other": str(other), "swapped": str(swapped)}


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(home / "home"))


@pytest.fixture(scope="module")
def target(home: Path) -> str:
    return str(write_llama(home / "target", layers=5))


WORDS = ["self:skip=1", "self:int4", "model:{other}", "suffix", "lookup:3-5+self:skip=1"]
SHAPES = [{"nodes": 6}, {"nodes": "auto"}, {"branches": 3}]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("word", WORDS)
def test_a_tree_changes_no_token(
    target: str, names: dict[str, str], word: str, shape: dict
) -> None:
    params = SamplingParams(max_tokens=32, ignore_eos=True)
    llm = LLM(target, dtype="fp16", draft=word.format(**names), k=4, **shape)
    drafted = llm.generate(PROMPTS, params)
    plain = llm.with_draft("none").generate(PROMPTS, params)
    assert [x.token_ids for x in drafted] == [x.token_ids for x in plain]


def test_log_probabilities_are_those_of_the_path(target: str) -> None:
    params = SamplingParams(max_tokens=24, ignore_eos=True, logprobs=2)
    llm = LLM(target, dtype="fp16", draft="self:skip=2", k=4, nodes=8)
    drafted = llm.generate("x", params).tokens
    plain = llm.with_draft("none").generate("x", params).tokens
    assert [(t.logprob, t.top) for t in drafted] == [(t.logprob, t.top) for t in plain]


def test_a_wider_draft_is_right_more_often(target: str) -> None:
    params = SamplingParams(max_tokens=60, ignore_eos=True, frequency_penalty=2)  # no loops
    tau = [
        LLM(target, dtype="fp16", draft="self:skip=2", k=4, **shape).generate("x", params).stats.tau
        for shape in ({}, {"nodes": 24})
    ]
    assert tau[1] > tau[0]


def test_a_translated_draft_says_that_it_stays_a_chain(target: str, names: dict[str, str]) -> None:
    heard: list[str] = []
    LLM(target, dtype="fp16", draft=f"model:{names['swapped']}", branches=2, note=heard.append)
    assert any("it drafts chains" in line for line in heard)


@pytest.mark.parametrize(
    ("setting", "fix"),
    [
        ({"branches": 0}, "from 1 to 16"),
        ({"branches": 10**6}, "from 1 to 16"),
        ({"nodes": 0}, "auto, or from 1 to 63"),
        ({"nodes": "64"}, "auto, or from 1 to 63"),
        ({"nodes": "many"}, "auto or a whole number"),
        ({"nodes": 8.5}, "auto or a whole number"),
        ({"nodes": True}, "auto or a whole number"),
        ({"branches": "3"}, "whole number"),
        ({"branches": 2.5}, "whole number"),
        ({"nodes": 4, "lenience": 0.5}, "chains"),
        ({"nodes": "4", "branches": 2}, "choose one"),
    ],
)
def test_what_is_out_of_reach_is_refused_before_anything_is_loaded(setting: dict, fix: str) -> None:
    with pytest.raises(PacelineError, match=fix):
        LLM("no such model", **setting)


def test_where_nothing_can_grow_trees_are_refused(target: str) -> None:
    with pytest.raises(PacelineError, match="lookup drafts chains alone"):
        LLM(target, dtype="fp16", draft="lookup", nodes=4)
    grown = LLM(target, dtype="fp16", draft="self:skip=2", nodes=4)
    assert grown.with_draft("lookup").generate("abcabc", SamplingParams(max_tokens=4)).text
    assert Shape.read(1, "7") == Shape(1, 7)


def test_a_cost_is_the_median_of_interleaved_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock by which a pass over n tokens takes 10 + n, and a draft's over w takes 2 w; one
    turn is ten times as slow and changes nothing."""
    now = [0.0]

    class Model:
        ranks = False
        turns = count()

        def __init__(self, *given: object) -> None: ...

        def score(self, seqs, draft) -> None:
            n = draft.tokens.shape[1] + 1
            slow = 10 if next(self.turns) // len(costs._TARGET) == 2 else 1
            now[0] += slow * (10 + n)

    class Draft:
        def read(self, seqs) -> None: ...

        def level(self, seqs, tokens, parents) -> None:
            now[0] += 2 * tokens.shape[1]

    monkeypatch.setattr(costs, "CachedModel", Model)
    monkeypatch.setattr(costs, "perf_counter", lambda: now[0])
    found = costs.measure(None, 50, lambda cached: Draft())  # type: ignore[arg-type]
    assert found.target == pytest.approx([(10 + n) / 11 for n in range(1, 17)])
    assert found.draft == pytest.approx([2 * w / 11 for w in range(1, 9)])
