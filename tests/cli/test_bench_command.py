"""`paceline bench` as a user meets it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.bench.records import read


@pytest.fixture
def prompts(tmp_path) -> str:
    path = tmp_path / "p.jsonl"
    lines = [
        {"prompt": "abcabcabc", "category": "code", "name": "one"},
        {"prompt": "hello hello", "category": "chat", "name": "two"},
        {"turns": ["the same, the same", "and again"], "category": "chat", "question_id": 3},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def bench(paceline, tiny, tmp_path):
    """Run it; what it said, and the records."""

    def run(*args, out="b.jsonl", code=0):
        path = str(tmp_path / out)
        where = () if "--resume" in args else ("--out", path)
        few = ("-m", tiny, "--draft", "lookup:3", "-n", "12", "--threads", "1", "--repeats", "2")
        done = paceline("bench", *args, *few, *where)
        assert done.returncode == code, done.stderr.decode()
        return done, path

    return run


def test_a_table_a_sentence_and_the_records(bench, prompts):
    done, path = bench(prompts)
    said = done.stdout.decode()
    for word in ("lookup:3", "r(n) =", "GB/s", "TTFT s", "worst prompt", "code", "chat", "all"):
        assert word in said
    assert "token by token" in said.splitlines()[-1]
    assert "\x1b[" not in said
    assert path in done.stderr.decode()
    log = read(path)
    assert log.run["argv"][:3] == ["paceline", "bench", prompts]
    assert (log.run["draft"], log.run["k"], log.run["max_tokens"]) == ("lookup:3", 8, 12)
    assert log.run["hardware"]["threads"] == 1
    assert log.run["card"]["r"]["1"] == 1
    assert [record["prompt"] for record in log.prompts] == ["one", "two", "3", "3.2"]
    first, turn, again = log.prompts[0], *log.prompts[2:]
    for name in ("plain", "speculative"):
        side = first[name]
        assert len(side["seconds"]) == len(side["ttft_s"]) == len(side["tpot_s"]) == 2
        assert sum(emitted for _, _, emitted, _ in side["round_log"]) == side["tokens"]
        assert len(side["made"]) == side["tokens"]
        assert side["rounds"] == len(side["round_log"])
        assert all(a < b for a, b in zip(side["ttft_s"], side["seconds"], strict=True))
    assert first["plain"]["rounds"] == first["plain"]["tokens"]
    assert all(record["same_tokens"] is True for record in log.prompts)
    # the second turn reads the first one and the answer to it
    assert again["prompt_tokens"] > turn["prompt_tokens"] + turn["plain"]["tokens"]


def test_json_alone_on_stdout_and_a_grid(bench, prompts):
    grid = ("--sweep", "k=1:2 window=fixed", "--sweep", "temperature=0,0.7")
    done, path = bench(prompts, "--limit", "2", *grid, "--json")
    found = json.loads(done.stdout)
    assert found["records"] == path
    assert len(found["cells"]) == 4
    assert all(cell["prompts"] == 2 for cell in found["cells"])
    records = read(path).prompts
    assert len(records) == 8
    for record in records:
        assert record["same_tokens"] is (True if record["cell"]["temperature"] == 0 else None)
        drafted = [drafted for drafted, *_ in record["speculative"]["round_log"]]
        assert max(drafted) <= record["cell"]["k"]
    shown, _ = bench(prompts, "--limit", "1", "--sweep", "k=1:2", out="c.jsonl")
    assert "All cells" in shown.stdout.decode()


def test_a_page_and_figures(bench, prompts, tmp_path):
    done, _ = bench(prompts, "--report", str(tmp_path / "a.html"), "--plots", str(tmp_path / "f"))
    assert "against plain decoding" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert list((tmp_path / "f").glob("*.svg"))
    assert "the page is in" in done.stderr.decode()


def test_a_prompt_that_fails_is_counted_and_the_others_go_on(bench, tmp_path):
    path = tmp_path / "long.jsonl"
    path.write_text(
        '{"turns": ["' + "x" * 600 + '", "y"], "id": "long"}\n{"prompt": "abc", "name": "short"}\n'
    )
    done, out = bench(str(path))
    long, after, short = read(out).prompts
    assert (long["prompt"], long["plain"], long["speculative"]) == ("long", None, None)
    assert "512" in long["error"]
    assert after["error"] == "the turn before it failed"
    assert short["error"] is None
    said = done.stdout.decode()
    assert "failed: long" in said
    assert said.splitlines()[-1].endswith("2 prompts failed.")


def test_a_bench_goes_on_behind_a_torn_line_and_only_as_it_was(bench, prompts):
    _, path = bench(prompts)
    whole = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(b"".join(whole[:3]) + whole[3][:40])
    done, _ = bench(prompts, "--resume", path)
    lines = Path(path).read_bytes().splitlines(keepends=True)
    assert lines[:3] == whole[:3]  # what was there was not measured again
    assert [record["prompt"] for record in read(path).prompts] == ["one", "two", "3", "3.2"]
    assert "4 prompts" in done.stdout.decode()
    again, _ = bench(prompts, "--resume", path, "--json")
    assert Path(path).read_bytes() == b"".join(lines)
    assert json.loads(again.stdout)["prompts"] == 4
    for other, name in ((("--temperature", "0.5"), "temperature"), (("--limit", "1"), "prompts")):
        refused, _ = bench(prompts, "--resume", path, *other, code=2)
        error = refused.stderr.decode().splitlines()
        assert len(error) == 1
        assert f"--resume needs the same settings: {name} was" in error[0]
    assert Path(path).read_bytes() == b"".join(lines)


def test_ctrl_c_leaves_a_file_that_can_be_gone_on_with(tiny, interrupted, paceline, tmp_path):
    path, prompts = tmp_path / "b.jsonl", tmp_path / "p.txt"
    prompts.write_text("abc\ndef\n")
    args = ("bench", str(prompts), "-m", tiny, "--draft", "lookup", "-n", "4", "--repeats", "1")
    code, _stdout, stderr = interrupted(*args, "--out", str(path))
    assert code == 130
    assert b"Traceback" not in stderr
    assert not path.exists()  # nothing had been measured yet
    code = "\n".join([
        "import sys",
        "from paceline.bench import run",
        "answers = run.Bench._answers",
        "def once(self, prompt, *args):",
        "    if prompt.name == 'p.txt:2':",
        "        raise KeyboardInterrupt",
        "    return answers(self, prompt, *args)",
        "run.Bench._answers = once",
        "from paceline.cli import run as main",
        "sys.exit(main())",
    ])  # fmt: skip
    command = [sys.executable, "-c", code, *args, "--out", str(path)]
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert done.returncode == 130, done.stderr.decode()
    assert [record["prompt"] for record in read(path).prompts] == ["p.txt:1"]
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("stopped; to go on: ")
    assert last.endswith(f"--resume {path}")
    on = paceline(*args, "--resume", str(path))
    assert on.returncode == 0, on.stderr.decode()
    assert [record["prompt"] for record in read(path).prompts] == ["p.txt:1", "p.txt:2"]


def test_compare(bench, paceline, prompts):
    _, a = bench(prompts, out="a.jsonl")
    _, b = bench(prompts, "--limit", "2", out="c.jsonl")
    shown = paceline("bench", "compare", a, b)
    assert shown.returncode == 0, shown.stderr.decode()
    said = shown.stdout.decode()
    assert "speedup over plain" in said
    assert "2 prompts are in one of them alone" in said
    found = json.loads(paceline("bench", "compare", a, b, "--json").stdout)
    assert set(found["categories"]) == {"all", "code", "chat"}
    assert found["categories"]["all"]["prompts"] == 2
    itself = json.loads(paceline("bench", "compare", a, a, "--json").stdout)
    assert itself["categories"]["all"]["speedup"]["mean"] == 1
    assert itself["notes"] == []


BAD = [
    (("nowhere.jsonl",), "nowhere.jsonl does not exist"),
    (("{bad}",), "bad.jsonl:2 has none of"),
    (("--suite", "bultin"), "bultin does not exist"),
    (("--categories", "coda"), "did you mean 'code'"),
    (("--limit", "0"), "--limit must be at least 1"),
    (("--repeats", "0"), "--repeats must be at least 1"),
    (("--max-tokens", "0"), "max_tokens"),
    (("--k", "99"), "k must be a whole number"),
    (("--draft", "lookpu"), "did you mean 'lookup'"),
    (("--window", "fixd"), "did you mean 'fixed'"),
    (("--verify", "blok"), "did you mean 'block'"),
    (("--sweep", "k=0:a"), "--sweep k=0:a"),
    (("--alpha", "2"), "--alpha is a chance"),
    (("--threads", "0"), "threads must be from 1"),
    (("--out", "nowhere/b.jsonl"), "cannot write nowhere/b.jsonl"),
    (("--out", "{bad}"), "--resume"),
    (("--resume", "nowhere.jsonl"), "nowhere.jsonl does not exist"),
    (("--resume", "{bad}"), "bad.jsonl:1 is no record of a bench"),
    (("--resume", "x", "--out", "y"), "leave out --out"),
    (("--report", "nowhere/a.html"), "no folder nowhere"),
    (("--plots", "{bad}"), "is no folder"),
    (("--peers", "vlm"), "unknown peer 'vlm'"),
    (("--model", "smollm2-135"), "did you mean 'smollm2-135m'"),
    (("compare", "nowhere.jsonl", "x"), "nowhere.jsonl does not exist"),
    (("compare", "{bad}", "{bad}"), "bad.jsonl:1 is no record of a bench"),
    (("compare", "one"), "Missing argument"),
]


def test_help_names_the_command_as_it_is_typed(paceline):
    done = paceline("bench", "--help")
    assert done.returncode == 0
    assert " ".join(done.stdout.decode().split()).startswith("Usage: paceline bench [OPTIONS]")
    assert b"--sweep" in done.stdout
    assert b"compare" in done.stdout
    other = paceline("bench", "compare", "--help").stdout.decode()
    assert "Usage: paceline bench compare [OPTIONS]" in other


@pytest.mark.parametrize(("args", "says"), BAD)
def test_bad_input_to_bench_is_one_line_and_exit_code_2(paceline, tiny, tmp_path, args, says):
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"prompt": "x"}\n{"promt": "y"}\n')
    given = [arg.format(bad=bad) for arg in args]
    model = () if {"--model", "compare"} & {*given} else ("--model", tiny)
    where = () if {"--out", "--resume", "compare"} & {*given} else ("--out", str(tmp_path / "o"))
    done = paceline("bench", *given, *model, *where)
    assert done.returncode == 2, done.stderr.decode()
    lines = [x for x in done.stderr.decode().splitlines() if not x.startswith("dtype ")]
    assert len(lines) == 1, lines
    assert says in lines[0]
    assert done.stdout == b""
    assert not (tmp_path / "o").exists()


def test_a_bar_with_the_time_left_on_a_terminal(environment, tiny, prompts, tmp_path):
    ours, theirs = pty.openpty()
    args = ("bench", prompts, "-m", tiny, "--draft", "lookup", "-n", "8", "--threads", "1")
    out = ("--out", str(tmp_path / "b.jsonl"))
    with subprocess.Popen(
        [sys.executable, "-m", "paceline", *args, *out],
        stdout=subprocess.DEVNULL, stderr=theirs, env={**environment, "COLUMNS": "120"},
    ) as process:  # fmt: skip
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 4096)
            except OSError:  # how Linux says that nobody writes any more
                break
    os.close(ours)
    assert process.returncode == 0, said.decode()
    assert "answers" in said.decode()
    assert "left" in said.decode()
