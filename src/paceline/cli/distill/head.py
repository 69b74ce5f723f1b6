"""`paceline distill head`."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.distill import options as d
from paceline.errors import unknown
from paceline.models.catalog import DEFAULT


def head(
    model: o.Model = DEFAULT,
    prompts: d.Prompts = None,
    out: d.Out = None,
    answers: d.Answers = None,
    minutes: d.Minutes = None,
    tokens: d.Tokens = None,
    kind: Annotated[str, typer.Option(help="jump or eagle3.")] = "jump",
    given: d.Set = None,
    vocab: d.Vocab = 12288,
    lr: d.Lr = 3e-4,
    steps: d.Steps = 3,
    batch: d.Batch = None,
    seed: d.Seed = 0,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Train a head on the target's own answers; continued where it stopped."""
    from paceline.distill.kinds import HEADS
    from paceline.distill.run import Request

    if kind not in HEADS:
        raise unknown("kind of head", kind, HEADS)
    request = Request(
        make=HEADS[kind],
        kind=kind,
        model=model,
        out=out or d.folder(model, kind),
        prompts=prompts,
        answers=answers,
        minutes=minutes,
        tokens=tokens,
        seed=seed,
        lr=lr,
        steps=steps,
        batch=batch,
        vocab=vocab,
        dtype=dtype,
        device=device,
        threads=threads,
        given=d.pairs(given),
        command=d.command(),
    )
    d.train(request, as_json)
