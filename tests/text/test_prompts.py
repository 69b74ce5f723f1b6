"""Files of prompts."""

from __future__ import annotations

import gzip

import pytest

from paceline.errors import PacelineError
from paceline.text.prompts import Prompt, read_prompts


def test_json_lines_and_plain_lines_each_once_in_order(tmp_path):
    path = tmp_path / "p"
    path.write_text('{"prompt": "b\\nc"}\n\n{"prompt": "a", "n": 1}\n{"prompt": "b\\nc"}\n')
    assert read_prompts(path) == [Prompt("b\nc"), Prompt("a")]
    path.write_text("what is\n\n  a tree?  \nwhat is\n{x}\n")
    assert read_prompts(path) == [Prompt("what is"), Prompt("a tree?"), Prompt("{x}")]


def test_a_prompt_keeps_the_kind_that_it_came_with_first(tmp_path):
    path = tmp_path / "p.gz"
    lines = (
        '{"prompt": "a", "kind": "code"}\n{"prompt": "a", "kind": "chat"}\n'
        '{"prompt": "b", "kind": 3}\n{"prompt": "c", "kind": " "}\n'
    )
    path.write_bytes(gzip.compress(lines.encode()))
    assert read_prompts(path) == [Prompt("a", "code"), Prompt("b"), Prompt("c")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"prompt": "a"}\n{"prompt": "b"\n', r"p:2 is not JSON"),
        ('{"prompt": "a"}\n{"promt": "b"}\n', r'p:2 has no prompt: each line must be \{"prom'),
        ('{"prompt": "a"}\n\n["b"]\n', r"p:3 is no JSON object"),
        ('{"prompt": 3}\n', r"p:1 has no prompt"),
        ("\n \n", r"p has no prompts"),
    ],
)
def test_what_is_none_is_refused_with_its_line(tmp_path, text, message):
    (tmp_path / "p").write_text(text)
    with pytest.raises(PacelineError, match=message):
        read_prompts(tmp_path / "p")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(PacelineError, match="does not exist"):
        read_prompts(tmp_path / "none")
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    with pytest.raises(PacelineError, match="is not UTF-8"):
        read_prompts(tmp_path / "latin")
