"""Drafts made of the target itself, by name, from `--draft` to the last token."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from paceline.build import LLM
from paceline.build.self_drafts import check_self, fingerprint
from paceline.core.params import SamplingParams
from paceline.errors import PacelineError
from paceline.models.catalog import find
from paceline.models.skip import Skip, save_skip
from paceline.models.store import present
from tiny import write_llama

PROMPTS = ["one two three one two", "b", "what is said below is what was said above"]
LAYERS = 7


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model of which every layer counts, so that it does not say the same for ever."""
    path = write_llama(tmp_path_factory.mktemp("model"), layers=LAYERS, context=80)
    tensors = load_file(path / "model.safetensors")
    for name in tensors:
        if "down_proj" in name or "o_proj" in name:
            tensors[name] *= 4
    save_file(tensors, path / "model.safetensors")
    return str(path)


@pytest.fixture(autouse=True)
def _home(request, tmp_path_factory: pytest.TempPathFactory, monkeypatch) -> None:
    if not request.node.get_closest_marker("slow"):  # those have the user's own models
        monkeypatch.setenv("PACELINE_HOME", str(tmp_path_factory.getbasetemp() / "home"))


def params(temperature: float = 0.0) -> SamplingParams:
    return SamplingParams(max_tokens=None, temperature=temperature, seed=1, ignore_eos=True)


