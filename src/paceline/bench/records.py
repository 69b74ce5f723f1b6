"""The file of a bench: JSON lines that are only ever added to, each one safe once it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError

Record = dict[str, Any]


@dataclass(frozen=True)
class Log:
    """What a file holds: the settings of its `run`, its `prompts` and its `peers`."""

    run: Record
    prompts: list[Record] = field(default_factory=list[Record])
    peers: list[Record] = field(default_factory=list[Record])


def read(path: str | Path) -> Log:
    """The records of a file. A last line that was torn (the machine went down) does not count.
    Raises PacelineError, with file and line, for what is no such file."""
    lines = _bytes(Path(path)).split(b"\n")
    log: Log | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError:
            if number == len(lines):
                break
            raise PacelineError(f"{path}:{number} is not JSON: no file of a bench") from None
        kind = record.get("kind") if isinstance(record, dict) else None
        if kind == "run" and log is None:
            log = Log(record)
        elif log is None or kind not in ("prompt", "peer") or record.get("run") != log.run["run"]:
            raise PacelineError(f"{path}:{number} is no record of a bench")
        else:
            (log.prompts if kind == "prompt" else log.peers).append(record)
    if log is None:
        raise PacelineError(f"{path} holds no run of a bench")
    return log


class Writer:
    """Adds to a file, line by line, each on the disk before the next thing is measured."""

    def __init__(self, path: str | Path, *, resume: bool = False) -> None:
        """`resume`: go on with a file, behind its last whole line; otherwise the file must be new.
        Raises PacelineError for what is the other way round, or cannot be written."""
        self.path = Path(path)
        flags = os.O_RDWR | os.O_APPEND if resume else os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            self._file = os.open(self.path, flags, 0o644)
        except FileExistsError:
            raise PacelineError(
                f"{path} is there already: go on with it by --resume {path}, or give another --out"
            ) from None
        except OSError as error:
            raise PacelineError(f"cannot write {path}: {error.strerror}") from None
        if resume:
            self._mend()

    def add(self, record: Mapping[str, Any]) -> None:
        """Write a record down for good. Raises PacelineError where the disk is full."""
        self._write(json.dumps(record, ensure_ascii=False).encode(errors="backslashreplace"))

    def close(self) -> None:
        """May be called more than once; a file to which nothing was written goes away."""
        if self._file < 0:
            return
        size = os.fstat(self._file).st_size
        os.close(self._file)
        self._file = -1
        if not size:
            with suppress(OSError):
                self.path.unlink()

    def _mend(self) -> None:
        """End the last line if it is whole, and take it away if it is torn."""
        data = _bytes(self.path)
        _, _, last = data.rpartition(b"\n")
        if not last:
            return
        try:
            json.loads(last)
        except ValueError:
            os.ftruncate(self._file, len(data) - len(last))
        else:
            self._write(b"")

    def _write(self, line: bytes) -> None:
        data = line + b"\n"
        try:
            while data:  # a signal may cut a write short
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise PacelineError(f"cannot write {self.path}: {error.strerror}") from None


def unused(folder: Path | None = None) -> Path:
    """bench-DATE.jsonl, or with a number behind the date, where that is taken."""
    folder = Path() if folder is None else folder
    stem = f"bench-{date.today().isoformat()}"
    names = (f"{stem}{f'-{n}' if n > 1 else ''}.jsonl" for n in range(1, 10_000))
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise PacelineError(f"{path} does not exist") from None
    except OSError as error:
        raise PacelineError(f"cannot read {path}: {error.strerror}") from None
