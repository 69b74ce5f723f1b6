"""Every word on --verify, and what stands beside it, end to end on a tiny model."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import LLM, SamplingParams
from paceline.build.verify import VERIFIERS
from paceline.errors import PacelineError
from tiny import write_llama

PROMPTS = ["abcabcabc", "x", "the same, the same, the same"]
DRAFT = "lookup:3-5+self:int4"


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return write_llama(tmp_path_factory.mktemp("models") / "target", layers=5)


@pytest.fixture(autouse=True)
def at_home(tmp_path_factory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path_factory.getbasetemp() / "home"))


def ids(llm: LLM, params: SamplingParams, prompts: list[str] = PROMPTS) -> list[list[int]]:
    return [done.token_ids for done in llm.generate(prompts, params)]


@pytest.mark.parametrize("word", VERIFIERS)
def test_without_a_temperature_it_changes_no_token(target: Path, word: str) -> None:
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    llm = LLM(str(target), dtype="fp16", draft=DRAFT, verify=word)
    assert ids(llm, params) == ids(llm.with_draft("none"), params)


@pytest.mark.parametrize(
    ("setting", "said"),
    [({"verify": "typical"}, "verifier typical"), ({"lenience": 0.3}, "lenience 0.3")],
)
def test_what_is_lossy_says_so(target: Path, setting: dict, said: str) -> None:
    heard: list[str] = []
    llm = LLM(str(target), dtype="fp16", draft=DRAFT, note=heard.append, **setting)
    assert f"{said}: the output is not distributed as the model's own" in heard
    done = llm.generate("abc", SamplingParams(max_tokens=4))
    assert done.stats.to_dict()["lossless"] is False


def test_lenience_accepts_what_is_nearly_as_likely(target: Path) -> None:
    """Greedy rows too, whose logits are then asked for."""
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    llm = LLM(str(target), dtype="fp16", draft="self:skip=2", lenience=0.01)
    lenient = llm.generate("x", params).stats
    strict = LLM(str(target), dtype="fp16", draft="self:skip=2").generate("x", params).stats
    assert lenient.alpha > strict.alpha


def test_a_deterministic_answer_depends_on_no_draft(target: Path) -> None:
    params = SamplingParams(max_tokens=24, temperature=1.2, top_p=0.9, ignore_eos=True)
    llm = LLM(str(target), dtype="fp16", draft="none", deterministic=True)
    plain = ids(llm, params)
    assert ids(llm, params) == plain
    for draft in ("lookup", "self:skip=2", DRAFT):
        for k in (1, 4, 7):
            assert ids(llm.with_draft(draft, k=k), params) == plain
    assert [ids(llm, params, [prompt])[0] for prompt in PROMPTS] == plain
    other = SamplingParams(max_tokens=24, temperature=1.2, top_p=0.9, ignore_eos=True, seed=5)
    assert ids(llm, other) != plain
    assert (
        LLM(str(target), dtype="fp16", draft="none", threads=2, deterministic=True)
        .generate(PROMPTS, params)[0]
        .token_ids
        == plain[0]
    )


@pytest.mark.parametrize(
    ("setting", "fix"),
    [
        ({"verify": "blok"}, "block"),
        ({"lenience": 0.0}, "lenience"),
        ({"lenience": 1.5}, "lenience"),
        ({"lenience": float("nan")}, "lenience"),
        ({"lenience": 0.5, "verify": "block"}, "rejection"),
        ({"lenience": 0.5, "deterministic": True}, "leave out"),
        ({"verify": "block", "deterministic": True}, "leave out"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anything_is_loaded(
    setting: dict, fix: str
) -> None:
    with pytest.raises(PacelineError, match=fix):
        LLM("no such model", **setting)
