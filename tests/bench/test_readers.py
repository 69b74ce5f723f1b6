"""Every kind of file of prompts, as it should be and as it should not."""

from __future__ import annotations

import gzip
import json

import pytest

from paceline.bench.readers import read
from paceline.errors import PacelineError


def write(tmp_path, text: str, name: str = "p.jsonl") -> str:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return str(tmp_path / name)


def facts(path: str) -> list[tuple[str, str, str, str | None]]:
    return [(p.name, p.category, p.messages[-1]["content"], p.follows) for p in read(path)]


def test_spec_bench_and_mt_bench(tmp_path):
    lines = [
        {"question_id": 81, "category": "writing", "turns": ["first", "second"], "reference": []},
        {"question_id": 82, "category": "qa", "turns": ["only"]},
    ]
    path = write(tmp_path, "\n".join(map(json.dumps, lines)) + "\n")
    assert facts(path) == [
        ("81", "writing", "first", None),
        ("81.2", "writing", "second", "81"),
        ("82", "qa", "only", None),
    ]


def test_human_eval_in_gzip(tmp_path):
    line = {"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "test": "x"}
    (tmp_path / "h.jsonl.gz").write_bytes(gzip.compress(json.dumps(line).encode()))
    assert facts(str(tmp_path / "h.jsonl.gz")) == [("HumanEval/0", "code", "def f():\n", None)]


SHARED = [
    {"id": "a", "conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "?"}]},
    {
        "id": "b",
        "conversations": [
            {"from": "system", "value": "be brief"},
            {"from": "human", "value": "why?"},
            {"from": "gpt", "value": "so"},
            {"from": "human", "value": "and?"},
        ],
    },
]


@pytest.mark.parametrize("as_lines", [True, False])
def test_share_gpt_as_lines_or_as_one_array(tmp_path, as_lines):
    whole = "\n".join(map(json.dumps, SHARED)) if as_lines else json.dumps(SHARED, indent=1)
    path = write(tmp_path, whole, "s.json")
    assert facts(path) == [("a", "chat", "hi", None), ("b", "chat", "why?", None)]
    assert [message["role"] for message in read(path)[1].messages] == ["system", "user"]


def test_plain_lines_with_a_prompt_or_messages(tmp_path):
    chat = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    text = (
        '\ufeff{"prompt": "a\\u2028b", "name": "n", "category": "code"}\n\n'
        '{"prompt": "c\u2028d", "kind": "chat"}\n' + json.dumps({"messages": chat}) + "\n"
    )
    assert facts(write(tmp_path, text)) == [
        ("n", "code", "a\u2028b", None),
        ("p.jsonl:3", "chat", "c\u2028d", None),
        ("p.jsonl:4", "other", "x", None),
    ]


def test_text_has_one_prompt_a_line_whatever_it_begins_with(tmp_path):
    expected = [("t.txt:1", "other", "{a", None), ("t.txt:3", "other", "b c", None)]
    assert facts(write(tmp_path, "{a\n \n  b c \n", "t.txt")) == expected
    assert [p.name for p in read(write(tmp_path, "one\ntwo\n", "t"))] == ["t:1", "t:2"]


GOOD = '{"prompt": "x"}\n'
BAD = [
    (GOOD + '{"prompt": "b"\n', "p.jsonl:2 is not JSON"),
    (GOOD + "[1]\n", "p.jsonl:2 is no JSON object"),
    (GOOD + '{"promt": "b"}\n', "p.jsonl:2 has none of 'turns', 'conversations'"),
    (GOOD + '{"prompt": 3}\n', "p.jsonl:2 has a \"prompt\" without text: '3'"),
    (GOOD + '{"prompt": " "}\n', 'p.jsonl:2 has a "prompt" without text'),
    (GOOD + '{"prompt": "b", "category": 7}\n', "p.jsonl:2 has a category that is no text: 7"),
    (GOOD + '{"turns": []}\n', "p.jsonl:2 has no turns"),
    (GOOD + '{"turns": "a"}\n', "p.jsonl:2 has no turns"),
    (GOOD + '{"turns": ["a", null]}\n', 'p.jsonl:2 has a "turns" without text'),
    (GOOD + '{"conversations": {"from": "human"}}\n', "p.jsonl:2 has no conversations"),
    (GOOD + '{"conversations": ["a"]}\n', "p.jsonl:2 has no conversations"),
    (GOOD + '{"conversations": [{"from": "gpt", "value": "a"}]}\n', "p.jsonl:2 has no user's turn"),
    (GOOD + '{"conversations": [{"from": "human"}]}\n', 'p.jsonl:2 has a "value" without text'),
    (GOOD + '{"messages": 1}\n', "p.jsonl:2 has no messages"),
    (GOOD + '{"messages": [{"content": "a"}]}\n', 'p.jsonl:2 has a message without a "role"'),
    (GOOD + '{"messages": [{"role": "user"}]}\n', 'p.jsonl:2 has a "content" without text'),
    (GOOD + '{"messages": [{"role": "system", "content": "a"}]}\n', "has no user's turn"),
    ('{"prompt": "a", "name": "n"}\n{"prompt": "b", "name": "n"}\n', "p.jsonl:2 is called 'n'"),
    ('[{"prompt": "a"},\n {"prompt": ""}]', 'p.jsonl:2 has a "prompt" without text'),
    ('[{"prompt": "a"},\n\n 5]', "p.jsonl:3 is no JSON object"),
    ('[{"prompt": "a"},\n {"prompt": "b"\n', "p.jsonl:3 is not JSON"),
    ("[]", "p.jsonl has no prompts"),
    ("\n\n", "p.jsonl has no prompts"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_what_is_malformed_is_named_with_its_line(tmp_path, text, says):
    with pytest.raises(PacelineError) as raised:
        read(write(tmp_path, text))
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_files_that_are_none(tmp_path):
    with pytest.raises(PacelineError, match="does not exist"):
        read(tmp_path / "nowhere")
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    with pytest.raises(PacelineError, match="is not UTF-8"):
        read(tmp_path / "latin")
    (tmp_path / "torn.jsonl.gz").write_bytes(gzip.compress(GOOD.encode())[:-9])
    with pytest.raises(PacelineError, match="cannot be read"):
        read(tmp_path / "torn.jsonl.gz")
