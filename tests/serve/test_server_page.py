"""docs/server.md names everything that there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

import paceline.serve
from paceline.cli.serve import serve
from paceline.serve.metrics import Metrics
from paceline.serve.replies import Details, Making, Speculation, Status
from paceline.serve.schema import ChatRequest, CompletionRequest
from paceline.serve.watch import Load

SOURCES = Path(paceline.serve.__file__).parent
PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """What stands under a heading."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_request_field_and_no_other():
    fields = section("Request fields")
    rows = [line.split("|")[1] for line in fields.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*ChatRequest.model_fields, *CompletionRequest.model_fields}


@pytest.mark.parametrize("shape", [Speculation, Details, Making])
def test_every_field_of_ours_in_answers(shape):
    assert {f for f in shape.model_fields if f"`{f}`" not in section("Response fields")} == set()


def test_every_field_of_status():
    row = next(line for line in PAGE.splitlines() if line.startswith("| `GET /status`"))
    assert row.split("|")[2].split(", ")[0].strip() == "model"
    assert {name.strip() for name in row.split("|")[2].split(",")} == {*Status.model_fields}


def test_every_metric_and_no_other():
    metrics = Metrics({"version": "1"})
    metrics.follow(lambda: Load(0, 0, 1, 1))
    kinds = dict(re.findall(r"^# TYPE (\S+) (\w+)$", metrics.text().decode(), re.MULTILINE))
    ours = {name for name in kinds if name.startswith("paceline:")}
    table = section("Metrics").split("For Grafana")[0]
    assert set(re.findall(r"`(paceline:\w+)`", table.split("\n\n")[1])) == ours
    queried = set(re.findall(r"paceline:\w+", section("Metrics").split("For Grafana")[1]))
    endings = r"_(bucket|sum|count)$"
    assert {re.sub(endings, "", name) for name in queried} <= ours


def test_every_code_of_an_error():
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.glob("*.py")]
    codes = {code for text in texts for code in re.findall(r'\bcode="(\w+)"', text)}
    assert {"queue_full", "not_ready"} <= codes
    assert {code for code in codes if f"| `{code}` |" not in section("Errors")} == set()


def test_every_flag():
    command = typer.main.get_command(_app())
    flags = {max(p.opts, key=len) for p in command.params if p.name != "help"}
    assert {flag for flag in flags if f"`{flag}`" not in section("Flags")} <= {
        "--num-assistant-tokens", "--num-speculative-tokens",
    }  # fmt: skip


def _app() -> typer.Typer:
    app = typer.Typer(add_completion=False)
    app.command()(serve)
    return app
