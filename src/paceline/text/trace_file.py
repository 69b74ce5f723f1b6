"""The trace of one answer as a file: JSON lines, a header first.

{"kind": "trace", …}, then {"kind": "round", …} for each round, then {"kind": "end", …}. A run that
was cut short has no end, and perhaps half a last line, which is left out with a note.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError
from paceline.text.trace import RoundTrace, Trace

FORMAT = 1


def line(value: Mapping[str, Any]) -> str:
    """One line of a trace; numbers that are not finite, which JSON does not know, are null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False) + "\n"


def read(path: str) -> Trace:
    """The trace in that file. Raises PacelineError for anything else."""
    try:
        whole = Path(path).read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise PacelineError(f"cannot read {path}: {error.strerror}") from None
    lines = whole.split("\n")
    torn = lines.pop()  # what stands behind the last end of a line
    if _json(torn) is not None:
        lines, torn = [*lines, torn], ""
    if not lines or not isinstance(header := _json(lines[0]), dict):
        raise _no_trace(path)
    if header.get("kind") != "trace":
        raise _no_trace(path)
    if header.get("format") != FORMAT:
        raise PacelineError(
            f"{path} is a trace of format {header.get('format')!r}, and this version reads "
            f"{FORMAT}: make it again with paceline generate --trace"
        )
    lenience = header.get("lenience", 1.0)
    if not isinstance(lenience, int | float) or not 0 < lenience <= 1:
        raise _no_trace(path)
    rounds: list[RoundTrace] = []
    end = None
    for number, text in enumerate(lines[1:], 2):
        value = _json(text)
        try:
            if not isinstance(value, dict) or end is not None:
                raise ValueError(text)
            if value["kind"] == "end":
                end = value
            else:
                rounds.append(RoundTrace.from_dict(value))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise PacelineError(
                f"{path}, line {number}, is no round of a trace: cut the file before it, or make "
                "the trace again"
            ) from None
    notes: list[str] = []
    if torn:
        notes.append("the last line was torn and is left out")
    if end is None:
        notes.append("the run was cut short")
    return Trace(header, rounds, end, notes)


def _no_trace(path: str) -> PacelineError:
    return PacelineError(f"{path} is no trace: make one with paceline generate --trace {path}")


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be shown
        return value
    except (ValueError, RecursionError):
        return None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
