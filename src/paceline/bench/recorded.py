"""Records as values. What gives no figures (an error, something missing) is kept as a failure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from paceline.bench.estimates import geometric
from paceline.bench.records import Record, read

Cell = tuple[tuple[str, str], ...]  # settings that a sweep varies, by name


@dataclass(frozen=True)
class Side:
    """One way of answering a prompt. `rate`: tokens/s behind the first round; `whole`: seconds a
    token with the reading of the prompt, median of the repeats; `log`: drafted, accepted, emitted
    and seconds of each round of the first repeat; `made`: its tokens as (text, origin)."""

    tokens: int
    rate: float
    whole: float | None
    ttft: float | None
    tpot: float | None
    tau: float | None
    alpha: float | None
    alpha_at: Sequence[float]
    rounds: int
    drafted: int
    accepted: int
    parts: Mapping[str, float]  # seconds by "draft", "target", "overhead"
    log: Sequence[tuple[int, int, int, float]]
    made: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Pair:
    """A prompt answered both ways."""

    prompt: str
    category: str
    cell: Cell
    plain: Side
    drafted: Side
    same: bool | None

    @property
    def speedup(self) -> float:
        """Tokens/s over those of plain decoding, behind the first round."""
        return self.drafted.rate / self.plain.rate

    @property
    def whole(self) -> float | None:
        """The same with the reading of the prompt."""
        if self.plain.whole is None or self.drafted.whole is None:
            return None
        return self.plain.whole / self.drafted.whole


@dataclass(frozen=True)
class Peer:
    """A prompt answered by another engine. `rate`: its tokens/s."""

    engine: str
    mode: str
    prompt: str
    category: str
    rate: float
    same: bool | None
    settings: str


@dataclass(frozen=True)
class Failure:
    """What gave no figures, and why."""

    what: str
    error: str


@dataclass(frozen=True)
class Recorded:
    """What a file holds. `pairs`: each prompt once, in the `cell` that stands for all: the one of
    no settings, or the fastest of `choice` cells (of those with the most prompts); `cells`: all
    pairs of a sweep; `failures`: prompts without figures; `refused`: those of peers."""

    run: Record
    pairs: Sequence[Pair] = ()
    cells: Mapping[Cell, Sequence[Pair]] = field(default_factory=dict[Cell, Sequence[Pair]])
    cell: Cell = ()
    choice: int = 1
    peers: Sequence[Peer] = ()
    failures: Sequence[Failure] = ()
    refused: Sequence[Failure] = ()

    @property
    def categories(self) -> list[str]:
        """In the order of their first prompts."""
        return list(dict.fromkeys(pair.category for pair in self.pairs))

    def of(self, category: str) -> list[Pair]:
        return [pair for pair in self.pairs if pair.category == category]

    def word(self, name: str) -> str:
        """A setting in words, as the cell has it or else the run; "" where neither does."""
        return dict(self.cell).get(name) or _word(self.run, name)

    def part(self, name: str) -> Record:
        """The run's "hardware", "versions" or "card"; empty where it has none."""
        value = self.run.get(name)
        return value if isinstance(value, dict) else {}

    @property
    def r(self) -> dict[int, float]:
        """r(n) of the card, by n."""
        curve = self.part("card").get("r")
        given = curve.items() if isinstance(curve, dict) else ()
        known = {int(n): value for n, each in given if n.isdecimal() and (value := _amount(each))}
        return {n: known[n] for n in sorted(known) if n}


def load(path: Path) -> Recorded:
    """Read a record file. Of a prompt that was measured twice (a bench was resumed) the last
    counts. Raises PacelineError if it is none."""
    log = read(path)
    pairs, wrong = _pairs(log.prompts)
    peers, refused = _peers(log.peers)
    cells: dict[Cell, list[Pair]] = {}
    for pair in pairs:
        cells.setdefault(pair.cell, []).append(pair)
    best = max(cells, key=lambda cell: (len(cells[cell]), _mean(cells[cell])), default=())
    cell = () if () in cells else best
    swept = {key: each for key, each in cells.items() if key}
    choice = 1 if () in cells else len(swept)
    return Recorded(log.run, cells.get(cell, []), swept, cell, choice, peers, wrong, refused)


def _mean(pairs: Sequence[Pair]) -> float:
    return geometric([pair.speedup for pair in pairs]) or 0.0


