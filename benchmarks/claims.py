"""What a pair must be for a speedup that somebody claims: the α and K it takes on each machine.

By closed forms over a roofline (`paceline.advise`); no model runs. Prints two Markdown tables, by c
alone and by pair and machine, and as its last line JSON. Machines that agree to the printed digits
share a row.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from typing import Any

from paceline.advise.roofline import PRESETS, Size
from paceline.advise.what_if import Costs, Request, needed_alpha, parse_windows, work_out

CLAIMS = (((7, 3), (2.0, 2.8)), ((54, 8), (3.0,)))  # ((target, draft) in billions, speedups)
COSTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
DRAFT_BITS = (16, 4)
LABELS = ("pair", "draft bits", "batch", "machine", "c", "r(K+1)", "most, α = 1", "needs")


def needs(gains: Sequence[float], costs: Costs, windows: range) -> dict[str, Any]:
    """The α and K that each speedup needs; None where no α reaches it."""
    found = {f"{gain:g}": needed_alpha(gain, costs, windows) for gain in gains}
    return {
        gain: {"alpha": each[0], "k": each[1]} if each else None for gain, each in found.items()
    }


def result(request: Request, gains: Sequence[float]) -> dict[str, Any]:
    """What a pair needs. `request` has α = 1: its best window gives the most that the pair can."""
    curve = work_out(request)
    windows = parse_windows(request.k)
    return {
        **(curve.to_dict()["machine"]),
        "c": curve.costs.c,
        "longest": windows[-1],
        "r": curve.costs.r[windows[-1]],
        "most": curve.best.speedup,
        "needs": needs(gains, curve.costs, windows),
    }


def table(results: list[dict[str, Any]]) -> list[str]:
    """Markdown, machines with the same figures together."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for each in results:
        cells = [f"{gain}x: {_cell(found)}" for gain, found in each["needs"].items()]
        row = (
            f"{each['target']['params_b']:g}B + {each['draft']['params_b']:g}B",
            f"{each['draft']['bits']:g}",
            str(each["batch"]),
            f"{each['c']:.3f}",
            f"{each['r']:.2f}",
            f"{each['most']:.2f}x",
            ", ".join(cells),
        )
        several = f" x{each['gpus']}" if each["gpus"] > 1 else ""
        rows.setdefault(row, []).append(each["gpu"] + several)
    labels = [label.replace("K+1", str(results[0]["longest"] + 1)) for label in LABELS]
    return _markdown(labels, [[*row[:3], ", ".join(gpus), *row[3:]] for row, gpus in rows.items()])


def table_by_c(by_c: dict[str, dict[str, Any]]) -> list[str]:
    """Markdown, a row for each c."""
    labels = ["c", *(f"{gain}x" for gain in next(iter(by_c.values())))]
    return _markdown(labels, [[c, *map(_cell, found.values())] for c, found in by_c.items()])


def _markdown(labels: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    line, *lines = (f"| {' | '.join(row)} |" for row in (labels, *rows))
    return [line, "|---" * len(labels) + "|", *lines]


def _cell(found: dict[str, Any] | None) -> str:
    """Rounded up: the printed α suffices."""
    if found is None:
        return "never"
    return f"α {math.ceil(found['alpha'] * 1000) / 1000:.3f}, K={found['k']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--longest", type=int, default=16, help="The largest K.")
    options = parser.parse_args()
    results = [
        result(
            Request(
                alpha=1.0,
                k=f"1:{options.longest}",
                gpu=gpu,
                target=Size(target),
                draft=Size(draft, bits),
                context=options.context,
                batch=batch,
            ),
            gains,
        )
        for (target, draft), gains in CLAIMS
        for bits in DRAFT_BITS
        for batch in options.batch
        for gpu in PRESETS
    ]
    free = (1.0,) * (options.longest + 1)
    gains = sorted({gain for _, gains in CLAIMS for gain in gains})
    windows = range(1, options.longest + 1)
    by_c = {f"{c:g}": needs(gains, Costs(c, free), windows) for c in COSTS}
    print("\n".join([*table_by_c(by_c), "", *table(results)]))
    print(json.dumps({"by_c": by_c, "pairs": results}))


if __name__ == "__main__":
    main()
