"""Every word on --draft, end to end on a tiny model: the same tokens as without."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import LLM, SamplingParams
from paceline.errors import PacelineError
from tiny import write_llama

WORDS = [
    "lookup",
    "lookup:2-4",
    "suffix",
    "suffix:6",
    "model:{other}",
    "model:{swapped}",
    "self:int8",
    "self:int4",
    "self:skip=1",
    "lookup:3-5+suffix+self:int4",
    "auto",
]
PROMPTS = ["abcabcabc", "x", "the same, the same, the same", "Zürich: ä"]


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def names(home: Path) -> dict[str, str]:
    other = write_llama(home / "other", seed=1, layers=1)
    swapped = write_llama(home / "swapped", swap=(40, 41))
    return {"other": str(other), "swapped": str(swapped)}


@pytest.fixture(scope="module")
def llm(home: Path) -> LLM:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(home / "home"))
        return LLM(str(write_llama(home / "target", layers=5)), draft="none", dtype="fp16")


@pytest.fixture(autouse=True)
def at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(home / "home"))


@pytest.mark.parametrize("word", WORDS)
def test_it_changes_no_token(llm: LLM, names: dict[str, str], word: str) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    plain = [done.token_ids for done in llm.generate(PROMPTS, params)]
    for k in (1, 4, 8):
        drafted = llm.with_draft(word.format(**names), k=k)
        assert [done.token_ids for done in drafted.generate(PROMPTS, params)] == plain


def test_auto_is_what_suits_the_weights(
    llm: LLM, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy in 4 bits under fp16; lookup alone where that saves nothing, or cannot be."""
    copied = llm.with_draft("auto", k=4)
    assert copied.draft == "lookup:3-5+self:int4"
    assert LLM(str(home / "target"), dtype="int8").draft == "lookup:5"
    monkeypatch.setenv("PACELINE_KERNELS", "0")
    assert LLM(str(home / "target"), dtype="fp16").draft == "lookup:5"


def test_a_short_match_is_left_to_the_next_drafter(llm: LLM) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    sure, any_match = llm.with_draft("lookup:3-5"), llm.with_draft("lookup:5")
    few, many = (x.generate("abcabcabc", params).stats for x in (sure, any_match))
    assert few.drafted < many.drafted


def test_a_corpus_remembers_from_one_process_to_the_next(home: Path, tmp_path: Path) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True, frequency_penalty=2)  # no loops
    model, corpus = str(write_llama(tmp_path / "target")), str(tmp_path / "corpus")
    first = LLM(model, draft="suffix", suffix_corpus=corpus)
    once = first.generate("x y z", params)
    again = LLM(model, draft="suffix", suffix_corpus=corpus).generate("x y z", params)
    assert again.token_ids == once.token_ids
    assert again.stats.accepted > 20 > once.stats.accepted
    with pytest.raises(PacelineError, match="another"):
        LLM(str(write_llama(tmp_path / "other")), draft="suffix", suffix_corpus=corpus)
