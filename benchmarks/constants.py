"""What the adaptive window's constants cost: each halved and doubled, in worlds without a clock.

Four figures, all of time: over all sorts of worlds, of the best fixed window's (mean, and what one
world in twenty exceeds); with a useless drafter, of plain decoding's; in a text that turns from
easy to hard and back every 60 tokens, of an oracle's. What rounds are measured to take is off by
10 %.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "controllers"))

from worlds import CPU, World, adaptive, any_world, best_fixed, fixed, run, texts

from paceline.controllers import acceptance, cost, source

CONSTANTS: list[tuple[Any, str, str]] = [
    (acceptance, "RATE", "how far a surprise moves a request's mood"),
    (acceptance, "_CALM", "what is left of a mood after a test"),
    (acceptance, "_FADE", "what is left of a count after another one"),
    (acceptance, "_TRUST", "tests that what is expected beforehand counts for"),
    (acceptance, "_FIRST", "the odds of a first token, before any test"),
    (source, "_RARE", "tokens that a second probe waits if the first loses one"),
    (source, "_STREAK", "probes that follow a success"),
    (cost, "KEEP", "what is left of a round after another one"),
    (cost, "_LINEAR", "rounds that hold the timed shape"),
    (cost, "_OUTLIER", "times the expected that a round counts as at most"),
    (cost, "_STEP", "how far a round moves a draft step's cost"),
]
SHARES = (
    "_CALM",
    "_FADE",
    "KEEP",
)  # what is lost each time is halved and doubled, not what is kept
TOKENS, NOISE = 512, 0.1


def scores(worlds: int) -> list[float]:
    """The four figures."""
    loss = []
    for seed in range(worlds):
        world = any_world(seed, TOKENS)
        loss.append(run(adaptive(world), world, TOKENS, noise=NOISE).time
                    / best_fixed(world, TOKENS))  # fmt: skip
    useless, turning = [], []
    for seed in range(max(5, worlds // 10)):
        world = World(*texts(np.full(TOKENS + 40, 1e-4), seed), CPU, 0.065)
        useless.append(run(adaptive(world), world, TOKENS, noise=NOISE).time / TOKENS)
        path = np.where(np.arange(TOKENS + 40) // 60 % 2 == 0, 0.95, 0.05)
        world = World(*texts(path, seed, 0.5), CPU, 0.065)
        windows = (lambda t, k=k: k if t // 60 % 2 == 0 else 0 for k in range(1, 9))
        oracle = min(fixed(world, each, TOKENS) for each in windows)
        turning.append(run(adaptive(world), world, TOKENS, noise=NOISE).time / oracle)
    return [mean(loss), float(np.quantile(loss, 0.95)), mean(useless), mean(turning)]


def changed(name: str, value: float, factor: float) -> float:
    """That constant, halved or doubled."""
    if name in SHARES:
        return 1 - (1 - value) * factor
    if name == "_FIRST":
        odds = factor * value / (1 - value)
        return odds / (1 + odds)
    if name == "_OUTLIER":
        return 1 + (value - 1) * factor
    return round(value * factor) if name == "_STREAK" else value * factor


def main(args: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=150)
    options = parser.parse_args(args)
    rows: list[dict[str, Any]] = [{"constant": "as they are", "value": None,
                                   "time": scores(options.worlds)}]  # fmt: skip
    for module, name, meaning in CONSTANTS:
        value = getattr(module, name)
        for factor in (0.5, 2.0):
            setattr(module, name, changed(name, value, factor))
            rows.append({"constant": meaning, "value": getattr(module, name), "was": value,
                         "time": scores(options.worlds)})  # fmt: skip
        setattr(module, name, value)
    print("| constant | here | instead | all worlds | one in 20 | useless drafter | turning text |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        values = ["" if row.get(key) is None else f"{row[key]:.4g}" for key in ("was", "value")]
        print(
            "| " + " | ".join([row["constant"], *values, *(f"{t:.3f}" for t in row["time"])]) + " |"
        )
    print(json.dumps({"worlds": options.worlds, "rows": rows}))


if __name__ == "__main__":
    main(sys.argv[1:])
