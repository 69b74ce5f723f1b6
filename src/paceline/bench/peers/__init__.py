"""Adapters of other engines, one a file, each run in a process of its own.

They are part of the package because `paceline bench --peers` must find them in an installed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

from paceline.bench.peer import Job, Note, Peer
from paceline.errors import MissingExtra, unknown


@dataclass(frozen=True)
class Adapter:
    """Where an engine's `open_peer(job, note)` lies, the package that it needs, and the extra that
    brings it."""

    module: str
    package: str
    extra: str

    def check(self, name: str) -> None:
        """Raise MissingExtra unless the engine is installed."""
        if find_spec(self.package) is None:
            raise MissingExtra(f"the peer {name}", self.extra)

    def open(self, job: Job, note: Note) -> Peer:
        """The engine in its best settings; `note` hears of the search for them."""
        return import_module(f"paceline.bench.peers.{self.module}").open_peer(job, note)


ADAPTERS = {
    "transformers": Adapter("transformers_peer", "transformers", "hf"),
    "llama-cpp": Adapter("llama_cpp_peer", "llama_cpp", "llama-cpp"),
    "openvino": Adapter("openvino_peer", "openvino_genai", "openvino"),
}


def installed(names: Sequence[str]) -> dict[str, Adapter]:
    """The adapters of these names. Raises PacelineError for a name that is none of them, and
    MissingExtra for an engine that is not installed."""
    found: dict[str, Adapter] = {}
    for name in names:
        if name not in ADAPTERS:
            raise unknown("peer", name, ADAPTERS)
        ADAPTERS[name].check(name)
        found[name] = ADAPTERS[name]
    return found
