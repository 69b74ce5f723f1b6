"""Writes the trace of an answer while it is made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import IO, Any

from paceline.errors import PacelineError
from paceline.text.completion import Piece
from paceline.text.decisions import Verifying
from paceline.text.llm import Stream
from paceline.text.trace import RoundTrace, Spells
from paceline.text.trace_file import FORMAT, line


def record(
    path: str, header: Mapping[str, Any], stream: Stream, how: Verifying, tokenizer: Spells
) -> Iterator[Piece]:
    """The pieces of a stream with `rounds`, each written to the trace `path` before it is passed
    on. The file is made with the first one: a run that fails before leaves an older one as it is.

    `header`: how the run was made; `how`: how it verifies. Raises PacelineError where the file
    cannot be written.
    """
    first = next(stream, None)
    if first is None or first.seen is None:
        raise ValueError("a stream without rounds")
    done = stream.completion
    top = {"kind": "trace", "format": FORMAT, **header, "seed": first.seen.seed}
    with _opened(path) as file:
        _write(path, file, {**top, "prompt_tokens": done.prompt_tokens})
        for number, piece in enumerate(chain([first], stream), 1):
            assert piece.seen is not None
            made = RoundTrace.of(number, piece.seen, piece.tokens, how, tokenizer)
            _write(path, file, made.to_dict())
            yield piece
        end = {"finish_reason": done.finish_reason, "stats": done.stats.to_dict()}
        _write(path, file, {"kind": "end", **end})


def unwritable(path: str, why: str | None) -> PacelineError:
    """A trace that cannot be written there."""
    return PacelineError(f"--trace {path} cannot be written: {why}")


def _opened(path: str) -> IO[str]:
    try:
        return Path(path).open("w", encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise unwritable(path, error.strerror) from None


def _write(path: str, file: IO[str], value: Mapping[str, Any]) -> None:
    try:
        file.write(line(value))
        file.flush()  # whoever cuts the run short keeps what there is
    except OSError as error:
        raise unwritable(path, error.strerror) from None
