"""Verifiers by name: what stands behind `--verify`. A new one is a line in `VERIFIERS`."""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.protocols import Verifier
from paceline.errors import PacelineError, unknown
from paceline.verifiers.block import Block
from paceline.verifiers.coupled import Coupled
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.tree import Trees
from paceline.verifiers.typical import Typical

VERIFIERS: dict[str, Callable[[], Verifier]] = {
    "auto": lambda: Trees(Block()),  # never worse than token by token
    "rejection": lambda: Trees(Rejection()),
    "block": lambda: Trees(Block()),
    "kseq": lambda: Trees(Block(), "kseq"),
    "specinfer": lambda: Trees(Block(), "specinfer"),
    "typical": Typical,
}


def make_verifier(name: str, lenience: float = 1.0, deterministic: bool = False) -> Verifier:
    """The verifier of that name. Raises PacelineError for a name that means nothing, and for what
    does not go together: `lenience` < 1 loosens rejection alone, and `deterministic` is a way to
    verify of its own."""
    if name not in VERIFIERS:
        raise unknown("verifier", name, VERIFIERS)
    if deterministic:
        if name != "auto" or lenience != 1:
            raise PacelineError(
                "--deterministic draws and verifies in a way of its own: "
                "leave out --verify and --lenience"
            )
        return Coupled()
    if lenience != 1:
        if name not in ("auto", "rejection"):
            raise PacelineError(f"--lenience loosens --verify rejection, not {name}")
        return Trees(Rejection(lenience))
    return VERIFIERS[name]()
