"""`paceline check` as a user meets it; the exact part has tests of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paceline.check import run as parts
from paceline.check.exact import Exact
from paceline.cli import run
from tiny import write_llama

FAST = ("--prompts", "2", "--contexts", "2", "--rounds", "1000", "--dtype", "fp32")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(write_llama(tmp_path_factory.mktemp("tiny") / "llama"))


@pytest.fixture
def no_exact(monkeypatch):
    law = Exact("block", "model", "temperature 1", 1, 1e-13, (0, 1, 2), 39)
    monkeypatch.setattr(parts, "check_exact", lambda *args: [law])


@pytest.mark.usefixtures("no_exact")
def test_a_sound_pair_is_0_and_one_json_object(tiny, capsys) -> None:
    assert run(["check", "-m", tiny, "--draft", f"model:{tiny}", "--json", *FAST]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert set(report) >= {"ok", "exact", "greedy", "sampled", "power"}
    assert report["exact"][0]["error"] == 1e-13
    assert report["greedy"]["identical"] == report["greedy"]["prompts"] == 2
    assert report["greedy"]["tau"] > 2  # the target drafts for itself
    forms = [(each["tokens"], each["form"]) for each in report["sampled"]]
    assert forms == [(1, "chain")] * 2 + [(2, "chain"), (2, "two candidates"), (2, "tree, drawn")]
    assert all(0 <= each["adjusted"] <= 1 for each in report["sampled"])
    assert report["power"] == []


@pytest.mark.usefixtures("no_exact")
def test_copies_are_checked_as_point_masses(tiny, capsys) -> None:
    assert run(["check", "-m", tiny, "--draft", "lookup", *FAST]) == 0
    out = capsys.readouterr().out
    assert "2 of 2 answers identical" in out
    assert "BROKEN" not in out


@pytest.mark.usefixtures("no_exact")
@pytest.mark.parametrize("draft", ["none", "lookup:64-64"])
def test_where_nothing_is_drafted_the_target_s_own_law_is_checked(tiny, capsys, draft) -> None:
    assert run(["check", "-m", tiny, "--draft", draft, *FAST]) == 0
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.usefixtures("no_exact")
def test_a_lossy_setting_is_1_and_named(tiny, capsys) -> None:
    other = write_llama(Path(tiny).parent / "other", seed=3)
    args = ["check", "-m", tiny, "--draft", f"model:{other}", "--verify", "typical", *FAST]
    assert run(args) == 1
    done = capsys.readouterr()
    assert "BROKEN" in done.out
    assert "--verify typical is lossy" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--verify", "blok"), "did you mean 'block'"),
        (("--prompts", "0"), "--prompts"),
        (("--draft", "lookup"), "give --model too"),
        (("-m", "smollm2-135"), "did you mean 'smollm2-135m'"),
        (("-m", "{tiny}", "--draft", "lookpu"), "did you mean 'lookup'"),
    ],
)
def test_bad_input_is_2_and_one_line(tiny, capsys, args, says) -> None:
    assert run(["check", *(arg.format(tiny=tiny) for arg in args)]) == 2
    done = capsys.readouterr()
    assert says in done.err
    assert len(done.err.splitlines()) == 1
    assert done.out == ""


def test_ctrl_c_is_130_without_a_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "check"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    process.stderr.readline()  # it is at work
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert out == b""


@pytest.mark.slow
def test_a_real_pair(capsys) -> None:
    assert run(["check", "--model", "smollm2-135m", "--draft", "self:skip=10", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert len(report["sampled"]) == 8 + 4 * 3
    assert report["greedy"]["identical"] == report["greedy"]["prompts"]
