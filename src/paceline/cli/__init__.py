"""The command line: parse, call, print. Exit codes: 0 done, 1 failed, 2 bad input, 130 Ctrl-C."""

from __future__ import annotations

import os
import sys

import typer

from paceline.cli.advise import advise
from paceline.cli.bench import app as bench
from paceline.cli.chat import chat
from paceline.cli.check import check
from paceline.cli.distill import app as distill
from paceline.cli.errors import Failed
from paceline.cli.generate import generate
from paceline.cli.pull import pull
from paceline.cli.serve import serve
from paceline.cli.terminal import say
from paceline.cli.trace import trace
from paceline.errors import PacelineError

# typer brings its own copy of click or uses the installed one; this is the right class either way
_ClickException = typer.BadParameter.__mro__[2]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Lossless speculative decoding: the model you already have, faster, same output.",
)
for command in (generate, chat, serve, trace, advise, check, pull):
    app.command()(command)
app.add_typer(bench, name="bench")
app.add_typer(distill, name="distill")


def main() -> None:
    """The `paceline` command."""
    sys.exit(run())


def run(args: list[str] | None = None) -> int:
    """Run one command line and return its exit code; errors are one line on stderr."""
    args = sys.argv[1:] if args is None else args
    try:
        code = app(args=args or ["--help"], prog_name="paceline", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except PacelineError as error:
        say(f"paceline: {error}")
        return 2
    except Failed as error:
        say(f"paceline: {error}")
        return 1
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except _ClickException as error:
        say(f"paceline: {error.format_message()}")
        return 2
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
