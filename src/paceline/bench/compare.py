"""Two benches against each other, prompt by prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.bench.estimates import Estimate, ratio
from paceline.bench.recorded import Cell, Pair, Recorded, load
from paceline.errors import PacelineError

ALL = "all"
_SETTINGS = ("model", "dtype", "draft", "k", "window", "verify", "temperature", "max_tokens")


@dataclass(frozen=True)
class Comparison:
    """B over A. `speed`: ratios of speculative tokens/s; `speedups`: of speedups over the plain
    decoding beside them, from which a faster or slower machine is gone; by category, with "all".
    `alone`: how many prompts only one of them has. `notes`: what differs beside."""

    speed: Mapping[str, Estimate]
    speedups: Mapping[str, Estimate]
    alone: int
    notes: Sequence[str]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "categories": {
                name: {
                    "prompts": self.speed[name].n,
                    "speed": _interval(self.speed[name]),
                    "speedup": _interval(self.speedups[name]),
                }
                for name in self.speed
            },
            "alone": self.alone,
            "notes": list(self.notes),
        }


def compare(a: str | Path, b: str | Path) -> Comparison:
    """Compare two files of benches: of the prompts and cells that both have, the geometric mean of
    the ratios and its 95% bootstrap interval (always drawn alike). Raises PacelineError for what
    is no such file, and where they have nothing in common."""
    one, other = load(Path(a)), load(Path(b))
    before, after = _pairs(one), _pairs(other)
    both = [key for key in before if key in after]
    if not both:
        raise PacelineError(f"{a} and {b} have no prompt in common")
    groups = {ALL: both}
    for key in both:
        groups.setdefault(before[key].category, []).append(key)
    speed: dict[str, Estimate] = {}
    speedups: dict[str, Estimate] = {}
    for name, keys in groups.items():
        rates = ratio([after[key].drafted.rate / before[key].drafted.rate for key in keys])
        gains = ratio([after[key].speedup / before[key].speedup for key in keys])
        assert rates is not None
        assert gains is not None
        speed[name], speedups[name] = rates, gains
    return Comparison(speed, speedups, len({*before} ^ {*after}), _notes(one, other))


def _pairs(recorded: Recorded) -> dict[tuple[str, str, Cell], Pair]:
    each = [pair for pairs in recorded.cells.values() for pair in pairs] or recorded.pairs
    return {(pair.category, pair.prompt, pair.cell): pair for pair in each}


def _notes(one: Recorded, other: Recorded) -> list[str]:
    found: list[str] = []
    was, now = one.run.get("hardware") or {}, other.run.get("hardware") or {}
    for name in dict.fromkeys([*was, *now]):
        if was.get(name) != now.get(name):
            found.append(f"the hardware differs: {name} {was.get(name)}, then {now.get(name)}")
    for name in ("commit", "paceline", *_SETTINGS):
        before, after = one.run.get(name), other.run.get(name)
        if before != after:
            found.append(f"{name} differs: {before}, then {after}")
    return found


def _interval(found: Estimate) -> dict[str, Any]:
    return {"mean": found.value, "low": found.low, "high": found.high}
