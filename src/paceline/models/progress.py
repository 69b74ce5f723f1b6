"""How far slow work is, on stderr: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

Progress = Callable[[int, int, str], None]
"""`progress(done, total, what)`: `done` of `total` bytes, tokens or the like; `what` names the step
("PyPI", "reading the prompt", …)."""

Note = Callable[[str], None]
"""`note(line)`: something that the user should read once."""


_DELAY = 0.5  # seconds; what is done sooner is not worth a line


@contextmanager
def rich_progress(*, in_bytes: bool = True) -> Iterator[tuple[Progress, Note]]:
    """Yields `(progress, note)` that write to stderr; a new bar begins whenever `what` changes.

    `in_bytes`: the counts are bytes and shown as such, else as a share. A bar appears when a step
    has taken half a second and goes away when all are complete.
    """
    if not sys.stderr.isatty():
        yield _lines(in_bytes), _print
        return
    from rich import progress as rich
    from rich.console import Console

    amount = [rich.DownloadColumn(), rich.TransferSpeedColumn()]
    bar = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        *(amount if in_bytes else [rich.TaskProgressColumn()]),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    tasks: dict[str, rich.TaskID] = {}

    def progress(done: int, total: int, what: str) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total, completed=done)
        bar.update(tasks[what], completed=done, total=total)
        if bar.finished:
            # stopped at once: another step may want to show a bar of its own on this terminal
            bar.stop()
        elif not bar.live.is_started and (bar.tasks[-1].elapsed or 0) > _DELAY:
            bar.start()

    try:
        yield progress, lambda line: bar.console.print(line, markup=False, highlight=False)
    finally:
        bar.stop()


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _lines(in_bytes: bool) -> Progress:
    last: dict[str, tuple[int, float]] = {}

    def progress(done: int, total: int, what: str) -> None:
        tenth = done * 10 // total if total else 10
        before, began = last.setdefault(what, (-1, perf_counter()))
        if tenth > before and perf_counter() - began > _DELAY:
            last[what] = (tenth, began)
            share = f"{megabytes(done)} of {megabytes(total)}" if in_bytes else f"{tenth * 10}%"
            _print(f"{what}: {share}")

    return progress


def megabytes(count: int) -> str:
    """`count` bytes for people: "1117.3 MB"."""
    return f"{count / 1e6:.1f} MB"
