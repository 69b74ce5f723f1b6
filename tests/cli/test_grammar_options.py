"""`paceline generate --json-schema` and `--grammar`."""

from __future__ import annotations

import json

import pytest

from paceline.cli import run

SCHEMA = {
    "type": "object",
    "properties": {"on": {"type": "boolean"}, "of": {"enum": ["a", "b"]}},
    "required": ["on", "of"],
    "additionalProperties": False,
}


@pytest.fixture
def files(tmp_path):
    contents = {
        "schema.json": json.dumps(SCHEMA).encode(),
        "digits.lark": b'start: "{" /[0-9]{2,4}/ "}"',
        "cut.json": b"{",
        "list.json": b"[]",
        "typo.json": b'{"type": "strin"}',
        "typo.lark": b"start: foo",
        "latin.lark": b"start: \xe4",
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_the_answer_is_what_the_file_asks_for_and_drafting_changes_nothing(tiny, files, capsys):
    texts = set()
    common = ["generate", "abcabc", "-m", tiny, "-t", "1", "--seed", "3", "--deterministic"]
    for draft in ("none", "lookup"):
        schema = ["--json-schema", str(files / "schema.json")]
        assert run([*common, *schema, "--draft", draft, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        value = json.loads(report["text"])
        assert set(value) == {"on", "of"}
        assert value["on"] in (True, False)
        assert value["of"] in ("a", "b")
        assert report["finish_reason"] == "stop"
        texts.add(report["text"])
    assert len(texts) == 1
    assert run([*common, "--grammar", str(files / "digits.lark"), "--json"]) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert text[0] + text[-1] == "{}"
    assert text[1:-1].isdigit()


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--json-schema", "{at}/none.json"), "cannot read"),
        (("--json-schema", "{at}"), "cannot read"),
        (("--json-schema", "{at}/cut.json"), "cut.json is not JSON"),
        (("--json-schema", "{at}/list.json"), "must hold a JSON object"),
        (("--json-schema", "{at}/typo.json"), "Invalid type: strin"),
        (("--grammar", "{at}/typo.lark"), "unknown name"),
        (("--grammar", "{at}/latin.lark"), "not text in UTF-8"),
        (("--grammar", "{at}/digits.lark", "--json-schema", "{at}/schema.json"), "not both"),
        (("--grammar", "{at}/digits.lark", "--ignore-eos"), "leave out ignore_eos"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_exit_code_2(tiny, files, capsys, args, says):
    given = [arg.replace("{at}", str(files)) for arg in args]
    assert run(["generate", "x", "-m", tiny, "--dtype", "fp32", *given]) == 2
    said = capsys.readouterr().err
    lines = [line for line in said.splitlines() if not line.startswith("dtype ")]
    assert len(lines) == 1, said
    assert says in lines[0]
