"""Line plots as SVG: a few lines, two axes and a legend, coloured by the page's style sheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

COLOURS = 8  # classes c0, c1, … that the style sheet gives a colour

_WIDTH, _HEIGHT = 440, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 12, 42
_ROOM = 0.06  # of the height, above the highest and below the lowest point


@dataclass(frozen=True)
class Line:
    """Points to be joined. `colour`: 0 to COLOURS - 1, or None for a quiet one; `dashed`: without
    dots; `mark`: the x of a point that stands out."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None
    dashed: bool = False
    mark: float | None = None


def plot(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
) -> str:
    """The lines as an <svg> element, `title` for those who cannot see it. `unit` stands behind
    numbers of y; `low`, `high`: the least that y reaches."""
    points = [point for line in lines for point in line.points]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    bottom = min(ys) if low is None else min(low, *ys)
    top = max(ys) if high is None else max(high, *ys)
    margin = (top - bottom) * _ROOM or 1.0
    frame = _Frame(min(xs), max(xs), bottom if bottom == low else bottom - margin, top + margin)
    body = [*_axes(frame, x_label, y_label, unit)]
    for line in lines:
        body += _line(frame, line, x_label, unit)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"><title>{escape(title)}</title>'
        f"{''.join(body)}</svg>{_legend(lines)}"
    )


@dataclass(frozen=True)
class _Frame:
    """What part of the plane is shown."""

    left: float
    right: float
    bottom: float
    top: float

    def x(self, value: float) -> float:
        share = (value - self.left) / (self.right - self.left or 1.0)
        return _LEFT + 8 + share * (_WIDTH - _LEFT - _RIGHT - 16)

    def y(self, value: float) -> float:
        share = (value - self.bottom) / (self.top - self.bottom)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _axes(frame: _Frame, x_label: str, y_label: str, unit: str) -> list[str]:
    """Grid, numbers and labels."""
    parts: list[str] = []
    for value in ticks(frame.bottom, frame.top, 5):
        y = frame.y(value)
        parts.append(
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{escape(f"{value:g}{unit}")}</text>'
        )
    floor = _HEIGHT - _BOTTOM
    for value in ticks(frame.left, frame.right, 8, whole=True):
        x = frame.x(value)
        parts.append(f'<text class="middle" x="{x:.1f}" y="{floor + 16}">{value:g}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    turned = f'transform="translate(12 {(_TOP + floor) / 2:.1f}) rotate(-90)"'
    parts += [
        f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{floor}" y2="{floor}"/>',
        f'<text class="middle" x="{middle:.1f}" y="{_HEIGHT - 8}">{escape(x_label)}</text>',
        f'<text class="middle" {turned}>{escape(y_label)}</text>',
    ]
    return parts


def _line(frame: _Frame, line: Line, x_label: str, unit: str) -> list[str]:
    places = [(frame.x(x), frame.y(y)) for x, y in line.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    kind = _class(line)
    parts = [f'<polyline class="line {kind}" points="{path}"/>']
    if line.dashed:
        return parts
    for (x, y), (at_x, at_y) in zip(line.points, places, strict=True):
        size = 5.5 if x == line.mark else 2.8
        said = escape(f"{line.name}, {x_label} {x:g}: {y:.2f}{unit}")
        parts.append(
            f'<circle class="dot {kind}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{size}">'
            f"<title>{said}</title></circle>"
        )
    return parts


def _legend(lines: Sequence[Line]) -> str:
    items = "".join(
        f'<li><svg class="key" viewBox="0 0 24 8" aria-hidden="true"><line class="line '
        f'{_class(line)}" x1="1" x2="23" y1="4" y2="4"/></svg>{escape(line.name)}</li>'
        for line in lines
    )
    return f'<ul class="legend">{items}</ul>'


def _class(line: Line) -> str:
    colour = "quiet" if line.colour is None else f"c{line.colour % COLOURS}"
    return f"{colour} dashed" if line.dashed else colour


def ticks(low: float, high: float, most: int, whole: bool = False) -> list[float]:
    """At most `most` + 1 round numbers from `low` to `high`, evenly spaced by 1, 2, 2.5 or 5
    times a power of ten; `whole`: by whole numbers."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    sizes = (1, 2, 5, 10) if whole else (1, 2, 2.5, 5, 10)
    step = next(m * power for m in sizes if m * power >= rough * (1 - 1e-9))
    if whole:
        step = max(1.0, step)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]
