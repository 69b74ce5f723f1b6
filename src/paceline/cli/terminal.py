"""Reading from and writing to the terminal: pieces as they come, figures, progress, errors."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.build import LLM
    from paceline.text.completion import Completion, Piece

_COLOURS = {"accepted": "32", "recovered": "33", "bonus": "36", "plain": "0"}


def print_stream(first: Piece | None, rest: Iterator[Piece], show: bool) -> None:
    """Print pieces as they come; coloured by origin only where a person looks."""
    colours = show and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    try:
        for piece in [first] if first else []:
            _print_piece(piece, colours)
        for piece in rest:
            _print_piece(piece, colours)
    finally:
        print("\x1b[0m" if colours else "", flush=True)


def _print_piece(piece: Piece, colours: bool) -> None:
    for token in piece.tokens:
        if colours and token.text:
            print(f"\x1b[{_COLOURS[token.origin]}m{token.text}\x1b[0m", end="")
        else:
            print(token.text, end="")
    sys.stdout.flush()


def figures(llm: LLM, done: Completion) -> str:
    """One line: tokens, tokens/s, seconds to the first token, and τ and α if any were drafted."""
    stats = done.stats
    parts = [
        f"{len(done.tokens)} tokens",
        f"{stats.tokens_per_second:.1f} tokens/s",
        f"first after {stats.ttft_s:.2f} s",
    ]
    if stats.alpha is not None:
        parts.append(f"τ {stats.tau:.2f}, α {stats.alpha:.2f}")
    parts += [f"draft {llm.draft}", llm.dtype]
    if not stats.lossless:
        parts.append("lossy")
    return "[" + " · ".join(parts) + "]"


def stdin() -> str:
    """All of standard input. Raises PacelineError where it is not UTF-8."""
    if sys.stdin.isatty():
        say("reading the prompt from the terminal; end it with Ctrl-D")
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise PacelineError(
            f"stdin is not UTF-8 (byte {error.start}): convert it, for example with iconv"
        ) from None


def lines() -> Iterator[str]:
    """What the user types (or pipes in), line by line."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  (line editing and history, by being imported)
    while True:
        try:
            yield input("> " if sys.stdin.isatty() else "")
        except EOFError:
            return
        except UnicodeDecodeError:
            raise PacelineError("stdin is not UTF-8: convert it, for example with iconv") from None


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