@pytest.fixture(params=["kernels", "torch"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        monkeypatch.setenv("PACELINE_KERNELS", "0")
    return request.param


@pytest.mark.parametrize("draft", ["self:int4", "self:int8", "self:skip=3", "lookup+self:skip=1"])
@pytest.mark.parametrize("dtype", ["fp16", "fp32"])
def test_the_output_is_plain_s(folder: str, kind: str, dtype: str, draft: str) -> None:
    """To the end of the context, on rows that get there one after the other."""
    llm = LLM(folder, dtype=dtype, draft=draft, k=4, window="fixed")
    plain = llm.with_draft("none").generate(PROMPTS, params())
    for found, right in zip(llm.generate(PROMPTS, params()), plain, strict=True):
        assert found.token_ids == right.token_ids
        assert found.stats.drafted > 0
    assert len({id for done in plain for id in done.token_ids}) > 15


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_copy_that_is_the_model_is_always_accepted(folder, kind, temperature) -> None:
    """In every row, to the end of the context, also in slots that are used again, and where another
    drafter comes first."""
    for draft in ("self:int8", "self:int8+lookup"):
        llm = LLM(folder, dtype="int8", draft=draft, k=5, window="fixed")
        for prompts in (PROMPTS, PROMPTS[::-1]):
            for done in llm.generate(prompts, params(temperature)):
                assert done.stats.drafted >= 0.6 * len(done.token_ids)
                assert done.stats.accepted == done.stats.drafted


def test_a_copy_in_fewer_bits_says_almost_the_same(folder: str) -> None:
    """Of random weights, whose scores lie close together, int8 keeps most and int4 many."""
    llm = LLM(folder, dtype="fp16", draft="none", k=4, window="fixed")
    for draft, least in (("self:int8", 0.9), ("self:int4", 0.6)):
        stats = [done.stats for done in llm.with_draft(draft).generate(PROMPTS, params())]
        assert sum(s.accepted for s in stats) > least * sum(s.drafted for s in stats)


def test_notes_say_what_it_costs(folder: str, kind: str) -> None:
    notes: list[str] = []
    llm = LLM(folder, dtype="fp16", draft="self:int4", note=notes.append)
    adds = [line for line in notes if "self:int4 adds" in line]
    assert len(adds) == 1
    assert adds[0].endswith(" MB")
    assert any("self:int4 is in int8 here" in line for line in notes) == (kind == "torch")
    notes.clear()
    llm.with_draft("self:skip=2")
    assert notes == []  # no memory


def test_a_copy_that_cannot_pay_is_said_to(folder: str) -> None:
    notes: list[str] = []
    LLM(folder, dtype="int4", draft="self:int4", note=notes.append)
    LLM(folder, dtype="int4", draft="self:int8", note=notes.append)
    assert f"self:int4 is {folder} itself, which is in int4 already" in notes[0]
    assert "self:int8 adds" in notes[1]
    assert f"self:int8 is no smaller than {folder} in int4" in notes[2]


BAD = {
    "self": "draft self needs to know how: self:int8, self:int4, self:skip=N",
    "self:": "draft self needs to know how",
    "self:int3": "unknown draft 'self:int3'; did you mean 'self:int",
    "self:skip": "use self:skip=N",
    "self:skip=": "use self:skip=N",
    "self:skip=0": "whole number from 1 on",
    "self:skip=-1": "whole number from 1 on",
    "self:skip=x": "whole number from 1 on",
    "self:skip=1.5": "whole number from 1 on",
    "self:skip=²": "whole number from 1 on",
    "self:skip=" + "9" * 5000: "whole number from 1 on",
    "self:skip=999": "has 7 layers, of which 4 can be left out; use self:skip=4 or fewer",
    "self:skip=5": "use self:skip=4 or fewer",
    "self:skip=auto": "run paceline distill skip --model ",
}


@pytest.mark.parametrize("draft", BAD)
def test_what_means_nothing_is_refused_in_one_line(folder: str, draft: str) -> None:
    llm = LLM(folder, dtype="int8", draft="none")
    with pytest.raises(PacelineError) as refusal:
        llm.with_draft(draft)
    assert BAD[draft] in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_value_is_checked_before_anything_is_loaded() -> None:
    for value in ("int8", "int4", "skip=1", "skip=999", "skip=auto"):
        check_self(value)
    with pytest.raises(PacelineError, match="draft 'self:skip=0'"):
        LLM("no such model", draft="self:skip=0")


def test_a_model_with_too_few_layers_has_none_to_spare(tmp_path: Path) -> None:
    llm = LLM(str(write_llama(tmp_path, layers=3)), dtype="int8", draft="none")
    with pytest.raises(PacelineError, match="of which 0 can be left out; choose another draft"):
        llm.with_draft("self:skip=1")


def test_auto_is_what_the_search_found(folder: str, kind: str) -> None:
    """It drafts as the model without those layers does, and as no other."""
    llm = LLM(folder, dtype="fp32", draft="none", k=4)

    def drafted(draft: str) -> list[tuple[int, ...]]:
        """How the drafts of some sampled answers fared."""
        done = llm.with_draft(draft).generate(PROMPTS, params(1.0))
        return [(x.stats.drafted, x.stats.accepted, *x.token_ids) for x in done]

    def keep(*dropped: int) -> None:
        found = Skip(list(dropped), LAYERS, 0.5, 0.5, 2, 1.1, "fp32")
        save_skip(fingerprint(Path(folder)), found)

    even = drafted("self:skip=2")
    keep(3, 5)  # what an even choice of two is
    assert drafted("self:skip=auto") == even
    keep(2, 4)
    assert drafted("self:skip=auto") != even
    assert llm.with_draft("self:skip=auto").draft == "self:skip=auto"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-1.5b"])
def test_an_int4_copy_under_fp16_is_nearly_always_right(name: str) -> None:
    if present(find(name)) is None:
        pytest.skip(f"needs: paceline pull {name}")
    llm = LLM(name, dtype="fp16", draft="self:int4", k=4)
    prompts = ["Write a function that reverses a list in Python", "Why is the sky blue?"]
    done = llm.generate(prompts, SamplingParams(max_tokens=48))
    plain = llm.with_draft("none").generate(prompts, SamplingParams(max_tokens=48))
    assert [x.token_ids for x in done] == [x.token_ids for x in plain]
    tested = sum(sum(x.stats.tested) for x in done)
    assert sum(sum(x.stats.passed) for x in done) >= 0.9 * tested
