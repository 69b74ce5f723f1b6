"""Heat maps of a sweep: two settings against each other, the speedup in each field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from paceline.bench.estimates import geometric
from paceline.bench.recorded import Cell, Pair
from paceline.page.canvas import SIZE, WIDTH, Canvas

_DEEPEST = 0.5  # of a field's colour, so that the number on it can be read
_MOST = 8  # maps
_TALL = 40
_CHARACTER = 0.55 * SIZE
_NAMES = {"k": "K"}


def maps(cells: Mapping[Cell, Sequence[Pair]]) -> list[Canvas]:
    """A map for each combination of all settings but the two with the most values, which are its
    sides. Greener than its ground: faster than plain decoding; redder: slower."""
    axes = _axes(list(cells))
    if not axes or len(cells) < 2:
        return []
    across, up, *rest = [*axes, "", ""]
    rest = [name for name in rest if name]
    found: dict[Cell, dict[tuple[str, str], Sequence[Pair]]] = {}
    for cell, pairs in cells.items():
        held = dict(cell)
        where = tuple((name, held.get(name, "-")) for name in rest)
        place = held.get(across, "-"), held.get(up, "-") if up else ""
        found.setdefault(where, {})[place] = pairs
    deepest = max(abs(math.log(_speed(pairs))) for pairs in cells.values()) or 1.0
    shown = list(found.items())[:_MOST]
    return [_map(across, up, where, fields, deepest) for where, fields in shown]


def _axes(cells: Sequence[Cell]) -> list[str]:
    """The settings that vary, that with the most values first."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for name, value in cell:
            values.setdefault(name, set()).add(value)
    varied = [name for name in values if len(values[name]) > 1]
    return sorted(varied, key=lambda name: -len(values[name]))


def _map(
    across: str, up: str, where: Cell, fields: Mapping[tuple[str, str], Sequence[Pair]],
    deepest: float,
) -> Canvas:  # fmt: skip
    xs, ys = (sorted({place[i] for place in fields}, key=_order) for i in (0, 1))
    fixed = ", ".join(f"{name} {value}" for name, value in where)
    across, up = _NAMES.get(across, across), _NAMES.get(up, up)
    title = f"Speedup by {across}{f' and {up}' if up else ''}{f'; {fixed}' if fixed else ''}"
    left = 14 + min(130.0, max(len(y) for y in ys) * _CHARACTER * 1.2 + 22) if up else 14.0
    top = 28
    canvas = Canvas(title, top + _TALL * len(ys) + 44)
    said = f"{up} against {across}" if up else ""
    canvas.text(14, 14, "; ".join(part for part in (said, fixed) if part), ink="ink")
    wide = min(110.0, (WIDTH - 14 - left) / len(xs))
    best = max(fields.values(), key=_speed)
    for row, y in enumerate(ys):
        middle = top + _TALL * (row + 0.5)
        if up:
            canvas.text(left - 8, middle + 4, y, "end")
        for column, x in enumerate(xs):
            if (pairs := fields.get((x, y))) is None:
                continue
            at, speed = left + wide * column, _speed(pairs)
            depth = _DEEPEST * min(1.0, abs(math.log(speed)) / deepest)
            said = f"{across} {x}{f', {up} {y}' if up else ''}: {speed:.2f}x, n = {len(pairs)}"
            ink = "accent" if speed >= 1 else "warn"
            canvas.bar(at + 1, middle - _TALL / 2 + 1, wide - 2, _TALL - 2, ink, said, depth)
            number = f"{speed:.2f}" if wide < 52 else f"{speed:.2f}x"
            canvas.text(at + wide / 2, middle + 4, number, "middle", "ink", pairs is best)
    floor = top + _TALL * len(ys)
    for column, x in enumerate(xs):
        canvas.text(left + wide * (column + 0.5), floor + 16, x, "middle")
    canvas.text(left + wide * len(xs) / 2, floor + 34, across, "middle")
    return canvas


def _speed(pairs: Sequence[Pair]) -> float:
    return geometric([pair.speedup for pair in pairs]) or 1.0


def _order(value: str) -> tuple[bool, float, str]:
    """Numbers by their size, then words."""
    try:
        return False, float(value), value
    except ValueError:
        return True, 0.0, value
