"""`paceline bench` and `paceline bench compare`."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paceline.cli import options as o
from paceline.cli.terminal import say
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT

if TYPE_CHECKING:
    from paceline.bench.request import Request
    from paceline.models.progress import Progress

_RUN = "run"
Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]


class _Default(typer.core.TyperGroup):
    """A group in which whatever is no other command's name belongs to `run`, which has none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = args and args[0] in self.commands
        return super().parse_args(ctx, args if known else [_RUN, *args])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return "" if name == _RUN else name, command, rest


app = typer.Typer(
    cls=_Default,
    rich_markup_mode=None,
    help="Measure plain against speculative decoding; compare two such benches.",
)


@app.command(_RUN, hidden=True)
def bench(
    prompts: Annotated[
        list[str] | None,
        typer.Argument(
            help="Files of prompts: Spec-Bench, HumanEval, MT-Bench, ShareGPT, JSON lines or text."
        ),
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help="builtin, or a file; default: builtin, if there are none.")
    ] = None,
    model: o.Model = DEFAULT,
    draft: o.Draft = "auto",
    k: o.K = 8,
    window: o.Window = "adaptive",
    verify: o.Verify = "auto",
    temperature: o.Temperature = 0.0,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", "-n", help="Of an answer; default: 256, quick: 96."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Answers a side, medians count; default: 3, quick: 1.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few prompts, in minutes.")] = False,
    limit: Annotated[
        int | None, typer.Option(help="So many prompts at most, of all sorts.")
    ] = None,
    categories: Annotated[str | None, typer.Option(help="Only these, as in code,chat.")] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            help="A grid: 'k=1:8 draft=lookup,suffix window=fixed,adaptive verify=… temperature=…'"
        ),
    ] = None,
    peers: Annotated[
        str | None, typer.Option(help="Other engines beside: transformers,llama-cpp,openvino.")
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(help="α, if you know it: the card then predicts τ.")
    ] = None,
    out: Annotated[
        str | None, typer.Option(help="Where the records go; default: bench-DATE.jsonl.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(help="Go on with the records of a bench that was stopped.")
    ] = None,
    report: Annotated[str | None, typer.Option(help="FILE.html: a page with all figures.")] = None,
    plots: Annotated[str | None, typer.Option(help="A folder for the figures as files.")] = None,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    as_json: Json = False,
) -> None:
    """Measure plain against speculative decoding, prompt by prompt, in turns.

    `paceline bench compare A.jsonl B.jsonl` sets two of them side by side.
    """
    from paceline.bench.request import Request
    from paceline.bench.suites import BUILTIN

    if out is not None and resume is not None:
        raise PacelineError("--resume goes on with a file: leave out --out")
    request = Request(
        sources=[*(prompts or ()), *([suite] if suite else ())] or [BUILTIN],
        model=model,
        draft=draft,
        k=k,
        window=window,
        verify=verify,
        temperature=temperature,
        max_tokens=max_tokens,
        repeats=repeats,
        dtype=dtype,
        device=device,
        threads=threads,
        quick=quick,
        limit=limit,
        categories=_words(categories),
        sweep=sweep or (),
        peers=_words(peers),
        alpha=alpha,
    )
    _check_writable(report, plots)
    path = _measure(request, out, resume, as_json)
    _show(path, as_json)
    if report is not None:
        from paceline.bench.report import write as write_report

        write_report(path, report)
        say(f"the page is in {report}")
    if plots is not None:
        from paceline.bench.plots import write as write_plots

        write_plots(path, plots)
        say(f"the figures are in {plots}")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="The records of a bench.")],
    b: Annotated[str, typer.Argument(help="Those of another one.")],
    as_json: Json = False,
) -> None:
    """Set two benches side by side, prompt by prompt: B over A."""
    from paceline.bench.compare import compare as between
    from paceline.cli.bench_table import show_comparison

    found = between(a, b)
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        show_comparison(found, a, b)
    for note in found.notes:
        say(f"note: {note}")


def _words(text: str | None) -> list[str]:
    """What stands between commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _measure(request: Request, out: str | None, resume: str | None, as_json: bool) -> Path:
    """Run it; where the records are."""
    from paceline.bench.records import Writer, read, unused
    from paceline.bench.run import Bench
    from paceline.cli.bench_table import show_card
    from paceline.models.progress import rich_progress

    log = None if resume is None else read(resume)
    request.check()
    path = Path(resume or out or unused())
    writer = Writer(path, resume=resume is not None)
    argv = ["paceline", *sys.argv[1:]]
    made = None
    try:
        with rich_progress(in_bytes=False) as (progress, note):
            made = Bench(request, writer, log, argv, progress, note)
        if not as_json:
            show_card(made.run)
        with _bar() as progress:
            made.measure(progress)
    except KeyboardInterrupt:
        if made is not None:
            say(f"stopped; to go on: {_again(argv, path)}")
        raise
    finally:
        writer.close()
        if made is not None:
            made.close()
    say(f"the records are in {path}")
    return path


def _show(path: Path, as_json: bool) -> None:
    from paceline.bench.peers.table import rows
    from paceline.bench.recorded import load
    from paceline.bench.records import read
    from paceline.bench.summary import summarise
    from paceline.cli.bench_table import show_summary

    found = {"records": str(path), **summarise(load(path))}
    log = read(path)
    if log.peers:
        found["peers"] = rows(log.prompts, log.peers)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        show_summary(found)


def _again(argv: list[str], path: Path) -> str:
    """The command that goes on with what this one began."""
    kept: list[str] = []
    words = iter(argv)
    for word in words:
        if word in ("--out", "--resume"):
            next(words, None)
        elif not word.startswith(("--out=", "--resume=")):
            kept.append(word)
    return shlex.join([*kept, "--resume", str(path)])


@contextmanager
def _bar() -> Iterator[Progress]:
    """A bar with the time that is left; on a terminal alone."""
    if not sys.stderr.isatty():
        yield lambda done, total, what: None
        return
    from rich import progress as rich
    from rich.console import Console

    bar = rich.Progress(
        rich.TextColumn("{task.description}"),
        rich.BarColumn(),
        rich.TaskProgressColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        speed_estimate_period=1e9,  # one prompt takes longer than the half minute it would look at
    )
    task = bar.add_task("", total=None)
    with bar:
        update: Callable[[int, int, str], None] = lambda done, total, what: bar.update(  # noqa: E731
            task, completed=done, total=total, description=what
        )
        yield update


def _check_writable(report: str | None, plots: str | None) -> None:
    """Refuse what could not be written in the end, before anything is measured."""
    for option, target in (("--report", report), ("--plots", plots)):
        if target is None:
            continue
        path = Path(target)
        if option == "--report" and path.is_dir():
            raise PacelineError(f"--report {path} is a folder: give a file, as in {path}/a.html")
        if option == "--plots" and path.exists() and not path.is_dir():
            raise PacelineError(f"--plots {path} is no folder")
        if not path.parent.is_dir():
            raise PacelineError(f"{option} {path}: there is no folder {path.parent}; make it first")
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise PacelineError(f"{option} {path} cannot be written; give another path")
