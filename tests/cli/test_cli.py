"""The command line as a user meets it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tiny import write_llama

KEYS = {
    "model", "draft", "dtype", "text", "token_ids", "finish_reason", "usage", "stats",
}  # fmt: skip
STATS = {
    "rounds", "drafted", "accepted", "alpha", "tau", "alpha_at", "tokens_per_second", "ttft_s",
    "target_s", "draft_s", "overhead_s",
}  # fmt: skip


def only_line(stderr: bytes) -> str:
    """The error, which is the one line there is, but for what was picked on the way to it."""
    lines = [line for line in stderr.decode().splitlines() if not line.startswith("dtype ")]
    assert len(lines) == 1, stderr.decode()
    return lines[0]


def test_json_is_one_object_and_drafting_changes_no_token(paceline, tiny):
    common = ("generate", "abcabcabc", "-m", tiny, "--json", "--max-tokens", "48")
    answers = {}
    for draft in ("none", "lookup", f"model:{tiny}", f"lookup:2+model:{tiny}"):
        done = paceline(*common, "--draft", draft, "--dtype", "fp32")
        assert done.returncode == 0, done.stderr.decode()
        answers[draft] = json.loads(done.stdout)
        assert set(answers[draft]) == KEYS
        assert set(answers[draft]["stats"]) >= STATS
        assert answers[draft]["usage"]["completion_tokens"] == len(answers[draft]["token_ids"])
    plain = answers["none"]
    for answer in answers.values():
        for key in ("text", "token_ids", "finish_reason", "usage"):
            assert answer[key] == plain[key]
    assert plain["stats"]["tau"] == 1
    assert plain["stats"]["alpha"] is None
    assert answers[f"model:{tiny}"]["stats"]["alpha"] == 1  # the target drafts for itself


def test_what_is_lossy_says_so_beside_the_figures(paceline, tiny):
    lossy = paceline("generate", "x", "-m", tiny, "-n", "4", "--lenience", "0.5")
    said = lossy.stderr.decode()
    assert said.strip().endswith("lossy]")
    assert "lenience 0.5: the output is not distributed as the model's own" in said
    sound = paceline("generate", "x", "-m", tiny, "-n", "4")
    assert b"lossy" not in sound.stderr


def test_the_text_goes_to_stdout_and_the_figures_to_stderr(paceline, tiny):
    as_json = paceline("generate", "abc", "-m", tiny, "--json", "-n", "20")
    done = paceline("generate", "-", "-m", tiny, "-n", "20", "--show", stdin=b"abc")
    assert done.returncode == 0
    assert done.stdout.decode() == json.loads(as_json.stdout)["text"] + "\n"
    assert "tokens/s" in done.stderr.decode()
    assert b"\x1b[" not in done.stdout  # colour is for terminals


BAD = [
    (("generate", "x", "-m", "{tiny}", "--k", "-1"), "k must be a whole number from 0 to 32"),
    (("generate", "x", "-m", "{tiny}", "--k", "1000000"), "k must be a whole number"),
    (("generate", "x", "-m", "{tiny}", "--k", "2.5"), "--k"),
    (("generate", "x", "-m", "{tiny}", "--temperature", "-1"), "temperature"),
    (("generate", "x", "-m", "{tiny}", "--top-p", "1.5"), "top_p"),
    (("generate", "x", "-m", "{tiny}", "--max-tokens", "0"), "max_tokens"),
    (("generate", "x", "-m", "{tiny}", "--logit-bias", "a:b"), "--logit-bias"),
    (("generate", "x", "-m", "{tiny}", "--draft", "lookpu"), "did you mean 'lookup'"),
    (("generate", "x", "-m", "{tiny}", "--draft", "lookup:0"), "1 to 64"),
    (("generate", "x", "-m", "{tiny}", "--draft", "lookup:5-3"), "1 to 64"),
    (("generate", "x", "-m", "{tiny}", "--draft", "model:"), "model:NAME"),
    (("generate", "x", "-m", "{tiny}", "--draft", "self:int3"), "did you mean"),
    (("generate", "x", "-m", "{tiny}", "--draft", "self:skip=x"), "self:skip=N"),
    (("generate", "x", "-m", "{tiny}", "--draft", "self:skip=99"), "self:skip=99"),
    (("generate", "x", "-m", "{tiny}", "--draft", "self:skip=auto"), "paceline distill skip"),
    (("generate", "x", "-m", "{tiny}", "--draft", "suffix:0"), "1 to 64"),
    (("generate", "x", "-m", "{tiny}", "--draft", "head:"), "head:DIR_OR_ID"),
    (("generate", "x", "-m", "{tiny}", "--draft", "head:nowhere"), "no such head"),
    (("generate", "x", "-m", "{tiny}", "--suffix-corpus", "f"), "--draft suffix"),
    (
        ("generate", "x", "-m", "{tiny}", "--draft", "model:suffix", "--suffix-corpus", "f"),
        "--draft suffix",
    ),
    (("distill", "head", "-m", "{tiny}"), "--prompts"),
    (("distill", "head", "-m", "{tiny}", "--prompts", "nowhere.jsonl"), "nowhere.jsonl"),
    (("distill", "head", "-m", "{tiny}", "--kind", "medusa"), "jump"),
    (("generate", "x", "-m", "{tiny}", "--verify", "rejectoin"), "did you mean 'rejection'"),
    (("generate", "x", "-m", "{tiny}", "--dtype", "int9"), "int8"),
    (("generate", "x", "-m", "{tiny}", "--device", "gpu"), "gpu"),
    (("generate", "x", "-m", "{tiny}", "--threads", "0"), "threads must be from 1 to"),
    (("generate", "x", "-m", "{tiny}", "--threads", "1000000"), "threads must be from 1 to"),
    (("generate", "x", "-m", "{tiny}", "--dtype", "native"), "native is for GGUF files"),
    (("generate", "x", "-m", "nothing.gguf"), "no such file"),
    (("generate", "x", "-m", "smollm2-135"), "did you mean 'smollm2-135m'"),
    (("generate", "", "-m", "{tiny}"), "the prompt is empty"),
    (("generate", "x" * 600, "-m", "{tiny}"), "512"),
    (("generate", "x", "-m", "{tiny}", "--nonsense"), "--nonsense"),
    (("pull", "smollm3-135m"), "did you mean 'smollm2-135m'"),
    (("pull", "smollm2-135m", "--from", "ftp"), "ftp"),
    (("fly",), "fly"),
]


@pytest.mark.parametrize(("args", "says"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(paceline, tiny, args, says):
    done = paceline(*(arg.format(tiny=tiny) for arg in args))
    assert done.returncode == 2, done.stderr.decode()
    assert says in only_line(done.stderr)
    assert done.stdout == b""


def test_bytes_that_are_not_utf8(paceline, tiny):
    done = paceline("generate", "-m", tiny, stdin=b"half a character: \xe2\x98")
    assert done.returncode == 2
    assert "UTF-8" in only_line(done.stderr)


def test_a_draft_model_of_another_vocabulary_is_translated(paceline, tiny, tmp_path):
    other = write_llama(tmp_path / "other", swap=(40, 41))
    common = ("generate", "x", "-m", tiny, "--json", "-n", "40")
    done = paceline(*common, "--draft", f"model:{other}")
    assert done.returncode == 0, done.stderr.decode()
    assert "shared tokens" in done.stderr.decode()
    plain = paceline(*common, "--draft", "none")
    assert json.loads(done.stdout)["token_ids"] == json.loads(plain.stdout)["token_ids"]


def test_a_padded_head_is_no_other_vocabulary(paceline, tiny, tmp_path):
    wide = write_llama(tmp_path / "wide", vocab=320)
    done = paceline("generate", "x", "-m", tiny, "--draft", f"model:{wide}", "-n", "20", "--json")
    assert done.returncode == 0, done.stderr.decode()
    plain = paceline("generate", "x", "-m", tiny, "--draft", "none", "-n", "20", "--json")
    assert json.loads(done.stdout)["token_ids"] == json.loads(plain.stdout)["token_ids"]


def test_ctrl_c_in_mid_stream_is_130_without_a_traceback(tiny, interrupted):
    # a model this small is done at once: slow rounds keep it running
    args = ["generate", "x", "-m", tiny, "-n", "500", "--ignore-eos", "--draft", "none"]
    code, _, stderr = interrupted(*args)
    assert code == 130
    assert b"Traceback" not in stderr


def test_a_chat_remembers_until_it_is_reset(paceline, tiny):
    lines = "hello\nagain\n/reset\nhello\n/exit\nnever\n"
    done = paceline("chat", "-m", tiny, "-n", "8", "--dtype", "fp32", stdin=lines.encode())
    assert done.returncode == 0, done.stderr.decode()
    answers = [line for line in done.stderr.decode().splitlines() if "tokens/s" in line]
    assert len(answers) == 3
    first = paceline("generate", "hello", "-m", tiny, "-n", "8", "--dtype", "fp32").stdout
    assert done.stdout.startswith(first)
    assert done.stdout.endswith(first)


def test_pull_without_a_name_lists_the_catalog(paceline):
    done = paceline("pull")
    assert done.returncode == 0
    names = [line.split()[0] for line in done.stdout.decode().splitlines()]
    assert names == ["qwen2.5-coder-1.5b", "smollm2-135m", "gemma-3-270m"]


def test_import_is_light():
    code = "import sys, paceline, paceline.cli; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_no_command_is_a_question_for_help(paceline):
    done = paceline()
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == paceline("--help").stdout
    assert b"generate" in done.stdout
