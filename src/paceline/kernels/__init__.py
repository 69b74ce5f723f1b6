"""The C++ kernels: fast on a CPU, and absent where the package was built without a compiler.

PACELINE_KERNELS=0 in the environment switches them off, as if they were absent; it is read at every
call. Importing this module imports nothing else of weight.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType

from paceline.errors import PacelineError

__all__ = ["available", "default_threads", "load", "why_not"]

_NATIVE = "paceline.kernels._native"
_REINSTALL = "pip install --force-reinstall --no-cache-dir --no-deps paceline"


def available() -> bool:
    """Whether `load` will return the kernels."""
    return isinstance(_find(), ModuleType)


def load() -> ModuleType:
    """The extension module (see _native.pyi). Raises PacelineError, with `why_not`, where there is
    none."""
    found = _find()
    if isinstance(found, str):
        raise PacelineError(found)
    return found


def why_not() -> str:
    """Why the kernels cannot be had and what to do about it, in one line; "" if they can."""
    found = _find()
    return found if isinstance(found, str) else ""


def default_threads() -> int:
    """One thread for each core that this process may use, two that share a core counted once;
    OMP_NUM_THREADS is heeded."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_core(cpu) for cpu in os.sched_getaffinity(0)})


def _core(cpu: int) -> str:
    """A name for the core that a logical processor belongs to."""
    try:
        with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") as file:
            return file.read().strip()
    except OSError:
        return str(cpu)


def _find() -> ModuleType | str:
    """The module, or why there is none."""
    if os.environ.get("PACELINE_KERNELS") == "0":
        return "the native kernels are switched off; unset PACELINE_KERNELS"
    try:
        return importlib.import_module(_NATIVE)
    except ModuleNotFoundError:
        return (
            "Paceline was installed without its native kernels; install a C++ compiler (for "
            f"example apt install g++) and reinstall: {_REINSTALL}"
        )
    except ImportError as error:
        what = " ".join(str(error).split())
        return f"the native kernels do not load ({what}); reinstall: {_REINSTALL}"
