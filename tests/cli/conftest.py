"""A tiny model on disk and a way to run the command in this process or in one of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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


@pytest.fixture
def interrupted(environment):
    """Run `paceline ARGS` with slow rounds and press Ctrl-C in the second or third of them: the
    exit code, and what was written to stdout and stderr from the first round on."""

    def run(*args: str) -> tuple[int, bytes, bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", SLOW, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert process.stdout is not None
        process.stdout.read(1)
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=30)
        return process.returncode, stdout, stderr

    return run


SLOW = """
import sys, time
from paceline.core.loop import Loop
step = Loop.step
def slowly(self, seqs):
    if not slowly.said:
        print("x", end="", flush=True)
        slowly.said = True
    time.sleep(0.05)
    return step(self, seqs)
slowly.said = False
Loop.step = slowly
from paceline.cli import run
sys.exit(run(sys.argv[1:]))
"""
