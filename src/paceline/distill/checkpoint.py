"""What a run leaves on disk, each file whole or not there at all."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from paceline.errors import PacelineError


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Put at `path` what `write` writes to the file that it is given: all of it, or what was there
    before."""
    beside = path.with_name(path.name + ".new")
    write(beside)
    with beside.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(beside, path)


def write_json(path: Path, value: Any) -> None:
    """`value` as JSON, whole."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """`text` in UTF-8, whole."""
    write_whole(path, lambda file: file.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any] | None:
    """The object at `path`; None if there is none. Raises PacelineError if it cannot be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise PacelineError(f"{path} is damaged ({error}); choose another --out") from None
    return value


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values."""
    write_whole(path, lambda file: torch.save(state, file))


def load(path: Path) -> dict[str, Any] | None:
    """What `save` wrote, on the CPU; None if there is nothing. Raises PacelineError for a file that
    is none of these."""
    if not path.exists():
        return None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and torch each raise their own
        reason = " ".join(str(error).split())[:120]
        raise PacelineError(f"{path} is damaged ({reason}); choose another --out") from None


def refuse_others(folder: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise PacelineError, naming the first difference, unless a run with the settings `saved` can
    be continued with those `wanted`."""
    for name in [*saved, *wanted]:
        old, new = saved.get(name), wanted.get(name)
        if old != new:
            raise PacelineError(
                f"{folder} holds a run with {name} {_short(old)}, not {_short(new)}: "
                "choose another --out, or the same settings to continue it"
            )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
