"""`paceline bench --plots`: the main figures as files, for a README or a paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.bench import figures, heat, length_figures, lengths
from paceline.bench.findings import groups, rivals, times
from paceline.bench.recorded import Recorded, load
from paceline.errors import MissingExtra, PacelineError
from paceline.page.canvas import EDGE, SIZE, Canvas, Shape, palette

_POINTS = 0.72  # of a unit of a canvas, which is a hundredth of an inch
_DOTS = 220  # an inch


def write(
    records: str | Path, folder: str | Path, png: bool = False, prefix: str = ""
) -> list[Path]:
    """Write each figure that the records have as PREFIXNAME.svg, and with `png` as .png, too: light
    ones, on a ground of their own. Returns the files. Raises PacelineError for what is no record
    file and where they cannot be written, MissingExtra if there is nothing to make PNGs with."""
    if png:
        _matplotlib()
    drawn = draw(load(Path(records)))
    colours = palette()
    made: list[Path] = []
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        for name, canvas in drawn.items():
            made.append(Path(folder, f"{prefix}{name}.svg"))
            made[-1].write_text(canvas.svg(colours) + "\n", encoding="utf-8")
            if png:
                made.append(Path(folder, f"{prefix}{name}.png"))
                _png(canvas, colours, made[-1])
    except OSError as error:
        raise PacelineError(f"--plots {folder} cannot be written: {error.strerror}") from None
    return made


def draw(recorded: Recorded) -> dict[str, Canvas]:
    """The figures by name; those that there is nothing to draw of are left out."""
    kinds, pairs = groups(recorded), recorded.pairs
    drawn = {
        "speedup": figures.speedups(kinds),
        "tau": figures.taus(kinds),
        "alpha": figures.alphas(kinds),
        "rounds": figures.windows(pairs),
        "time": figures.parts(times(kinds)),
        "cost": figures.costs(recorded.r),
        "length": length_figures.gains(pairs),
        "along": length_figures.along(lengths.stretches(pairs)),
        "rates": length_figures.rates(pairs),
        "peers": figures.peers(rivals(recorded, together=True)),
    }
    drawn |= {f"sweep-{n}": each for n, each in enumerate(heat.maps(recorded.cells), 1)}
    return {name: canvas for name, canvas in drawn.items() if canvas is not None}


def _matplotlib() -> Any:
    try:
        from matplotlib import figure
    except ImportError:
        raise MissingExtra("drawing PNGs", "bench") from None
    return figure


def _png(canvas: Canvas, colours: Mapping[str, str], path: Path) -> None:
    """The shapes once more, at the same places."""
    right, bottom = canvas.width + EDGE, canvas.height + EDGE
    size = ((right + EDGE) / 100, (bottom + EDGE) / 100)
    figure = _matplotlib().Figure(figsize=size, dpi=_DOTS, facecolor=colours["paper"])
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-EDGE, right), ylim=(bottom, -EDGE))
    axes.set_axis_off()
    for order, shape in enumerate(canvas.shapes):
        _add(axes, shape, colours, order)
    figure.savefig(path)


def _add(axes: Any, shape: Shape, colours: Mapping[str, str], order: int) -> None:
    from matplotlib import patches

    at: dict[str, Any] = dict(shape.at)
    style: dict[str, Any] = {"alpha": shape.opacity, "zorder": order}
    if shape.tag == "text":
        aligned = {"start": "left", "middle": "center", "end": "right"}[shape.align]
        if shape.turned:
            style |= {"rotation": 90, "rotation_mode": "anchor"}
        axes.text(
            at["x"], at["y"], shape.said, color=colours[shape.fill], fontsize=SIZE * _POINTS,
            fontweight="bold" if shape.bold else "normal", ha=aligned, va="baseline",
            parse_math=False, **style,
        )  # fmt: skip
        return
    if shape.tag in ("line", "polyline"):
        points = (
            _points(at["points"])
            if "points" in at
            else [(at["x1"], at["y1"]), (at["x2"], at["y2"])]
        )
        dashes = (0, (5 / shape.width, 4 / shape.width)) if shape.dashed else "-"
        axes.plot(
            *zip(*points, strict=True), color=colours[shape.stroke], linestyle=dashes,
            linewidth=shape.width * _POINTS, solid_joinstyle="round", **style,
        )  # fmt: skip
        return
    style |= {"facecolor": colours[shape.fill], "linewidth": shape.width * _POINTS}
    style["edgecolor"] = colours[shape.stroke] if shape.stroke else "none"
    if shape.tag == "circle":
        patch = patches.Circle((at["cx"], at["cy"]), at["r"], **style)
    elif shape.tag == "rect":
        patch = patches.Rectangle((at["x"], at["y"]), at["width"], at["height"], **style)
    else:
        patch = patches.Polygon(_points(at["points"]), **style)
    axes.add_patch(patch)


def _points(text: str) -> list[tuple[float, float]]:
    pairs = (point.split(",") for point in text.split(" "))
    return [(float(x), float(y)) for x, y in pairs]
