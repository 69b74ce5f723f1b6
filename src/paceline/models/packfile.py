"""The file that packed weights are kept in: blobs, then an index, then the index's length.

Everything is written once, front to back, under a temporary name, so that a file under its own
name is always whole. It is read with plain reads, not mapped, where the bytes are only passed on:
they then take no memory beside what is made of them.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import shutil
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from paceline.errors import PacelineError
from paceline.models.progress import Note, megabytes

_MAGIC = b"PACELIN2"
_TAIL = struct.Struct("<QI8s")  # the index's length and its CRC-32, then the magic
_ALIGN = 64
_STALE = 3600  # seconds after which a temporary file has no owner any more


class PackWriter:
    """Writes `path` as tensors come in; `close` makes it visible. `total`: the bytes to expect.

    A file that cannot be written is given up, said once to `note`, and never an error.
    """

    def __init__(self, path: Path, total: int, note: Note) -> None:
        self._path = path
        self._temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
        self._note = note
        self._index: dict[str, dict[str, Any]] = {}
        self._file: Any = None
        try:
            if path.parent.exists() and not path.parent.is_dir():
                raise OSError("it is not a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            _sweep(path.parent)
            free = shutil.disk_usage(path.parent).free
            if free < total * 1.02:
                raise OSError(f"it needs {megabytes(total)} and {megabytes(free)} are free")
            self._file = open(self._temporary, "wb")  # noqa: SIM115
        except OSError as error:
            self._give_up(error)

    def add(self, key: str, parts: Mapping[str, Tensor | None], **facts: int | str) -> None:
        """Append the tensors `parts`, to be found under `key`; `facts` are kept beside them."""
        if self._file is None:
            return
        try:
            places = {}
            for name, value in parts.items():
                if value is None:
                    continue
                self._file.write(b"\0" * (-self._file.tell() % _ALIGN))
                dtype = str(value.dtype).removeprefix("torch.")
                places[name] = [self._file.tell(), dtype, list(value.shape)]
                self._file.write(value.contiguous().view(torch.uint8).numpy())
            self._index[key] = {"parts": places, **facts}
        except OSError as error:
            self._give_up(error)

    def close(self, keep: bool) -> None:
        """Make the file visible under its name, or (`keep` False) remove what there is."""
        if self._file is None:
            return
        try:
            if keep:
                index = json.dumps(self._index).encode()
                self._file.write(index + _TAIL.pack(len(index), crc32(index), _MAGIC))
            self._file.close()
            if keep:
                os.replace(self._temporary, self._path)
        except OSError as error:
            self._give_up(error)
        self._file = None
        self._temporary.unlink(missing_ok=True)

    def _give_up(self, error: OSError) -> None:
        reason = error.strerror or error
        self._note(f"packed weights are not kept in {self._path.parent} ({reason})")
        if self._file is not None:
            with contextlib.suppress(OSError):  # what it still held cannot be written either
                self._file.close()
            self._file = None
        with contextlib.suppress(OSError):  # its folder may not even be one
            self._temporary.unlink(missing_ok=True)


class PackReader:
    """A packed file. Safe to use from several threads."""

    def __init__(self, path: Path, index: dict[str, dict[str, Any]]) -> None:
        self._path = path
        self._index = index

    @staticmethod
    def open(path: Path) -> PackReader | None:
        """The file `path`, or None where there is none that can be used."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(size - _TAIL.size)
                length, check, magic = _TAIL.unpack(file.read())
                if magic != _MAGIC:
                    return None
                file.seek(size - _TAIL.size - length)
                index = file.read(length)
                return PackReader(path, json.loads(index)) if crc32(index) == check else None
        except (OSError, ValueError, struct.error):
            return None

    def __contains__(self, key: str) -> bool:
        return key in self._index

    def keys(self) -> Iterable[str]:
        """All keys, in the order in which they were added."""
        return self._index.keys()

    def facts(self, key: str) -> Mapping[str, Any]:
        """What was kept beside the tensors of `key`."""
        return self._index[key]

    def elements(self, key: str, part: str) -> int:
        """How many numbers that tensor has."""
        return math.prod(self._index[key]["parts"][part][2])

    def tensor(self, key: str, part: str, mapped: bool = False) -> Tensor | None:
        """That tensor, None if there is none. `mapped`: it stays in the file, and each page of it
        comes into memory when it is first touched."""
        place = self._index[key]["parts"].get(part)
        if place is None:
            return None
        return self._map(*place) if mapped else self._read(*place)

    def _read(self, offset: int, dtype: str, shape: list[int]) -> Tensor:
        value = torch.empty(shape, dtype=getattr(torch, dtype))
        into = memoryview(value.view(torch.uint8).numpy()).cast("B")
        with self._path.open("rb", buffering=0) as file:
            file.seek(offset)
            done = 0
            while done < len(into):
                count = file.readinto(into[done:])
                if not count:
                    raise PacelineError(f"{self._path} is cut short: delete it and start again")
                done += count
        return value

    def _map(self, offset: int, dtype: str, shape: list[int]) -> Tensor:
        import numpy as np

        kind = getattr(torch, dtype)
        size = math.prod(shape) * kind.itemsize
        # "c": torch wants memory that it could write to; what it would write stays in memory.
        data = np.memmap(self._path, np.uint8, "c", offset, (size,))
        return torch.from_numpy(data).view(kind).view(shape)


def _sweep(folder: Path) -> None:
    """Remove temporary files that a killed process left behind."""
    for path in folder.glob("*.new"):
        with contextlib.suppress(FileNotFoundError):  # another process may sweep as well
            if time.time() - path.stat().st_mtime > _STALE:
                path.unlink()
