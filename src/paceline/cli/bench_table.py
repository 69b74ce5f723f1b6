"""What `paceline bench` found, on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from paceline.bench.compare import Comparison

_ELSEWHERE = 120  # columns where nobody says how many there are
_CELLS = 12  # of a sweep that are shown
_ERRORS = 8
_R = ("2", "3", "4", "5", "6", "8", "9", "16", "33")  # the n of r(n) that are shown

Found = Mapping[str, Any]


def show_card(run: Found) -> None:
    """The static card: what is known before the first answer."""
    console, card, machine = _console(), run["card"], run["hardware"]
    cpus = f"{machine['threads']} thread{'s' * (machine['threads'] != 1)} of {machine['cpu']}"
    where = machine["gpu"] or cpus
    console.print(Text(f"{run['model']} ({run['dtype']}) with {run['draft']}, {where}", "bold"))
    if card["weights_bytes"] is not None:
        console.print(
            f"weights {card['weights_bytes'] / 1e9:.2f} GB; a token reads "
            f"{card['bytes_per_token'] / 1e9:.2f} GB behind {card['context']} others; memory gives "
            f"{card['bandwidth_gb_s']:.1f} GB/s: no more than "
            f"{card['floor_tokens_per_second']:.1f} tokens/s one by one"
        )
    r = ", ".join(f"{card['r'][n]:.2f} ({n})" for n in _R if n in card["r"])
    console.print(f"T(1) {card['t1_ms']:.1f} ms; r(n) = {r}")
    if card["predicted_tau"] is not None:
        console.print(
            f"α {card['alpha']:g} would make τ {card['predicted_tau']:.2f} at k = {run['k']}"
        )
    for line in run.get("peers") or ():
        console.print(Text(line), soft_wrap=True)
    console.print()


def show_summary(found: Found) -> None:
    """By category, by length and by cell, what failed, and the sentence."""
    console = _console()
    if found["all"] is not None:
        rows = dict(found["categories"])
        if len(rows) > 1:
            rows["all"] = found["all"]
        _categories(console, rows)
        _lengths(console, found["lengths"])
    if len(found["cells"]) > 1:
        _cells(console, found["cells"])
    if "peers" in found:
        from paceline.bench.peers.table import notes, table

        console.print(table(found["peers"], "Other engines, each in its best settings"))
        for line in notes(found["peers"]):
            console.print(Text(line), soft_wrap=True)
    for error in found["errors"][:_ERRORS]:
        console.print(Text(f"failed: {error['prompt']}: {error['error']}", "red"), soft_wrap=True)
    if len(found["errors"]) > _ERRORS:
        console.print(Text(f"and {len(found['errors']) - _ERRORS} more failed", "red"))
    console.print(Text(found["words"], "bold"), soft_wrap=True)


def show_comparison(found: Comparison, a: str, b: str) -> None:
    """Ratios by category, all together last."""
    console = _console()
    console.print(Text(f"{b} over {a}, 95% intervals", "bold"))
    grid = _grid("", "prompts", "tokens/s", "speedup over plain")
    names = [*(name for name in found.speed if name != "all"), "all"]
    for name in names:
        speed, gain = found.speed[name], found.speedups[name]
        grid.add_row(name, str(speed.n), speed.said("x"), gain.said("x"))
    console.print(grid)
    if found.alone:
        console.print(f"{found.alone} prompts are in one of them alone and do not count")


def _categories(console: Console, rows: Mapping[str, Found]) -> None:
    grid = _grid(
        "", "prompts", "speedup", "p10..p90", "τ", "α", "TTFT s", "TPOT ms", "worst prompt",
    )  # fmt: skip
    for name, row in rows.items():
        gain, worst = row["speedup"], row["worst"]
        grid.add_row(
            name,
            str(row["prompts"]),
            Text(f"{gain['p50']:.2f}x", _style(gain["p50"])),
            f"{gain['p10']:.2f}..{gain['p90']:.2f}",
            _number(row["tau"]),
            _number(row["alpha"]),
            _both(row["ttft_s"], 1, 2),
            _both(row["tpot_s"], 1e3, 1),
            f"{worst['prompt']} {worst['speedup']:.2f}x",
        )
    console.print(Text("Medians over prompts; TTFT and TPOT: plain → speculative", "italic"))
    console.print(grid)
    console.print()


def _lengths(console: Console, lengths: Sequence[Found]) -> None:
    said = [
        f"{each['tokens']}: {each['speedup']['mean']:.2f}x ({each['prompts']})" for each in lengths
    ]
    console.print("By tokens of the answer (prompts): " + ", ".join(said))
    console.print()


def _cells(console: Console, cells: Sequence[Found]) -> None:
    grid = _grid("settings", "prompts", "speedup", "95%", "p10..p90", "τ", "α")
    for each in cells[:_CELLS]:
        gain = each["speedup"]
        sure = gain["low"] is not None
        grid.add_row(
            " ".join(f"{name}={value}" for name, value in each["cell"].items()),
            str(each["prompts"]),
            Text(f"{gain['mean']:.2f}x", _style(gain["mean"])),
            f"{gain['low']:.2f}..{gain['high']:.2f}" if sure else "",
            f"{gain['p10']:.2f}..{gain['p90']:.2f}",
            _number(each["tau"]),
            _number(each["alpha"]),
        )
    best = f"The best {_CELLS} of {len(cells)} cells" if len(cells) > _CELLS else "All cells"
    console.print(Text(f"{best}, by geometric mean", "italic"))
    console.print(grid)
    console.print()


def _console() -> Console:
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=_ELSEWHERE)


def _grid(*names: str) -> Table:
    grid = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for i, name in enumerate(names):
        words = i == 0 or name.startswith("worst")
        grid.add_column(name, justify="left" if words else "right", overflow="fold")
    return grid


def _style(speedup: float) -> str:
    return "green" if speedup >= 1.03 else "red" if speedup < 0.97 else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _both(sides: Mapping[str, Mapping[str, float] | None], scale: float, places: int) -> str:
    """The medians of both."""
    each = [sides["plain"], sides["speculative"]]
    return " → ".join("" if side is None else f"{side['p50'] * scale:.{places}f}" for side in each)
