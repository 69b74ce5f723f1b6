"""Files of prompts: JSON lines {"prompt": "…", "kind": "…"}, or plain text, one a line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import PacelineError


@dataclass(frozen=True)
class Prompt:
    """`kind`: what sort of text its owner says it asks for; None: they do not say."""

    text: str
    kind: str | None = None


def read_prompts(path: str | Path) -> list[Prompt]:
    """The prompts of a file, each text once, in order. The first line decides whether it is JSON or
    plain text; empty lines are skipped. A kind that is no text does not count.

    Raises PacelineError, with file and line, for what is neither, and for a file without prompts.
    """
    lines = read_text(path).splitlines()
    first = next((line for line in lines if line.strip()), "")
    as_json = first.lstrip().startswith("{")
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        raw = json_object(path, number, line) if as_json else {"prompt": line.strip()}
        text, kind = raw.get("prompt"), raw.get("kind")
        if not isinstance(text, str) or not text.strip():
            raise PacelineError(
                f'{path}:{number} has no prompt: each line must be {{"prompt": "some text"}}'
            )
        named = isinstance(kind, str) and kind.strip()
        prompts.setdefault(text, Prompt(text, kind if named else None))
    if not prompts:
        raise PacelineError(f'{path} has no prompts: give one {{"prompt": "…"}} or text a line')
    return list(prompts.values())


def read_text(path: str | Path) -> str:
    """What a file of lines holds, also one in gzip. Raises PacelineError for one that is not there,
    cannot be read or is not UTF-8."""
    path = Path(path)
    opener: Callable[..., Any] = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8", newline="\n") as file:
            return file.read()
    except FileNotFoundError:
        raise PacelineError(f"{path} does not exist; give a file with one prompt a line") from None
    except UnicodeDecodeError as error:
        raise PacelineError(f"{path} is not UTF-8 (byte {error.start}); convert it") from None
    except (OSError, EOFError) as error:
        raise PacelineError(f"{path} cannot be read: {error}") from None


def json_object(path: str | Path, number: int, line: str) -> dict[str, Any]:
    """One line of a file as a JSON object. Raises PacelineError, with file and line, for what is
    none."""
    try:
        value = json.loads(line)
    except ValueError as error:
        raise PacelineError(f"{path}:{number} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PacelineError(f"{path}:{number} is no JSON object")
    return value
