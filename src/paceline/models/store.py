"""Paceline's cache folder, and whether a model that lies in it is the one it should be."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.models.catalog import Entry
from paceline.models.progress import Note, Progress

if TYPE_CHECKING:
    from hashlib import _Hash

BLOCK = 1 << 20


def cache_home() -> Path:
    """Paceline's cache folder: $PACELINE_HOME, else `paceline` in the user's cache folder."""
    if home := os.environ.get("PACELINE_HOME"):
        return Path(home).expanduser()
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base).expanduser() / "paceline"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "paceline"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
        return Path(local) / "paceline" / "cache"
    return Path.home() / ".cache" / "paceline"


def model_path(entry: Entry, home: Path | None = None) -> Path:
    """Where the file of `entry` lies once it is there; `home` None is `cache_home()`."""
    return (cache_home() if home is None else Path(home)) / "models" / entry.file


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def present(entry: Entry, home: Path | None = None) -> Path | None:
    """The file of `entry`, if it is on disk as it was when it was verified; else None.

    Size and time of change are compared with the stamp, FILE.ok; the bytes are not read.
    """
    path = model_path(entry, home)
    try:
        return path if json.loads(beside(path, ".ok").read_text()) == _state(path, entry) else None
    except (OSError, ValueError):
        return None


def stamp(path: Path, entry: Entry) -> None:
    """Record that `path` was verified to be `entry`."""
    temporary = beside(path, ".ok.new")
    temporary.write_text(json.dumps(_state(path, entry)))
    os.replace(temporary, beside(path, ".ok"))


def _state(path: Path, entry: Entry) -> dict[str, str | int]:
    stat = path.stat()
    if stat.st_size != entry.size:
        raise ValueError(f"{path} has not the size of {entry.name}")
    return {"sha256": entry.sha256, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}


def digest_of(path: Path, progress: Progress) -> tuple[_Hash, int]:
    """The SHA-256 so far, which can be continued, and the number of bytes that went into it."""
    digest, done, total = hashlib.sha256(), 0, path.stat().st_size
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
            done += len(block)
            progress(done, total, "checking")
    return digest, done


def verified(path: Path, entry: Entry, progress: Progress, note: Note) -> bool:
    """Whether `path` holds `entry`, by its bytes; if so it is stamped."""
    if not path.exists():
        return False
    if path.stat().st_size == entry.size:
        digest, _ = digest_of(path, progress)
        if digest.hexdigest() == entry.sha256:
            stamp(path, entry)
            return True
    note(f"{path} is not the file that the catalog names; it will be replaced")
    return False


def packed_folder() -> Path:
    """Where packed weights are kept: $PACELINE_PACKED, else in Paceline's cache folder."""
    return Path(os.environ.get("PACELINE_PACKED") or cache_home() / "packed")
