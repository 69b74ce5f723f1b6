"""The record file: whole lines only, torn ones mended, nothing overwritten."""

from __future__ import annotations

import json

import pytest

from paceline.bench import records
from paceline.bench.records import Writer, read, unused
from paceline.errors import PacelineError

RUN = {"kind": "run", "run": "r"}


def prompt(name: str) -> dict[str, str]:
    return {"kind": "prompt", "run": "r", "prompt": name}


def started(path):
    writer = Writer(path)
    for record in (RUN, prompt("a")):
        writer.add(record)
    writer.close()


@pytest.mark.parametrize("torn", ['{"kind": "prompt", "run": "r", "pro', '{"kind": "é'])
def test_a_torn_last_line_does_not_count_and_goes_away(tmp_path, torn):
    path = tmp_path / "b.jsonl"
    started(path)
    with path.open("ab") as file:
        file.write(torn.encode()[: len(torn)])
    assert [record["prompt"] for record in read(path).prompts] == ["a"]
    writer = Writer(path, resume=True)
    writer.add(prompt("b"))
    writer.close()
    assert [record["prompt"] for record in read(path).prompts] == ["a", "b"]
    assert path.read_text().count("\n") == 3


def test_a_last_line_that_only_lacks_its_end_is_kept(tmp_path):
    path = tmp_path / "b.jsonl"
    started(path)
    with path.open("a") as file:
        file.write(json.dumps(prompt("b")))
    assert len(read(path).prompts) == 2
    writer = Writer(path, resume=True)
    writer.add(prompt("c"))
    writer.close()
    assert [record["prompt"] for record in read(path).prompts] == ["a", "b", "c"]


def test_every_line_is_on_the_disk_when_it_is_added(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(records.os, "fsync", lambda file: synced.append(path.read_text()))
    path = tmp_path / "b.jsonl"
    started(path)
    assert [text.count("\n") for text in synced] == [1, 2]


def test_half_of_a_surrogate_pair_is_written_and_read(tmp_path):
    path = tmp_path / "b.jsonl"
    started(path)
    writer = Writer(path, resume=True)
    writer.add(prompt("\ud800"))
    writer.close()
    assert read(path).prompts[-1]["prompt"] == "\ud800"


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    path = tmp_path / "b.jsonl"
    started(path)
    with pytest.raises(PacelineError, match="--resume"):
        Writer(path)
    with pytest.raises(PacelineError, match="cannot write"):
        Writer(tmp_path / "no" / "b.jsonl")
    with pytest.raises(PacelineError, match="cannot write"):
        Writer(tmp_path / "none.jsonl", resume=True)
    empty = Writer(tmp_path / "e.jsonl")
    empty.close()
    assert not (tmp_path / "e.jsonl").exists()


BAD = [
    ("", "holds no run"),
    ('{"kind": "prompt", "run": "r"}\n', "b:1 is no record of a bench"),
    ('{"kind": "run", "run": "r"}\n[1]\n', "b:2 is no record of a bench"),
    ('{"kind": "run", "run": "r"}\n{"kind": "prompt", "run": "s"}\n', "b:2 is no record"),
    ('{"kind": "run", "run": "r"}\n{"kind"\n{"kind": "prompt", "run": "r"}\n', "b:2 is not JSON"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_what_is_no_record_is_named_with_its_line(tmp_path, text, says):
    (tmp_path / "b").write_text(text)
    with pytest.raises(PacelineError, match=says):
        read(tmp_path / "b")


def test_names_that_are_not_taken(tmp_path):
    first = unused(tmp_path)
    assert first.name.startswith("bench-")
    first.touch()
    assert unused(tmp_path).name == first.stem + "-2.jsonl"
