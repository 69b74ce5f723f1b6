"""A whole run: answers given, sampled or both; stopped while answering; what is refused."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from distill.makers import Linear, answers
from paceline.distill.data import read_answers
from paceline.distill.run import Request, distill
from paceline.distill.teacher import Teacher
from paceline.distill.train import Stopped
from paceline.errors import PacelineError
from tiny import write_llama

VOCAB = 257
SEEN: list[tuple[int, dict[str, str]]] = []


def make(teacher: Teacher, vocab: Tensor, given: dict[str, str]) -> Linear:
    SEEN.append((len(vocab), given))
    return Linear(teacher, VOCAB)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("run")
    write_llama(place / "tiny", layers=1)
    (place / "prompts").write_text("\n".join(f"what is {word}" for word in "abcdefgh"))
    lines = "".join(answer.to_line() for answer in answers(12, VOCAB))
    (place / "given.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    return place


@pytest.fixture
def request_(place, tmp_path, monkeypatch) -> Request:
    monkeypatch.setenv("PACELINE_HOME", str(place / "home"))
    return Request(
        make=make, kind="jump", model=str(place / "tiny"), out=str(tmp_path / "out"),
        answers=str(place / "given.jsonl.gz"), tokens=200, batch=64, dtype="fp32", threads=1,
        given={"size": "3"}, vocab=100,
    )  # fmt: skip


def test_given_answers_alone_are_what_is_trained_on(request_):
    SEEN.clear()
    report = distill(request_)
    out = Path(request_.out)
    assert read_answers(out / "answers.jsonl", VOCAB) == answers(12, VOCAB)
    assert SEEN[-1] == (100, {"size": "3"})
    parts = report["data"]
    assert parts["train"]["answers"] + parts["held_out"]["answers"] == 12
    assert report["target"]["name"] == "tiny"
    assert json.loads((out / "config.json").read_text())["target"] == report["target"]
    assert not (out / "checkpoint.pt").exists()
    assert distill(request_) == report
    with pytest.raises(PacelineError, match=r"holds a run with set \{\"size\": \"3\"\}, not \{\}"):
        distill(replace(request_, given={}))
    with pytest.raises(PacelineError, match="with seed 0, not 1"):
        distill(replace(request_, seed=1))


def test_prompts_are_answered_until_there_are_a_third_as_many_tokens(request_, place):
    known = sum(len(answer.completion_ids) for answer in answers(12, VOCAB))
    both = replace(request_, prompts=str(place / "prompts"), tokens=3 * (known + 100))
    report = distill(both)
    made = read_answers(Path(both.out) / "answers.jsonl", VOCAB)
    assert made[:12] == answers(12, VOCAB)
    fresh = made[12:]
    assert 100 <= sum(len(answer.completion_ids) for answer in fresh) < 100 + 8
    assert {answer.prompt[:8] for answer in fresh} == {"what is "}
    assert report["tokens_trained"] >= both.tokens


def test_stopped_while_answering_it_goes_on_with_the_next_answer(request_, place):
    fresh = replace(request_, answers=None, prompts=str(place / "prompts"), tokens=2000)
    whole = distill(replace(fresh, out=fresh.out + "-whole"))
    asked = iter(range(10**9))
    with pytest.raises(Stopped):
        distill(fresh, stopped=lambda: next(asked) > 300)
    path = Path(fresh.out) / "answers.jsonl"
    # a kill leaves no more than whole answers and half of one
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1]) + lines[1][:30])
    report = distill(fresh)
    assert report["tokens_trained"] >= 2000
    assert report["data"]["train"]["prompts"] == whole["data"]["train"]["prompts"]


def test_a_run_by_time_answers_for_a_third_of_it_and_ends_in_time(request_, place):
    timed = replace(
        request_, answers=None, prompts=str(place / "prompts"), tokens=None, minutes=0.05
    )
    report = distill(timed)
    run = json.loads((Path(timed.out) / "run.json").read_text())
    assert 0 < run["answering"]["seconds"] < 5  # one second, and what a step takes
    assert report["tokens_trained"] > 0
    assert report["seconds"] < 12


def test_answers_of_another_model_are_refused_and_leave_nothing(request_, tmp_path):
    lines = "".join(answer.to_line() for answer in answers(3, 9999))
    (tmp_path / "other").write_text(lines)
    with pytest.raises(PacelineError, match=r"other:1: token .* but the model has 257; was this"):
        distill(replace(request_, answers=str(tmp_path / "other")))
    assert not Path(request_.out).exists()


def test_the_same_request_gives_the_same_weights(request_):
    torch.manual_seed(123)
    first = distill(request_)
    torch.manual_seed(456)
    again = distill(replace(request_, out=request_.out + "2"))
    weights = [(Path(r["out"]) / "model.safetensors").read_bytes() for r in (first, again)]
    assert weights[0] == weights[1]
