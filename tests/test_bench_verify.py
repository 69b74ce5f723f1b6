"""The figures of benchmarks/verify.py, on answers whose seconds are given."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from paceline.core.stats import Stats
from tiny import write_llama

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import verify  # noqa: E402
from answers import Run  # noqa: E402


def run(rounds: int, emitted: int, seconds: float, overhead: float) -> Run:
    stats = Stats(rounds=rounds, emitted=emitted, overhead_s=overhead)
    return Run(list(range(emitted)), seconds, stats)


def test_figures_are_of_all_answers_together() -> None:
    way = verify.Way("head:x@nodes=auto", "auto", "tree, as it pays", 4)
    runs = [run(10, 20, 2.0, 0.1), run(30, 40, 1.0, 0.9), run(10, 20, 1.0, 0.1)]
    found = verify.row("m", way, 0.6, runs, t1=0.1)
    assert found["tau"] == 80 / 50
    assert found["tokens_per_second"] == 80 / 4
    assert found["verify_share"] == pytest.approx(0.1)  # the median of 0.1, 0.3 and 0.1
    assert (found["draft"], found["verify"]) == ("head:x", "tree, as it pays")


def test_a_head_is_not_asked_for_branches() -> None:
    names = [way.name for way in verify.ways("head:x", [4], 3)]
    assert names == ["token", "block", "tree, as it pays"]
    wide = [way for way in verify.ways("self:int4", [4, 8], 3) if "branches" in way.name]
    assert {(way.draft, way.verify, way.k) for way in wide} == {
        ("self:int4@branches=3", rule, k) for rule in ("kseq", "specinfer") for k in (4, 8)
    }


def test_it_runs_on_a_model_of_one_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    page = tmp_path / "page.md"
    page.write_text("a" + "\n".join(verify.MARKS) + "b", encoding="utf-8")
    model = str(write_llama(tmp_path / "model", layers=5, context=4096))
    options = ["--drafts", "self:skip=1", "--prompts", "1", "--max-tokens", "6", "--ks", "2"]
    assert verify.main(["--models", model, *options, "--page", str(page)]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [row["temperature"] for row in rows[::6]] == [0.0, 0.6, 1.0]
    assert all(row["tau"] >= 1 for row in rows)
    assert page.read_text(encoding="utf-8").count("self:skip=1") == 15
