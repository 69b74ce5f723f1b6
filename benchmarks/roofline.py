"""What limits the kernels: time, bandwidth and products a second of one linear layer, by rows n.

Prints a table and one JSON line. A layer reads its weights once a pass whatever n is, so few rows
are bound by memory and many by arithmetic; where the two meet is where speculation stops being
free. Weights are cycled through several copies, so that they come from memory and not from a cache.
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

import numpy as np

KINDS = ("int4", "q4_k", "q6_k", "int8", "fp16")
ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 64)
GGUF = {"q4_k": (12, 144), "q6_k": (14, 210)}  # type number, bytes of 256 weights
COPIES = 200 << 20  # bytes of weights that are cycled through: far more than a cache


def matrix(native: Any, engine: Any, kind: str, rows: int, cols: int) -> Any:
    """Random weights of one kind."""
    make = np.random.default_rng(0)
    if kind not in GGUF:
        made = native.Matrix.empty(kind, rows, cols)
        made.fill(engine, 0, make.standard_normal((rows, cols), dtype=np.float32))
        return made
    number, size = GGUF[kind]
    raw = make.integers(0, 256, (rows, cols // 256, size), dtype=np.uint8)
    scale = np.float16(0.01).tobytes()  # random bytes would make NaN of some scales
    for at in (0, 2) if kind == "q4_k" else (208,):
        raw[..., at : at + 2] = np.frombuffer(scale, np.uint8)
    return native.Matrix.from_gguf(engine, number, raw.reshape(rows, -1), cols, None)


def measure(kind: str, rows: int, cols: int, threads: int, repeats: int) -> dict[str, Any]:
    """Median milliseconds for each n, the n taking turns."""
    from paceline import kernels

    native = kernels.load()
    engine = native.Engine(threads)
    first = matrix(native, engine, kind, rows, cols)
    layers = [native.Linear([first])]
    while len(layers) * first.nbytes < COPIES:
        layers.append(native.Linear([matrix(native, engine, kind, rows, cols)]))
    inputs = {n: np.random.default_rng(n).standard_normal((n, cols), np.float32) for n in ROWS}
    times: dict[int, list[float]] = {n: [] for n in ROWS}
    for turn in range(repeats + 1):
        for i, (n, x) in enumerate(inputs.items()):
            layer = layers[(turn * len(ROWS) + i) % len(layers)]
            began = time.perf_counter()
            layer(engine, x)
            if turn:
                times[n].append(time.perf_counter() - began)
    typical = {n: median(seconds) for n, seconds in times.items()}
    return {
        "bytes": first.nbytes,
        "ms": {n: t * 1e3 for n, t in typical.items()},
        "r": {n: t / typical[1] for n, t in typical.items()},
        "gb_s": {n: first.nbytes / t / 1e9 for n, t in typical.items()},
        "gmac_s": {n: n * rows * cols / t / 1e9 for n, t in typical.items()},
    }


def main() -> None:
    from rich.console import Console
    from rich.table import Table

    from paceline import kernels

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", nargs="*", default=KINDS, choices=KINDS)
    parser.add_argument("--size", nargs=2, type=int, default=(8960, 1536), metavar=("OUT", "IN"))
    parser.add_argument("--threads", type=int, default=kernels.default_threads())
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    results = {
        kind: measure(kind, *options.size, options.threads, options.repeats)
        for kind in options.kinds
    }
    for what, title in (("ms", "milliseconds"), ("gb_s", "GB/s read"), ("gmac_s", "GMAC/s")):
        table = Table("kind", *(f"n = {n}" for n in ROWS), title=title)
        for kind, found in results.items():
            table.add_row(kind, *(f"{found[what][n]:.3g}" for n in ROWS))
        Console(width=120).print(table)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
