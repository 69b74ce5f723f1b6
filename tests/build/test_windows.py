"""Windows by name, and what the adaptive one keeps from run to run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from paceline import LLM, SamplingParams
from paceline.build import windows
from paceline.build.windows import WINDOWS, make_window
from paceline.controllers.adaptive import Adaptive
from paceline.errors import PacelineError
from tiny import write_llama

PROMPTS = [[5, 6, 7, 8, 5, 6, 7, 8, 5, 6], [9, 3, 9], [4] * 20]
NAMES = [*WINDOWS, "confidence:auto", "confidence:0.7", "adaedl:0.4", "svip:0.775"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PACELINE_KERNELS", "0")  # whose threads would wait for other tests
    return tmp_path / "home"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_llama(tmp_path_factory.mktemp("model"), layers=4))


def params(**more: object) -> SamplingParams:
    return SamplingParams(max_tokens=40, ignore_eos=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("window", NAMES)
def test_the_output_is_plain_s_under_every_window(folder: str, home: Path, window: str) -> None:
    draft = "lookup:2+self:skip=1"
    llm = LLM(folder, draft=draft, window=window, k=5)
    plain = llm.with_draft("none").generate(PROMPTS, params())
    for _ in range(2):
        for found, right in zip(llm.generate(PROMPTS, params()), plain, strict=True):
            assert found.token_ids == right.token_ids


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_seed_gives_the_same_tokens_whatever_rounds_take(
    folder: str, home: Path, deterministic: bool
) -> None:
    """Drawn tokens hang on windows unless they are coupled, so a seeded row keeps its own."""
    llm = LLM(folder, draft="lookup:2+self:skip=1", k=5, deterministic=deterministic)
    found = [
        [done.token_ids for done in llm.generate(PROMPTS, params(temperature=1.0, seed=7))]
        for _ in range(4)
    ]
    assert found[1:] == found[:1] * 3
    alone = llm.generate([PROMPTS[1]], params(temperature=1.0, seed=7))[0].token_ids
    assert alone == found[0][1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("adaptiv", "adaptive"),
        ("fixed:4", "--k 4"),
        ("adaptive:3", "no parameters"),
        ("heuristic:3", "no parameters"),
        ("confidence:x", "no number"),
        ("confidence:2", "from 0 to 1"),
        ("svip:-1", "svip"),
        ("adaedl:nan", "adaedl"),
        ("", "window"),
    ],
)
def test_what_means_nothing_is_refused(text: str, says: str) -> None:
    with pytest.raises(PacelineError, match=says):
        make_window(text, 4)


def test_a_bad_window_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(PacelineError, match="window"):
        LLM("no-such-model", window="wide")


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The batch sizes that were timed."""
    timed: list[int] = []
    real = windows.time_rounds

    def time_rounds(model, vocab, parts, batch, most):
        timed.append(batch)
        return real(model, vocab, parts, batch, most)

    monkeypatch.setattr(windows, "time_rounds", time_rounds)
    return timed


def test_costs_are_timed_once_for_a_batch_size_and_kept(
    folder: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = counting(monkeypatch)
    for _ in range(2):
        llm = LLM(folder, draft="self:skip=1", k=4)
        llm.generate([PROMPTS[0]], params())
        llm.generate(PROMPTS, params())
    assert timed == [1, 3]
    LLM(folder, draft="self:skip=1", k=3).generate([PROMPTS[0]], params())  # another window
    LLM(folder, draft="lookup", k=4).generate([PROMPTS[0]], params())  # another drafter
    assert timed == [1, 3, 1, 1]
    LLM(folder, draft="none", k=4).generate([PROMPTS[0]], params())
    LLM(folder, draft="self:skip=1", k=0).generate([PROMPTS[0]], params())
    LLM(folder, draft="self:skip=1", window="fixed").generate([PROMPTS[0]], params())
    assert timed == [1, 3, 1, 1]  # there is nothing to decide


def test_what_drafts_have_taught_is_kept(folder: str, home: Path) -> None:
    for _ in range(2):
        LLM(folder, draft="lookup", k=4).generate(PROMPTS, params())
    (file,) = (home / "windows").glob("*.json")
    known = json.loads(file.read_text())["known"]
    greedy, drawn = known[0]["taught"]
    assert sum(tested for _, tested in greedy["places"]) > 20
    assert not any(tested for _, tested in drawn["places"])


@pytest.mark.parametrize("text", ["", "{", "[]", '{"book": 1}', '{"book": {}, "known": []}'])
def test_a_broken_file_is_as_good_as_none(folder: str, home: Path, text: str) -> None:
    def answer() -> list[int]:
        return LLM(folder, draft="lookup", k=4).generate([PROMPTS[0]], params())[0].token_ids

    before = answer()
    (file,) = (home / "windows").glob("*.json")
    file.write_text(text)
    assert answer() == before
    assert json.loads(file.read_text())["known"]


def test_where_nothing_can_be_written_it_is_timed_again(
    folder: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write_text("a file where the folder should be")
    timed = counting(monkeypatch)
    for _ in range(2):
        done = LLM(folder, draft="lookup", k=4).generate([PROMPTS[0]], params())[0]
        assert len(done.token_ids) == 40
    assert timed == [1, 1]


def test_times_are_of_all_sizes_and_in_seconds(folder: str, home: Path) -> None:
    llm = LLM(folder, draft="lookup+self:skip=1", k=6)
    llm.generate([PROMPTS[0]], params())
    controller = llm.parts.controller
    assert isinstance(controller, Adaptive)
    curve = controller.book.curve(1, 1, False).values
    assert len(curve) == 7
    assert 0 < min(curve) <= max(curve) < 1
    lookup, skip = controller.book.steps(1)
    assert 0 <= lookup < skip < 5
    assert torch.is_inference_mode_enabled() is False
