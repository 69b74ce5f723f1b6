"""A peer in a process of its own: no threads of its beside ours, and if it dies it dies alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from queue import Empty, Queue
from threading import Thread
from typing import Any

from paceline.bench.peer import Answer, Job, Note

PATIENCE = 900.0  # seconds without a word from it


class PeerFailed(Exception):
    """A peer that cannot be measured; the message says why, in one line."""


class RemotePeer:
    """See Peer. Starts `command`, gives it the job and waits until it is set. Raises PeerFailed if
    it cannot be, as `generate` does where the engine fails or ends; `close` ends the process."""

    def __init__(
        self,
        name: str,
        job: Job,
        note: Note,
        command: Sequence[str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.name, self._patience = name, patience
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            command or [sys.executable, "-m", __package__, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            encoding="utf-8",
            env=os.environ | {"HF_HUB_OFFLINE": "1"},
        )
        self._lines: Queue[str | None] = Queue()
        Thread(target=self._listen, daemon=True).start()
        try:
            self._tell(asdict(job))
            while "note" in (heard := self._hear()):
                note(f"{name}: {heard['note']}")
        except BaseException:
            self.close()
            raise
        self.settings: dict[str, dict[str, Any]] = heard["settings"]
        self.about: list[str] = heard["about"]
        self.absent: dict[str, str] = heard["absent"]

    def generate(self, ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
        """See Peer."""
        self._tell({"ids": list(ids), "max_tokens": max_tokens, "mode": mode})
        return Answer(**self._hear()["answer"])

    def close(self) -> None:
        """May be called more than once."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(OSError):  # what it had not read is lost, as it should be
            self._process.stdin.close()
        self._said.close()

    def _tell(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):  # it has ended: `_hear` says so
            print(json.dumps(message), file=self._process.stdin, flush=True)

    def _hear(self) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=self._patience)
        except Empty:
            self._process.kill()
            raise PeerFailed(f"no answer in {self._patience:g} s") from None
        if line is None:
            raise PeerFailed(self._last_words())
        heard = json.loads(line)
        if "error" in heard:
            raise PeerFailed(heard["error"])
        return heard

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put(None)

    def _last_words(self) -> str:
        code = self._process.wait()
        self._said.seek(0)
        lines = [line.strip() for line in self._said if line.strip()]
        self._lines.put(None)  # whoever asks again hears the same
        return f"its process ended ({code})" + (f": {lines[-1][:200]}" if lines else "")
