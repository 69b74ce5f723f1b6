"""`paceline distill model`."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.cli import options as o
from paceline.cli.distill import options as d
from paceline.models.catalog import DEFAULT


def model(
    model: o.Model = DEFAULT,
    prompts: d.Prompts = None,
    out: d.Out = None,
    answers: d.Answers = None,
    minutes: d.Minutes = None,
    tokens: d.Tokens = None,
    given: d.Set = None,
    vocab: d.Vocab = 8192,
    lr: d.Lr = 3e-4,
    steps: d.Steps = 4,
    batch: d.Batch = None,
    seed: d.Seed = 0,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Train a small draft of some of the target's layers; continued where it stopped."""
    from paceline.distill.model import model as make
    from paceline.distill.run import Request

    request = Request(
        make=make,
        kind="model",
        model=model,
        out=out or d.folder(model, "model"),
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
