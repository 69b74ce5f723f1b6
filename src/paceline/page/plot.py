"""Line plots: a few lines, two axes and a legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.page.canvas import SIZE, Canvas
from paceline.page.html import words
from paceline.page.scale import Scale, ticks

COLOURS = 8  # inks c0, c1, … of figures.css

_LEFT, _RIGHT, _TOP, _BOTTOM = 68, 12, 12, 42
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

    @property
    def ink(self) -> str:
        return "soft" if self.colour is None else f"c{self.colour % COLOURS}"


@dataclass(frozen=True)
class Frame:
    """Two axes on a canvas; `top` of it stays free for a key."""

    canvas: Canvas
    x: Scale
    y: Scale

    @classmethod
    def on(
        cls, canvas: Canvas, xs: tuple[float, float], ys: tuple[float, float], top: float = _TOP,
        log_x: bool = False, log_y: bool = False,
    ) -> Frame:  # fmt: skip
        """The part of the plane from xs[0] to xs[1] and ys[0] to ys[1], as large as fits."""
        x = Scale(*xs, _LEFT + 8, canvas.width - _RIGHT - 8, log_x)
        return cls(canvas, x, Scale(*ys, canvas.height - _BOTTOM, top, log_y))

    def axes(
        self, x_label: str, y_label: str, xs: Sequence[float], ys: Sequence[float], unit: str = ""
    ) -> None:
        """Grid, numbers at `xs` and `ys`, and labels; `unit` stands behind numbers of y."""
        canvas, floor, end = self.canvas, self.y.start, self.canvas.width - _RIGHT
        for value in ys:
            y = self.y(value)
            canvas.line(_LEFT, y, end, y, "rule")
            canvas.text(_LEFT - 6, y + 4, f"{value:g}{unit}", "end")
        for value in xs:
            canvas.text(self.x(value), floor + 16, f"{value:g}", "middle")
        canvas.line(_LEFT, floor, end, floor, "soft")
        canvas.text((_LEFT + end) / 2, canvas.height - 8, x_label, "middle")
        canvas.text(SIZE + 3, (self.y.end + floor) / 2, y_label, "middle", turned=True)

    def line(self, points: Sequence[tuple[float, float]], ink: str, width: float = 2.0,
             dashed: bool = False) -> None:  # fmt: skip
        self.canvas.path([(self.x(x), self.y(y)) for x, y in points], ink, width, dashed)

    def dot(self, x: float, y: float, r: float, ink: str, said: str = "", opacity: float = 1.0,
            hollow: bool = False) -> None:  # fmt: skip
        self.canvas.dot(self.x(x), self.y(y), r, ink, said, opacity, hollow)


def plot(
    title: str,
    lines: Sequence[Line],
    x_label: str,
    y_label: str,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
) -> str:
    """The lines as an <svg> element and a legend, `title` for those who cannot see it. `unit`
    stands behind numbers of y; `low`, `high`: the least that y reaches."""
    points = [point for line in lines for point in line.points]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    bottom = min(ys) if low is None else min(low, *ys)
    top = max(ys) if high is None else max(high, *ys)
    margin = (top - bottom) * _ROOM or 1.0
    canvas = Canvas(title, 300)
    bottom = bottom if bottom == low else bottom - margin
    frame = Frame.on(canvas, (min(xs), max(xs)), (bottom, top + margin))
    along = ticks(min(xs), max(xs), 8, whole=True)
    frame.axes(x_label, y_label, along, ticks(bottom, top + margin, 5), unit)
    for line in lines:
        frame.line(line.points, line.ink, 1.5 if line.dashed else 2.0, line.dashed)
        if not line.dashed:
            for x, y in line.points:
                size = 5.5 if x == line.mark else 2.8
                frame.dot(x, y, size, line.ink, f"{line.name}, {x_label} {x:g}: {y:.2f}{unit}")
    return canvas.svg() + _legend(lines)


def _legend(lines: Sequence[Line]) -> str:
    items: list[str] = []
    for line in lines:
        dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
        stroke = (
            f'<line class="s-{line.ink}" stroke-width="2"{dashes} x1="1" x2="23" y1="4" y2="4"/>'
        )
        sample = f'<svg class="key" viewBox="0 0 24 8" aria-hidden="true">{stroke}</svg>'
        items.append(f"<li>{sample}{words(line.name)}</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'
