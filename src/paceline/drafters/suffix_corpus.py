"""Earlier outputs of a model, kept in a file, for `suffix` to draft from.

A file is one line of JSON (what it is, format version, model, number of tokens, CRC-32 of the rest)
and then the outputs as int32, little-endian, each between two END. It is only ever replaced as a
whole, under a lock beside it, so whoever reads it finds an old or a new one and never a part.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from paceline.drafters.suffix_index import END, Ints, SuffixIndex
from paceline.errors import PacelineError

MOST = 500_000  # tokens: 2 MB on disk, 6 MB in memory, a fraction of a second to open
_KIND, _VERSION = "paceline suffix corpus", 1
_LONGEST_HEADER = 4096  # bytes
_PATIENCE = 10.0  # seconds to wait for another process that saves


class SuffixCorpus:
    """The outputs in the file at `path`, which begins empty where there is none, and new ones.

    `model` says whose outputs they are, in words that fit a message, and changes with the
    tokenizer; a file of another model is refused. Ids are below `vocab`. At most `most` tokens are
    kept: the oldest outputs go first. `index` is what drafters read; `save` replaces it, nothing
    changes it. Safe to use from several threads, and the file from several processes.

    Raises PacelineError, here and from `save`, for a file that is damaged, of another model or
    cannot be read or written: it is then left as it is.
    """

    def __init__(self, path: Path, model: str, vocab: int, most: int = MOST) -> None:
        self.path = path
        self.model = model
        self.vocab = vocab
        self.most = most
        self._added: list[Ints] = []
        self._lock = threading.Lock()
        if not path.parent.is_dir():
            raise PacelineError(f"suffix corpus {path}: its folder does not exist; create it first")
        self.index = SuffixIndex(self._trimmed(self._read())[0])

    def add(self, ids: Iterable[int]) -> None:
        """Put a finished output behind the others. Drafters see it after the next `save`."""
        output = np.array([*ids, END], dtype=np.int32)
        if len(output) == 1:
            return
        if output[:-1].min() < 0 or output.max() >= self.vocab:
            raise ValueError(f"an id is not in a vocabulary of {self.vocab}")
        with self._lock:
            self._added.append(output)

    def save(self) -> None:
        """Write what was added to the file, behind what other processes put there meanwhile, and
        show drafters all of it. To be called where no request runs: none then sees a change."""
        from filelock import FileLock, Timeout

        with self._lock:
            try:
                with FileLock(_beside(self.path, ".lock"), timeout=_PATIENCE):
                    before = self._read()
                    text, dropped = self._trimmed(np.concatenate([before, *self._added]))
                    self._write(text)
            except Timeout:
                raise PacelineError(
                    f"suffix corpus {self.path} is being written by another process; try again"
                ) from None
            except OSError as error:
                raise self._failed(error) from None
            known = np.array_equal(before, self.index.text)
            self.index = self.index.grown(text, dropped) if known else SuffixIndex(text)
            self._added.clear()

    def _trimmed(self, text: Ints) -> tuple[Ints, int]:
        """The end of `text`, at most `most` tokens of whole outputs, and how many tokens went. Of
        an output that is longer alone, its end is kept and nothing is where it was."""
        over = len(text) - self.most
        if over <= 0:
            return text, 0
        cut = over + int(np.flatnonzero(text[over:] == END)[0])
        if cut < len(text) - 1:
            return text[cut:], cut
        kept = text[over:].copy()
        kept[0] = END
        return kept, len(text)

    def _write(self, text: Ints) -> None:
        body = text.astype("<i4").tobytes()
        header = {
            "kind": _KIND,
            "version": _VERSION,
            "model": self.model,
            "tokens": len(text),
            "crc32": crc32(body),
        }
        new = _beside(self.path, ".new")  # one name: who died left one that the next one overwrites
        try:
            with open(new, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n" + body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _read(self) -> Ints:
        """What the file holds; without one, no output."""
        try:
            if not self.path.exists():
                return np.array([END], dtype=np.int32)
            if not self.path.is_file():
                raise self._damaged("not a file")
            with open(self.path, "rb") as file:
                header = self._header(file.readline(_LONGEST_HEADER))
                left = os.fstat(file.fileno()).st_size - file.tell()
                body = file.read() if left == 4 * header["tokens"] else b""
        except OSError as error:
            raise self._failed(error) from None
        if crc32(body) != header["crc32"]:
            raise self._damaged("its contents are not what was written")
        text = np.frombuffer(body, dtype="<i4").astype(np.int32)
        if not len(text) or text[0] != END or text[-1] != END:
            raise self._damaged("an output has no end")
        if text.min() < END or text.max() >= self.vocab:
            raise self._damaged(f"it has ids that are not in a vocabulary of {self.vocab}")
        return text

    def _header(self, line: bytes) -> dict[str, Any]:
        try:
            header: Any = json.loads(line)
            kind, version, model = header["kind"], header["version"], header["model"]
            counts = header["tokens"], header["crc32"]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise self._damaged("it does not begin like one") from None
        if kind != _KIND or any(type(count) is not int or count < 0 for count in counts):
            raise self._damaged("it does not begin like one")
        if version != _VERSION:
            raise PacelineError(
                f"suffix corpus {self.path} has format {version!r}, and this Paceline reads "
                f"{_VERSION}: give another file"
            )
        if model != self.model:
            raise PacelineError(
                f"suffix corpus {self.path} holds outputs of {model}, not of {self.model}: "
                "give another file"
            )
        return header

    def _damaged(self, why: str) -> PacelineError:
        return PacelineError(
            f"{self.path} is no suffix corpus, or damaged ({why}): delete it or give another file"
        )

    def _failed(self, error: OSError) -> PacelineError:
        return PacelineError(f"suffix corpus {self.path}: {error.strerror or error}")


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
