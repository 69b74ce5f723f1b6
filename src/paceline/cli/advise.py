"""`paceline advise`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options as o
from paceline.cli.advise_what_if import what_if as plan
from paceline.cli.terminal import say
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT

if TYPE_CHECKING:
    from paceline.advise.request import Request

_WHAT_IF = "With --what-if: "


def advise(
    model: o.Model = DEFAULT,
    draft: Annotated[
        list[str] | None,
        typer.Option(
            help="A drafter to look at, as in generate; repeatable. Default: what is free."
        ),
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help='A file of prompts, {"prompt": "…", "kind": "…"} or text, one a line.'),
    ] = None,
    batch: Annotated[str, typer.Option(help="Rows side by side, as in 1,2,4,8.")] = "1",
    k: Annotated[
        str | None, typer.Option("--k", help="Windows to choose from: 4, or 1:8 (the default).")
    ] = None,
    report: Annotated[
        str | None, typer.Option(help="FILE.html: one page with plots, for a browser.")
    ] = None,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Work it out for a pair that you do not have yet.")
    ] = False,
    alpha: Annotated[
        float | None, typer.Option(help=_WHAT_IF + "chance that a drafted token is accepted.")
    ] = None,
    c: Annotated[
        float | None, typer.Option("--c", help=_WHAT_IF + "a draft step over T(1).")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help=_WHAT_IF + "h100, h200, a100, rtx4090 or cpu.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help=_WHAT_IF + "the target's size, as in 7B or 7B:4 (bits).")
    ] = None,
    draft_size: Annotated[
        str | None, typer.Option(help=_WHAT_IF + "the draft's size, as in 0.5B:4.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(help=_WHAT_IF + "tokens behind each row; default: 1024.")
    ] = None,
    overhead: Annotated[
        float | None, typer.Option(help=_WHAT_IF + "the rest of a round over T(1).")
    ] = None,
) -> None:
    """Measure a pair here, and say which draft pays, with which K, and why."""
    planned = {
        "--alpha": alpha,
        "--c": c,
        "--gpu": gpu,
        "--target": target,
        "--draft-size": draft_size,
        "--context": context,
        "--overhead": overhead,
    }
    measured = {"--draft": draft or None, "--prompts": prompts, "--report": report}
    for name, value in (measured if what_if else planned).items():
        if value is not None:
            fix = f"{name} is for measuring: leave out it or --what-if"
            raise PacelineError(fix if what_if else f"{name} is for --what-if: add that")
    from paceline.advise.request import Request, parse_batch

    rows = parse_batch(batch)
    if what_if:
        if len(rows) != 1:
            raise PacelineError(f"--what-if plans one --batch at a time, not {batch}")
        plan(
            alpha=alpha,
            c=c,
            k=k or "1:16",
            gpu=gpu,
            target=target,
            draft_size=draft_size,
            context=1024 if context is None else context,
            batch=rows[0],
            overhead=overhead or 0.0,
            as_json=as_json,
        )
        return
    _measure(
        Request(
            model=model,
            drafts=draft or (),
            prompts=prompts,
            batch=rows,
            k=k or "1:8",
            dtype=dtype,
            device=device,
            threads=threads,
            report=report,
        ),
        as_json,
    )


def _measure(request: Request, as_json: bool) -> None:
    from paceline.advise.report import write
    from paceline.advise.run import run
    from paceline.cli.advise_table import show
    from paceline.models.progress import rich_progress

    with rich_progress(in_bytes=False) as (progress, note):
        found = run(request, progress, note)
    if request.report is not None:
        write(found, request.report)
    if as_json:
        print(json.dumps(found.to_dict(), ensure_ascii=False))
    else:
        show(found)
    if request.report is not None:
        say(f"the plots are in {request.report}")
