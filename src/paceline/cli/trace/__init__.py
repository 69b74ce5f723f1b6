"""`paceline trace`: what `generate --trace` wrote, made visible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import PacelineError


def trace(
    file: Annotated[str, typer.Argument(help="What paceline generate --trace FILE wrote.")],
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a page instead, all in one file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The summary, as one object.")] = False,
) -> None:
    """Show how an answer was made, round by round: drafts, p, q, margins, windows, times."""
    from paceline.text.trace_file import read

    found = read(file)
    if html is not None:
        from paceline.cli.trace.page import page

        try:
            Path(html).write_text(page(found), encoding="utf-8")
        except OSError as error:
            raise PacelineError(f"--html {html} cannot be written: {error.strerror}") from None
    if as_json:
        from paceline.cli.trace.summary import report

        print(json.dumps(report(found), ensure_ascii=False))
    elif html is None:
        from paceline.cli.trace.terminal import show

        show(found)
