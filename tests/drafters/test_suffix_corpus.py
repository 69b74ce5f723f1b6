"""The corpus of earlier outputs: its search, its bound, and its file whatever happens to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.drafters import suffix_corpus, suffix_index
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.drafters.suffix_index import END, SuffixIndex, scan
from paceline.errors import PacelineError

OUTPUTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=12), min_size=1, max_size=8)
CONTEXT = st.lists(st.integers(0, 2), min_size=1, max_size=14)


def text_of(outputs: Sequence[Sequence[int]]) -> np.ndarray:
    return np.array([END, *(t for output in outputs for t in (*output, END))], dtype=np.int32)


def kept(corpus: SuffixCorpus) -> list[list[int]]:
    """The outputs in its index."""
    outputs: list[list[int]] = []
    for token in corpus.index.text.tolist():
        if token == END:
            outputs.append([])
        else:
            outputs[-1].append(token)
    return outputs[:-1]


def saved(path: Path, *outputs: Sequence[int], most: int = 1000, model: str = "a") -> SuffixCorpus:
    corpus = SuffixCorpus(path, model, 100, most)
    for output in outputs:
        corpus.add(output)
    corpus.save()
    return corpus


@settings(deadline=None, max_examples=80)
@given(OUTPUTS, OUTPUTS, CONTEXT, st.sampled_from([1, 3, 8, 24]), st.sampled_from([0, 9, 1000]))
def test_sorted_places_are_those_of_a_scan(old, new, context, depth, unsorted) -> None:
    """Sorted, or sorted in part, and after the oldest outputs went."""
    both, gone = text_of([*old, *new]), len(old[0]) + 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_index, "_UNSORTED", unsorted)
        index = SuffixIndex(text_of(old)).grown(both[gone:], gone)
        ids = np.array(context)
        matched, places = index.find(ids, depth)
    right, where = scan(both[gone:], ids, depth)
    assert (matched, places.tolist()) == (right, where.tolist())


@settings(deadline=None, max_examples=80)
@given(OUTPUTS, CONTEXT, st.sampled_from([1, 3, 8]), st.sampled_from([1, 2, 5]))
def test_of_many_places_only_so_many_are_looked_at(outputs, context, depth, many) -> None:
    text, ids = text_of(outputs), np.array(context)
    right, where = scan(text, ids, depth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suffix_index, "_UNSORTED", 0)
        patch.setattr(suffix_index, "_FEW", 0)
        patch.setattr(suffix_index, "MANY", many)
        matched, places = SuffixIndex(text).find(ids, depth)
    assert matched == right
    assert len(places) == len(where[:: 1 + (len(where) - 1) // many] if len(where) else where)
    assert set(places.tolist()) <= set(where.tolist())


def test_what_is_saved_is_read_again(tmp_path: Path) -> None:
    corpus = saved(tmp_path / "file", [1, 2, 3], [], [4])
    assert kept(corpus) == kept(SuffixCorpus(tmp_path / "file", "a", 100)) == [[1, 2, 3], [4]]
    corpus.add([5])
    assert kept(corpus) == [[1, 2, 3], [4]]  # not before it is saved
    corpus.save()
    corpus.save()
    assert kept(corpus) == [[1, 2, 3], [4], [5]]
    assert sorted(os.listdir(tmp_path)) in (["file", "file.lock"], ["file"])


def test_nothing_is_written_before_something_is_saved(tmp_path: Path) -> None:
    assert kept(SuffixCorpus(tmp_path / "file", "a", 100)) == []
    assert os.listdir(tmp_path) == []


def test_the_oldest_outputs_go_first(tmp_path: Path) -> None:
    """Each output takes its tokens and one for its end, and one stands before the first."""
    corpus = saved(tmp_path / "file", *([i] * 4 for i in range(9)), most=16)
    assert kept(corpus) == [[i] * 4 for i in (6, 7, 8)]
    corpus.add([50] * 5)
    corpus.save()
    assert kept(corpus) == [[8] * 4, [50] * 5]
    assert kept(SuffixCorpus(tmp_path / "file", "a", 100, 16)) == [[8] * 4, [50] * 5]
    assert kept(SuffixCorpus(tmp_path / "file", "a", 100, 8)) == [[50] * 5]
    corpus.add(range(40))
    corpus.save()
    assert kept(corpus) == [list(range(26, 40))]  # one alone is too long: its end
    corpus.add([1])
    corpus.save()
    assert kept(corpus) == [[1]]


def test_the_search_is_right_while_it_grows_and_shrinks(tmp_path: Path, monkeypatch) -> None:
    """As many saves as it takes to sort anew several times and to drop most of what was there; by
    another one too, in the same file."""
    monkeypatch.setattr(suffix_index, "_UNSORTED", 40)
    corpus, other = (SuffixCorpus(tmp_path / "file", "a", 100, 300) for _ in range(2))
    random = np.random.default_rng(0)
    for i in range(60):
        writer = other if i % 5 == 4 else corpus
        writer.add(random.integers(0, 4, 30).tolist())
        writer.save()
        ids = random.integers(0, 4, 9)
        text = writer.index.text
        assert len(text) <= 300
        matched, places = writer.index.find(ids, 6)
        right, where = scan(text, ids, 6)
        assert (matched, places.tolist()) == (right, where.tolist())


def test_two_that_save_in_turn_lose_nothing(tmp_path: Path) -> None:
    a, b = (SuffixCorpus(tmp_path / "file", "a", 100) for _ in range(2))
    for i in range(4):
        for corpus, output in ((a, [i]), (b, [i, 50])):
            corpus.add(output)
            corpus.save()
    assert kept(b) == [[0], [0, 50], [1], [1, 50], [2], [2, 50], [3], [3, 50]]
    assert kept(a) == kept(b)[:-1]


WRITER = """
import sys
from pathlib import Path
from paceline.drafters.suffix_corpus import SuffixCorpus
corpus = SuffixCorpus(Path(sys.argv[1]), "a", 1_000_000, 100_000)
print("ready", flush=True)
for i in range(int(sys.argv[3])):
    corpus.add([int(sys.argv[2]), i % 100] + [7] * 300)
    corpus.save()
