"""`paceline advise` as a user meets it."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def prompts(tmp_path) -> str:
    path = tmp_path / "prompts.txt"
    path.write_text("abcabcabc\nthe same, the same\n")
    return str(path)


def test_a_table_or_json_and_a_page(paceline, tiny, prompts, tmp_path):
    page = tmp_path / "a.html"
    common = ("advise", "-m", tiny, "--draft", "lookup:3", "--prompts", prompts, "--threads", "1")
    done = paceline(*common, "--dtype", "fp32", "--k", "2", "--report", str(page), "--json")
    assert done.returncode == 0, done.stderr.decode()
    found = json.loads(done.stdout)
    assert [row["draft"] for row in found["drafters"]] == ["none", "lookup:3"]
    assert found["drafters"][1]["k"] == 2
    assert found["advice"]["command"].startswith(f"paceline generate --model {tiny} --dtype fp32")
    assert "lookup:3" in page.read_text(encoding="utf-8")
    assert str(page) in done.stderr.decode()
    shown = paceline(*common, "--batch", "1,2")
    assert shown.returncode == 0, shown.stderr.decode()
    said = shown.stdout.decode()
    for word in ("lookup:3", "memory-bound", "2 rows", "paceline generate --model"):
        assert word in said
    assert "\x1b[" not in said  # colour is for terminals


BAD = [
    (("--prompts", "nowhere.jsonl"), "nowhere.jsonl does not exist"),
    (("--prompts", "{empty}"), "has no prompts"),
    (("--k", "0"), "windows from 1"),
    (("--k", "x"), "--k x"),
    (("--model", "smollm2-135"), "did you mean 'smollm2-135m'"),
    (("--model", "nothing.gguf"), "no such file"),
    (("--draft", "lookpu"), "did you mean 'lookup'"),
    (("--report", "{empty}/a.html"), "no folder"),
    (("--report", "nowhere/a.html"), "no folder nowhere"),
    (("--batch", "0"), "rows, 1 to 64"),
    (("--batch", "x"), "--batch x"),
    (("--threads", "0"), "threads must be from 1"),
    (("--alpha", "0.8"), "--alpha is for --what-if"),
    (("--what-if",), "--alpha"),
    (("--what-if", "--alpha", "0.8", "--c", "0.1", "--draft", "suffix"), "leave out"),
    (("--what-if", "--alpha", "0.8", "--c", "0.1", "--batch", "1,2"), "one --batch"),
    (("--nonsense",), "--nonsense"),
]


@pytest.mark.parametrize(("args", "says"), BAD)
def test_bad_input_to_advise_is_one_line_and_exit_code_2(paceline, tiny, tmp_path, args, says):
    empty = tmp_path / "empty"
    empty.write_text("\n")
    given = [arg.format(empty=empty) for arg in args]
    model = () if {"--model", "--what-if"} & {*given} else ("--model", tiny)
    done = paceline("advise", *model, *given)
    assert done.returncode == 2, done.stderr.decode()
    lines = [x for x in done.stderr.decode().splitlines() if not x.startswith("dtype ")]
    assert len(lines) == 1, lines
    assert says in lines[0]
    assert done.stdout == b""


def test_a_prompt_that_the_context_does_not_hold(paceline, tiny, tmp_path):
    long = tmp_path / "long"
    long.write_text("x" * 600)
    done = paceline("advise", "-m", tiny, "--draft", "lookup", "--prompts", str(long))
    assert done.returncode == 2
    assert "512" in done.stderr.decode().splitlines()[-1]


def test_what_if_needs_no_model(paceline):
    done = paceline("advise", "--what-if", "--alpha", "0.8", "--c", "0.05", "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["best"]["k"] == 8


def test_ctrl_c_while_it_measures_is_130_and_quiet(tiny, interrupted, prompts):
    code, stdout, stderr = interrupted("advise", "-m", tiny, "--prompts", prompts)
    assert code == 130
    assert stdout == b""
    assert b"Traceback" not in stderr
