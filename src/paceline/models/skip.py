"""A model without some of its own layers: a draft that takes no training and no memory.

Zhang et al. 2024, "Draft & Verify" (arXiv 2309.08168): neighbouring layers change the residual
stream little, so without some of them a model still says mostly the same, in less time.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from paceline.core.protocols import Model
from paceline.errors import PacelineError
from paceline.models.config import Config
from paceline.models.store import packed_folder

FIRST, LAST = 2, 1
"""So many layers at either end are never left out: without them little is left of the output."""


class Part(Model, Protocol):
    """A model that also runs over caches that another one of the same shape made. `nbytes`: how
    much of its weights one pass reads."""

    nbytes: int

    def reach(self, length: int) -> None:
        """Be ready for positions up to `length` of such a cache."""
        ...


@runtime_checkable
class Layered(Protocol):
    """A model that can leave layers out."""

    config: Config

    def with_layers(self, keep: Sequence[int]) -> Part:
        """The same model with the layers in `keep` (ascending) alone, on the same weights; it runs
        over the whole model's caches."""
        ...


def skip_layers(model: Model, keep: Collection[int]) -> Part:
    """`model` with the layers in `keep` alone; it shares the weights, and reads caches of its own
    or the whole model's (after `reach`).

    Raises PacelineError for a model that cannot leave layers out, by its class, and ValueError for
    a layer that it does not have, or for none at all.
    """
    layers = layer_count(model)
    if not keep or not set(keep) <= set(range(layers)):
        raise ValueError(f"keep some of the layers 0 to {layers - 1}, not {sorted(keep)}")
    assert isinstance(model, Layered)
    return model.with_layers(sorted(set(keep)))


def layer_count(model: Model) -> int:
    """How many layers `model` has. Raises PacelineError for one that cannot leave any out."""
    if not isinstance(model, Layered):
        raise PacelineError(
            f"self:skip: a {type(model).__name__}, which runs through transformers, cannot leave "
            "layers out; use --draft lookup or model:NAME"
        )
    return model.config.layers


def skippable(layers: int) -> range:
    """Which of so many layers may be left out."""
    return range(FIRST, max(FIRST, layers - LAST))


def spread(layers: int, count: int) -> list[int]:
    """`count` of the `skippable` layers, ascending and evenly spaced. Raises ValueError where there
    are fewer."""
    among = skippable(layers)
    if not 0 <= count <= len(among):
        raise ValueError(f"{count} of {len(among)} layers cannot be left out")
    return [among[(2 * i + 1) * len(among) // (2 * count)] for i in range(count)]


@dataclass(frozen=True)
class Skip:
    """What a search found. `dropped`: the layers left out of `layers`, ascending; `alpha`: how
    often the rest says what the whole model says; `c`: what a draft step costs in target steps;
    `speedup`: the best that these two promise, at `k` drafted tokens a round; `dtype`: the format
    that it was measured in."""

    dropped: list[int]
    layers: int
    alpha: float
    c: float
    k: int
    speedup: float
    dtype: str


def save_skip(fingerprint: str, found: Skip, folder: Path | None = None) -> Path:
    """Keep `found` for the checkpoint of that fingerprint, beside its packed weights (`folder`
    None: `packed_folder()`). Whole or not at all. Raises PacelineError where it cannot be."""
    path = _place(fingerprint, folder)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(asdict(found)) + "\n")
        os.replace(temporary, path)
    except OSError as error:
        raise PacelineError(
            f"cannot write to {path.parent} ({error.strerror or error}); "
            "set PACELINE_HOME to a folder that can be written"
        ) from None
    return path


def saved_skip(fingerprint: str, folder: Path | None = None) -> Skip | None:
    """What was kept for that checkpoint; None where there is nothing that makes sense."""
    try:
        found = Skip(**json.loads(_place(fingerprint, folder).read_text()))
        good = set(found.dropped) <= set(skippable(found.layers)) and found.dropped
    except (OSError, ValueError, TypeError):
        return None
    return found if good else None


def _place(fingerprint: str, folder: Path | None) -> Path:
    return (folder or packed_folder()) / f"{fingerprint[:32]}-skip.json"
