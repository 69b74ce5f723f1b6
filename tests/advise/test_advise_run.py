"""All of it on a tiny model: what comes out is consistent, whatever the clock says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.advise.plan import LONGEST
from paceline.advise.report import page
from paceline.advise.request import Request, parse_batch
from paceline.advise.run import MOST_PROMPTS, Report, chosen, run
from paceline.errors import PacelineError
from paceline.text.prompts import Prompt
from tiny import write_llama

PROMPTS = [("abcabcabc abc", "code"), ("the same, the same", "chat"), ("x", "code")]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("advise")


@pytest.fixture(scope="module")
def model(home: Path) -> str:
    return str(write_llama(home / "target", layers=5))


@pytest.fixture(scope="module")
def report(home: Path, model: str) -> Report:
    lines = [json.dumps({"prompt": text, "kind": kind}) for text, kind in PROMPTS]
    (home / "prompts.jsonl").write_text("\n".join(lines))
    request = Request(
        model=model,
        drafts=("lookup:3", "lookup:3+self:skip=1", f"model:{model}", "head:nowhere", "none"),
        prompts=str(home / "prompts.jsonl"),
        batch=(1, 2),
        k="1:4",
        dtype="fp32",
        threads=1,
        seconds=1e6,  # as much as it may do of everything, whatever the clock says
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(home / "home"))
        return run(request, lambda *heard: None, lambda line: None)


def test_every_drafter_has_a_row_and_what_cannot_be_had_its_reason(
    report: Report, model: str
) -> None:
    assert [row.draft for row in report.rows] == [
        "none", "lookup:3", "lookup:3+self:skip=1", f"model:{model}", "head:nowhere",
    ]  # fmt: skip
    assert report.rows[-1].error is not None
    assert "no such head" in report.rows[-1].error
    assert [row.drafts for row in report.rows] == [False, True, True, True, False]


def test_the_target_drafts_for_itself_without_a_fault(report: Report) -> None:
    perfect = report.rows[3]
    assert perfect.alpha == 1.0
    assert perfect.alpha_at == (1.0, 1.0, 1.0, 1.0)
    assert perfect.heat is not None
    assert perfect.heat.alpha_greedy == 1.0
    assert perfect.heat.alpha == pytest.approx(1.0, abs=1e-4)  # p is q


def test_figures_hang_together(report: Report) -> None:
    assert [passes.batch for passes in report.passes] == [1, 2]
    assert [(asked.kind, asked.answer) for asked in report.asked] == [
        ("code", LONGEST), ("chat", LONGEST), ("code", LONGEST),
    ]  # fmt: skip
    for row in report.rows:
        if not row.drafts:
            continue
        assert list(row.curve) == [1, 2, 3, 4]
        assert row.predicted == row.curve[row.k]
        assert list(row.kinds) == ["code", "chat"]
        assert list(row.lengths) == ["to_100", "beyond_100"]
        assert list(row.batches) == [2]
        assert 1 <= row.tau <= row.k + 1
        trial = row.trial
        assert trial is not None
        assert trial.same
        assert trial.tokens == sum(part.trial.tokens for part in row.kinds.values() if part.trial)
        assert 1 / 1.11 < row.expected / row.predicted < 1.11


def test_the_json_and_the_page_name_them_all(report: Report) -> None:
    found = json.loads(json.dumps(report.to_dict()))
    assert [each["draft"] for each in found["drafters"]] == [row.draft for row in report.rows]
    shown = page(report)
    for row in report.rows:
        assert f">{row.draft}</td>" in shown or f"<li>{row.draft}: " in shown


def test_prompts_are_chosen_from_every_kind() -> None:
    given = [Prompt(str(i), kind) for i, kind in enumerate(["a"] * 8 + ["b", "b", "c"])]
    picked = chosen(given)
    assert [prompt.text for prompt in picked] == ["0", "8", "10", "1", "9", "2"]
    assert len(picked) == MOST_PROMPTS
    assert chosen(given[:2]) == given[:2]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"k": "0"}, "windows from 1"),
        ({"k": "4:1"}, "the smaller one first"),
        ({"k": "x"}, "write one window"),
        ({"k": "1:33"}, "0 to 32"),
        ({"batch": (0,)}, "rows, 1 to 64"),
        ({"batch": (1, 65)}, "rows, 1 to 64"),
        ({"drafts": ("lookpu",)}, "did you mean 'lookup'"),
        ({"drafts": ("lookup:0",)}, "1 to 64"),
        ({"report": "nowhere/a.html"}, "no folder nowhere"),
        ({"report": "."}, "is a folder"),
    ],
)
def test_what_means_nothing_is_refused(wrong: dict, said: str) -> None:
    with pytest.raises(PacelineError, match=said):
        Request(**wrong)


def test_batches_by_word() -> None:
    assert parse_batch("4,1,2,2") == (1, 2, 4)
    for text in ("x", "", "1,", "1.5"):
        with pytest.raises(PacelineError, match="numbers of rows"):
            parse_batch(text)