def _pairs(lines: Iterable[Record]) -> tuple[list[Pair], list[Failure]]:
    last: dict[tuple[str, str, Cell], Pair | Failure] = {}
    for line in lines:
        name, category = _word(line, "prompt"), _word(line, "category") or "other"
        given = line.get("cell")
        cell: Cell = ()
        if isinstance(given, dict):
            cell = tuple(sorted((str(key), _plainly(value)) for key, value in given.items()))
        plain, drafted = _side(line, "plain"), _side(line, "speculative")
        found: Pair | Failure
        if line.get("error") or plain is None or drafted is None:
            where = ", ".join(f"{key} {value}" for key, value in cell)
            error = str(line.get("error") or "no figures were recorded")
            found = Failure(f"{name} ({category}{', ' + where if where else ''})", error)
        else:
            same = line.get("same_tokens")
            same = same if isinstance(same, bool) else None
            found = Pair(name, category, cell, plain, drafted, same)
        last[category, name, cell] = found
    values = last.values()
    return (
        [each for each in values if isinstance(each, Pair)],
        [each for each in values if isinstance(each, Failure)],
    )


def _peers(lines: Iterable[Record]) -> tuple[list[Peer], list[Failure]]:
    last: dict[tuple[str, ...], Peer | Failure] = {}
    for line in lines:
        engine, mode, prompt = (_word(line, name) for name in ("engine", "mode", "prompt"))
        category = _word(line, "category") or "other"
        rate = _number(line, "tokens_per_second")
        settings = line.get("settings")
        given = settings if isinstance(settings, dict) else {}
        said = ", ".join(f"{key} {_plainly(value)}" for key, value in given.items())
        if line.get("error") or not rate:
            error = str(line.get("error") or "no figures were recorded")
            last[engine, mode, category, prompt] = Failure(f"{engine} {mode}: {prompt}", error)
        else:
            same = line.get("same_tokens")
            same = same if isinstance(same, bool) else None
            found = Peer(engine, mode, prompt, category, rate, same, said)
            last[engine, mode, category, prompt] = found
    values = last.values()
    return (
        [each for each in values if isinstance(each, Peer)],
        [each for each in values if isinstance(each, Failure)],
    )


def _side(line: Mapping[str, Any], name: str) -> Side | None:
    """None unless it made tokens at some rate."""
    side = line.get(name)
    if not isinstance(side, dict):
        return None
    rate, tokens = _number(side, "tokens_per_second"), _count(side, "tokens")
    if not rate or tokens < 1:
        return None
    seconds = _middle(side, "seconds")
    parts = {part: _number(side, f"{part}_s") or 0.0 for part in ("draft", "target", "overhead")}
    return Side(
        tokens, rate, seconds / tokens if seconds else None, _middle(side, "ttft_s"),
        _middle(side, "tpot_s"), _number(side, "tau"), _number(side, "alpha"),
        _numbers(side, "alpha_at"), _count(side, "rounds"), _count(side, "drafted"),
        _count(side, "accepted"), parts, _log(side), _made(side),
    )  # fmt: skip


def _log(side: Mapping[str, Any]) -> list[tuple[int, int, int, float]]:
    entries = side.get("round_log")
    if not isinstance(entries, list) or not all(map(_is_round, entries)):
        return []
    return [(int(a), int(b), int(c), float(d)) for a, b, c, d in entries]


def _is_round(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 4 and None not in map(_amount, entry)


def _made(side: Mapping[str, Any]) -> list[tuple[str, str]]:
    entries = side.get("made")
    if not isinstance(entries, list):
        return []
    fit = [entry for entry in entries if isinstance(entry, list) and len(entry) == 2]
    return [(str(text), str(origin)) for text, origin in fit]


def _amount(value: Any) -> float | None:
    """A finite number that is not below 0; None for whatever else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _number(line: Mapping[str, Any], name: str) -> float | None:
    return _amount(line.get(name))


def _count(line: Mapping[str, Any], name: str) -> int:
    return int(_number(line, name) or 0)


def _numbers(line: Mapping[str, Any], name: str) -> list[float]:
    values = line.get(name)
    each = map(_amount, values) if isinstance(values, list) else ()
    return [value for value in each if value is not None]


def _middle(line: Mapping[str, Any], name: str) -> float | None:
    values = _numbers(line, name)
    return median(values) if values else None


def _word(line: Mapping[str, Any], name: str) -> str:
    value = line.get(name)
    return "" if value is None else str(value)


def _plainly(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
