"""What a user can put right: every such error is one line that names the fix."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class PacelineError(ValueError):
    """Bad input from outside (a file, a name, a value). The CLI prints it in one line, exit code 2.

    The message says what is wrong and what to do; it never needs a traceback beside it.
    """


class MissingExtra(PacelineError):
    """An optional dependency is not installed; the message names the exact install command."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an extra: pip install 'paceline[{extra}]'")


def unknown(kind: str, name: str, known: Iterable[str]) -> PacelineError:
    """The error for a name that is none of `known`, with the nearest one suggested."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return PacelineError(f"unknown {kind} {name!r}; {hint}")
