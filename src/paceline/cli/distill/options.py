"""The options that what is trained has in common."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli.distill.stop import stoppable
from paceline.cli.terminal import say
from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.distill.run import Request

Prompts = Annotated[
    str | None, typer.Option(help='A file of prompts, {"prompt": "…"} or text, one a line.')
]
Out = Annotated[
    str | None,
    typer.Option(
        "--out", "-o", help="A folder, new or of the run to continue; default: MODEL-KIND, here."
    ),
]
Minutes = Annotated[
    float | None, typer.Option(help="The whole run; answering takes a third at most. Default: 60.")
]
Tokens = Annotated[int | None, typer.Option(help="Train on so many tokens, repeats counted.")]
Answers = Annotated[
    str | None, typer.Option(help="Answers of this model, as DIR/answers.jsonl holds them.")
]
Lr = Annotated[float, typer.Option("--lr", help="The highest learning rate.")]
Steps = Annotated[int, typer.Option(help="Unrolled steps that are trained.")]
Batch = Annotated[int | None, typer.Option(help="Tokens of a batch; default: 256, CUDA 4096.")]
Vocab = Annotated[int, typer.Option(help="So many frequent tokens can be guessed.")]
Seed = Annotated[int, typer.Option(help="Same seed, settings and tokens, same weights on a CPU.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="NAME=VALUE, an option of the kind; repeatable.")
]


def pairs(texts: list[str] | None) -> dict[str, str]:
    """The options on --set. Raises PacelineError for one that has no "="."""
    values: dict[str, str] = {}
    for text in texts or []:
        name, sign, value = text.partition("=")
        if not sign:
            raise PacelineError(f"--set must be NAME=VALUE, not {text!r}")
        values[name] = value
    return values


def train(request: Request, as_json: bool) -> None:
    """Run it with a bar, and print what came out."""
    from paceline.distill.run import distill
    from paceline.distill.train import Stopped
    from paceline.models.progress import rich_progress

    with rich_progress(in_bytes=False) as (progress, note), stoppable() as stopped:
        try:
            report = distill(request, progress, note, stopped)
        except Stopped:
            say(f"stopped; the same command goes on from what is saved in {request.out}")
            raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    alphas = " ".join(f"{alpha:.2f}" for alpha in report["alpha_at"])
    word = "model" if report["kind"] == "model" else "head"
    print(f"τ {report['tau']:.2f}, α by position {alphas} on held-out prompts")
    print(f"--model {request.model} --draft {word}:{report['out']}")


def folder(model: str, kind: str) -> str:
    """Where a drafter goes if nobody says."""
    return f"{Path(model).stem if Path(model).exists() else Path(model).name}-{kind}"


def command() -> str:
    """What the user typed."""
    return shlex.join(["paceline", *sys.argv[1:]])
