"""benchmarks/claims.py, and that the page shows what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def printed() -> list[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / "claims.py")]
    return subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()


def test_the_page_has_the_tables(printed: list[str]) -> None:
    page = (ROOT / "docs" / "advise.md").read_text()
    by_c, pairs = "\n".join(printed[:-1]).split("\n\n")
    assert by_c in page
    assert pairs in page


def test_the_last_line_has_the_same_figures(printed: list[str]) -> None:
    found = json.loads(printed[-1])
    row = next(line for line in printed if line.startswith("| 54B + 8B | 16 | 32 | h200 |"))
    pair = next(
        each
        for each in found["pairs"]
        if (each["target"]["params_b"], each["draft"]["bits"], each["batch"], each["gpu"])
        == (54, 16, 32, "h200")
    )
    need = pair["needs"]["3"]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[4:7] == [f"{pair['c']:.3f}", f"{pair['r']:.2f}", f"{pair['most']:.2f}x"]
    shown = float(cells[7].removeprefix("3x: α ").split(",")[0])
    assert 0 <= shown - need["alpha"] <= 0.001  # rounded up: the printed α suffices
    assert cells[7].endswith(f"K={need['k']}")
    assert found["by_c"]["0.4"]["3"] is None
