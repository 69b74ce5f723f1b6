"""`paceline distill`: make a drafter for a model out of the model itself."""

from __future__ import annotations

import typer

from paceline.cli.distill.head import head
from paceline.cli.distill.model import model
from paceline.cli.distill.skip import skip

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Make a drafter for a model from its own answers.",
)
for command in (head, model, skip):
    app.command()(command)
