"""On what a bench ran: the machine, the versions, the commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import paceline

_LIBRARIES = ("torch", "numpy", "transformers", "tokenizers")


def hardware(threads: int) -> dict[str, Any]:
    """The processor, its cores, the `threads` that are used, memory, instruction set and GPU."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads,
        "memory_gb": _memory(),
        "isa": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def versions() -> dict[str, str]:
    """Python's, and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str | None:
    """Of the checkout that Paceline runs from, with "-dirty" behind it where files are changed;
    None where it is installed."""
    package = Path(paceline.__file__).parent
    top = _git(package, "rev-parse", "--show-toplevel")
    if top is None or Path(top, "src", "paceline").resolve() != package.resolve():
        return None
    name = _git(package, "rev-parse", "--short", "HEAD")
    changed = _git(package, "status", "--porcelain", "--untracked-files=no")
    return f"{name}-dirty" if name and changed else name


def _git(folder: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *args], cwd=folder, capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _memory() -> float | None:
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
    return round(pages * size / 1e9, 1)
