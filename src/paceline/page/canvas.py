"""Shapes on a canvas: drawn once, then written as SVG for a page, or as SVG that stands alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files

from paceline.page.html import words

SIZE = 12  # of text, in the canvas' units
WIDTH = 440  # of most canvases
EDGE = 8  # around a canvas that stands alone

_FONTS = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
_CHARACTER = 0.68 * SIZE  # a wide guess, so that neighbours stay apart on a phone, too


@dataclass(frozen=True)
class Shape:
    """`tag` of SVG and its numbers; `fill`, `stroke`: inks of figures.css, "" for none. `said`: of
    a text its words, of others what is told to whoever points at it."""

    tag: str
    at: Mapping[str, float | str]
    fill: str = ""
    stroke: str = ""
    width: float = 1.0
    dashed: bool = False
    opacity: float = 1.0
    said: str = ""
    bold: bool = False
    align: str = "start"
    turned: bool = False


@dataclass
class Canvas:
    """A figure of `width` x `height`; `title` is for those who cannot see it."""

    title: str
    height: float
    width: float = WIDTH
    shapes: list[Shape] = field(default_factory=list[Shape])

    def line(
        self, x1: float, y1: float, x2: float, y2: float, ink: str, width: float = 1.0,
        dashed: bool = False,
    ) -> None:  # fmt: skip
        at = {"x1": x1, "y1": y1, "x2": x2, "y2": y2}
        self.shapes.append(Shape("line", at, stroke=ink, width=width, dashed=dashed))

    def path(
        self, points: Sequence[tuple[float, float]], ink: str, width: float = 2.0,
        dashed: bool = False,
    ) -> None:  # fmt: skip
        if not points:
            return
        at = {"points": _joined(points)}
        self.shapes.append(Shape("polyline", at, stroke=ink, width=width, dashed=dashed))

    def area(self, points: Sequence[tuple[float, float]], ink: str, opacity: float) -> None:
        self.shapes.append(Shape("polygon", {"points": _joined(points)}, ink, opacity=opacity))

    def dot(
        self, x: float, y: float, r: float, ink: str, said: str = "", opacity: float = 1.0,
        hollow: bool = False,
    ) -> None:  # fmt: skip
        fill, stroke = ("paper", ink) if hollow else (ink, "paper" if opacity == 1 else "")
        self.shapes.append(
            Shape("circle", {"cx": x, "cy": y, "r": r}, fill, stroke, opacity=opacity, said=said)
        )

    def bar(
        self, x: float, y: float, width: float, height: float, ink: str, said: str = "",
        opacity: float = 1.0,
    ) -> None:  # fmt: skip
        at = {"x": x, "y": y, "width": max(0.0, width), "height": max(0.0, height)}
        self.shapes.append(Shape("rect", at, ink, opacity=opacity, said=said))

    def text(
        self, x: float, y: float, said: str, align: str = "start", ink: str = "soft",
        bold: bool = False, turned: bool = False,
    ) -> None:  # fmt: skip
        at = {"x": x, "y": y}
        self.shapes.append(Shape("text", at, ink, said=said, bold=bold, align=align, turned=turned))

    def key(self, entries: Sequence[tuple[str, str, str]], left: float, top: float) -> float:
        """What the inks mean: (name, ink, "line", "dashed", "dot", "hollow" or "area") each; as
        many on a line as fit. Returns where they end."""
        x, y = left, top + SIZE
        for name, ink, kind in entries:
            wide = 24 + len(name) * _CHARACTER + 14
            if x > left and x + wide > self.width:
                x, y = left, y + SIZE + 5
            if kind in ("line", "dashed"):
                self.line(x, y - 4, x + 18, y - 4, ink, 2, kind == "dashed")
            elif kind == "area":
                self.bar(x, y - 9, 18, 9, ink, opacity=0.45)
            elif kind == "bar":
                self.bar(x, y - 9, 18, 9, ink)
            else:
                self.dot(x + 9, y - 4, 4, ink, hollow=kind == "hollow")
            self.text(x + 24, y, name)
            x += wide
        return y + 6

    def svg(self, colours: Mapping[str, str] | None = None) -> str:
        """An <svg> element, coloured by figures.css; or by `colours`, on a ground of its own: a
        file that needs no style sheet."""
        edge = 0 if colours is None else EDGE
        wide, high = self.width + 2 * edge, self.height + 2 * edge
        head = f'<svg viewBox="{-edge} {-edge} {wide:g} {high:g}" role="img"'
        ground = ""
        if colours is not None:
            size = f'width="{wide:g}" height="{high:g}"'
            head += f' xmlns="http://www.w3.org/2000/svg" {size} font-size="{SIZE}"'
            head += (
                ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"'
            )
            ground = f'<rect x="{-edge}" y="{-edge}" {size} rx="6" fill="{colours["paper"]}"/>'
        drawn = "".join(_element(shape, colours) for shape in self.shapes)
        return f"{head}><title>{words(self.title)}</title>{ground}{drawn}</svg>"


def palette() -> dict[str, str]:
    """The inks on a light ground: name to #rrggbb."""
    sheet = files("paceline.page").joinpath("figures.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", sheet.split("@media")[0]))


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _element(shape: Shape, colours: Mapping[str, str] | None) -> str:
    made = {k: v if isinstance(v, str) else f"{v:.4g}" for k, v in shape.at.items()}
    if colours is None:
        kinds = [f"f-{shape.fill}" if shape.fill else "", f"s-{shape.stroke}" * bool(shape.stroke)]
        made["class"] = " ".join(kind for kind in kinds if kind)
    else:
        made["fill"] = colours[shape.fill] if shape.fill else "none"
        if shape.stroke:
            made["stroke"] = colours[shape.stroke]
    if shape.stroke and shape.width != 1:
        made["stroke-width"] = f"{shape.width:g}"
    if shape.dashed:
        made["stroke-dasharray"] = "5 4"
    if shape.opacity != 1:
        made["opacity"] = f"{shape.opacity:.2f}"
    if shape.align != "start":
        made["text-anchor"] = shape.align
    if shape.bold:
        made["font-weight"] = "600"
    if shape.turned:
        made["transform"] = f"translate({made.pop('x')} {made.pop('y')}) rotate(-90)"
    inside = words(shape.said)
    if shape.tag != "text":
        inside = f"<title>{inside}</title>" if inside else ""
    given = "".join(f' {name}="{value}"' for name, value in made.items())
    return f"<{shape.tag}{given}>{inside}</{shape.tag}>"
