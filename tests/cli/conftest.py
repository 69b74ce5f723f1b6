"""A tiny model on disk and a way to run the command in this process or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import write_llama


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> str:
    """A random Llama of 512 tokens of context."""
    return str(write_llama(tmp_path_factory.mktemp("tiny") / "llama"))


@pytest.fixture(scope="session")
def environment(tmp_path_factory) -> dict[str, str]:
    return {**os.environ, "PACELINE_HOME": str(tmp_path_factory.mktemp("home"))}


@pytest.fixture
def paceline(environment):
    """Run `paceline ARGS` as a user does."""

    def run(*args: str, stdin: bytes = b"", timeout: float = 60) -> subprocess.CompletedProcess:
        return subprocess.run(
            [sys.executable, "-m", "paceline", *args],
            input=stdin,
            capture_output=True,
            env=environment,
            timeout=timeout,
            cwd=Path(__file__).parent,
        )

    return run
