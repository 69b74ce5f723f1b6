"""The file of a trace: what is written is what is read, and nothing else is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from traced import GREEDY, HOT, generator, record

from paceline.errors import PacelineError
from paceline.text.decisions import Verifying
from paceline.text.trace import RoundTrace
from paceline.text.trace_file import line, read


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "good.jsonl"
    record(path, generator("model", Verifying()), HOT, Verifying())
    return path


def test_what_is_read_is_what_was_written(good) -> None:
    lines = good.read_text(encoding="utf-8").splitlines(keepends=True)
    assert [line(each.to_dict()) for each in read(str(good)).rounds] == lines[1:-1]


def test_a_torn_last_line_is_left_out_with_a_note(good) -> None:
    whole = good.read_bytes()
    good.write_bytes(whole[:-20])
    trace = read(str(good))
    assert trace.end is None
    assert trace.notes == ["the last line was torn and is left out", "the run was cut short"]
    good.write_bytes(whole[:-1])  # only the end of the line is missing
    assert read(str(good)).notes == []


def test_numbers_that_are_none_become_null_and_come_back(good) -> None:
    first = read(str(good)).rounds[0]
    node = replace(first.nodes[0], p=math.nan, need=math.inf)
    there = json.loads(line(replace(first, nodes=[node], drafted=1, accepted=0).to_dict()))
    assert (there["nodes"][0]["p"], there["nodes"][0]["need"]) == (None, None)
    back = RoundTrace.from_dict(there).nodes[0]
    assert math.isnan(back.p)
    assert back.need is None


BAD = [
    b"", b"\n", b"{}\n", b"[1]\n", b"no\n", b"\xff\xfe\n", b'{"kind": "round"}\n',
    b'{"kind": "trace"}\n', b'{"kind": "trace", "format": 99}\n', b'{"kind": "trace", "fo',
    b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, content) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(PacelineError, match=r"no trace|of format") as caught:
        read(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(RoundTrace.__dataclass_fields__))
def test_a_round_with_a_broken_field_is_refused_with_its_line(good, name) -> None:
    lines = good.read_text(encoding="utf-8").splitlines()
    made = json.loads(lines[1])
    for broken in (object, {"x": 1}, [[1]], [{"id": "a"}], "x"):
        made[name] = broken
        if broken is object:
            del made[name]
        good.write_text("\n".join([lines[0], json.dumps(made), *lines[2:]]), encoding="utf-8")
        with pytest.raises(PacelineError, match="line 2, is no round"):
            read(str(good))


def test_a_file_that_cannot_be_written(tmp_path) -> None:
    with pytest.raises(PacelineError, match=r"--trace .* cannot be written"):
        record(tmp_path / "no" / "t.jsonl", generator("none", Verifying()), GREEDY, Verifying())