"""


def writer(path: Path, tag: int, times: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", WRITER, str(path), str(tag), str(times)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def test_two_processes_lose_nothing(tmp_path: Path) -> None:
    both = [writer(tmp_path / "file", tag, 20) for tag in (1, 2)]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    outputs = kept(SuffixCorpus(tmp_path / "file", "a", 1_000_000))
    assert sorted(tuple(output[:2]) for output in outputs) == [
        (tag, i) for tag in (1, 2) for i in range(20)
    ]


def test_killed_at_any_moment_the_file_is_whole(tmp_path: Path) -> None:
    """What was there before is there after, and the next one writes on."""
    path = tmp_path / "file"
    before = kept(saved(path, [9], most=100_000))
    for wait in (0.003, 0.02, 0.041):
        process = writer(path, 1, 1_000_000)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(wait)
        process.kill()
        process.communicate()
        after = kept(SuffixCorpus(path, "a", 1_000_000))
        assert after[: len(before)] == before
        assert all(output[2:] == [7] * 300 for output in after[1:])
        before = after
    assert kept(saved(path, [8], most=100_000)) == [*before, [8]]


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_save_that_fails_changes_nothing(tmp_path: Path, monkeypatch, failure, call) -> None:
    path = tmp_path / "file"
    corpus = saved(path, [1, 2])
    old = path.read_bytes()
    corpus.add([3])
    with monkeypatch.context() as patch:

        def fail(*args):
            raise failure

        patch.setattr(suffix_corpus.os, call, fail)
        with pytest.raises((PacelineError, KeyboardInterrupt)) as caught:
            corpus.save()
    if isinstance(failure, OSError):
        assert str(caught.value) == f"suffix corpus {path}: No space left on device"
    assert path.read_bytes() == old
    assert not (tmp_path / "file.new").exists()
    corpus.save()
    assert kept(corpus) == [[1, 2], [3]]


def test_any_damage_is_refused_in_one_line_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    saved(path, [1, 2, 3])
    good = path.read_bytes()
    bad = [good[:n] for n in range(len(good))]
    bad += [
        good[:i] + bytes([good[i] ^ flip]) + good[i + 1 :]
        for i in range(len(good))
        for flip in (1, 128)
    ]
    bad += [good + b"\0", b"[" * 4000, b"{}\n", b"[1]\n", b"\0" * 10000, good + good]
    for content in bad:
        path.write_bytes(content)
        with pytest.raises(PacelineError) as caught:
            SuffixCorpus(path, "a", 100)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "another file" in str(caught.value)
        assert path.read_bytes() == content


def test_ids_outside_the_vocabulary_are_refused(tmp_path: Path) -> None:
    saved(tmp_path / "file", [1, 99])
    with pytest.raises(PacelineError, match=r"file .*not in a vocabulary of 50"):
        SuffixCorpus(tmp_path / "file", "a", 50)
    corpus = SuffixCorpus(tmp_path / "file", "a", 100)
    for ids in ([100], [-1], [5, -1, 6]):
        with pytest.raises(ValueError, match="vocabulary of 100"):
            corpus.add(ids)


def test_another_models_file_is_refused_by_name_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    saved(path, [1], model="small")
    mine = r"file holds outputs of small, not of big: give another file"
    with pytest.raises(PacelineError, match=mine):
        SuffixCorpus(path, "big", 100)
    path.unlink()
    corpus = SuffixCorpus(path, "big", 100)
    saved(path, [1], model="small")  # meanwhile
    corpus.add([2])
    with pytest.raises(PacelineError, match=mine):
        corpus.save()
    assert kept(SuffixCorpus(path, "small", 100)) == [[1]]


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    saved(path, [1])
    line, body = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps({**json.loads(line), "version": 2}).encode() + b"\n" + body)
    with pytest.raises(PacelineError, match=r"has format 2, and this Paceline reads 1"):
        SuffixCorpus(path, "a", 100)


def test_a_place_where_no_file_can_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PacelineError, match="its folder does not exist"):
        SuffixCorpus(tmp_path / "no" / "file", "a", 100)
    with pytest.raises(PacelineError, match="not a file"):
        SuffixCorpus(tmp_path, "a", 100)


def test_one_that_is_being_saved_elsewhere_is_waited_for_but_not_for_ever(
    tmp_path: Path, monkeypatch
) -> None:
    from filelock import FileLock

    monkeypatch.setattr(suffix_corpus, "_PATIENCE", 0.05)
    corpus = saved(tmp_path / "file", [1])
    corpus.add([2])
    with (
        FileLock(tmp_path / "file.lock"),
        pytest.raises(PacelineError, match="being written by another process"),
    ):
        corpus.save()
    corpus.save()
    assert kept(corpus) == [[1], [2]]
