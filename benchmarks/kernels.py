"""The native kernels against llama.cpp, on the same GGUF file with as many threads.

T(n), a pass over n tokens behind 256 with logits for all of them; prefill; plain tokens/s; lookup
on the edit prompt against the best of llama.cpp's plain decoding and its own prompt lookup; seconds
to the first token. Each model runs in a process of its own, where the two sides take turns; what is
quoted is the median over the turns, of a ratio the median of the ratio within a turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from prompts import CHAT, EDIT
from sides import DTYPE, THREADS, LlamaCpp, Paceline

from core import ANSWER, BEHIND, PREFILL, milliseconds, timed_start
from paceline.bench.quiet import quiet

MODELS = ("qwen2.5-coder-1.5b", "smollm2-135m")
SIZES = (1, 2, 5, 8)
PLAIN = 64  # tokens of one plain answer
LOOKUPS = (10, 2)  # tokens that llama.cpp's prompt lookup drafts: its default, and fewer
MARKS = ("<!-- bench-kernels -->", "<!-- /bench-kernels -->")
HERE = Path(__file__)


def turns(calls: dict[Any, Callable[[], float]], repeats: int) -> dict[Any, list[float]]:
    """What each call returns, `repeats` times; they take turns. A first round is thrown away."""
    values: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            if not quiet():  # those of either side may spin for a while after a pass
                sys.exit("threads of one side spin on and on; nothing can be compared")
            value = call()
            if turn:
                values[name].append(value)
    return values


def ratio(above: list[float], below: list[float]) -> float:
    """The median of the ratios within a turn."""
    return median(a / b for a, b in zip(above, below, strict=True))


def awake(read: Callable[[], None], times: int = 2) -> Callable[[], float]:
    """Milliseconds of a pass that follows another: the threads are up, the weights as near as they
    come."""

    def timed() -> float:
        read()
        return milliseconds(lambda: [read() for _ in range(times)]) / times

    return timed


def passes(ours: Paceline, theirs: LlamaCpp, repeats: int) -> dict[str, Any]:
    """T(n) and prefill."""
    ids = [1000 + 7 * i % 997 for i in range(BEHIND + PREFILL)]
    sides: dict[str, Any] = {"ours": ours, "theirs": theirs}
    for side in sides.values():
        side.reader(ids[:BEHIND], 0, False)()
    t = turns(
        {
            (name, n): awake(side.reader(ids[BEHIND : BEHIND + n], BEHIND, True))
            for n in SIZES
            for name, side in sides.items()
        },
        repeats,
    )
    prefill = turns(
        {
            name: partial(milliseconds, side.reader(ids[:PREFILL], 0, False))
            for name, side in sides.items()
        },
        repeats,
    )
    first = t["theirs", 1]
    return {
        "t1_ms": median(t["ours", 1]),
        "llamacpp_t1_ms": median(first),
        "t1_vs_llamacpp": ratio(t["ours", 1], first),
        "t5_vs_llamacpp_t1": ratio(t["ours", 5], first),
        "t8_vs_llamacpp_t1": ratio(t["ours", 8], first),
        "r": {str(n): ratio(t["ours", n], t["ours", 1]) for n in SIZES},
        "llamacpp_r": {str(n): ratio(t["theirs", n], first) for n in SIZES},
        "t1_spread": max(t["ours", 1]) / min(t["ours", 1]),
        "llamacpp_t1_spread": max(first) / min(first),
        "prefill_tps": PREFILL / median(prefill["ours"]) * 1e3,
        "llamacpp_prefill_tps": PREFILL / median(prefill["theirs"]) * 1e3,
        "prefill_vs_llamacpp": ratio(prefill["theirs"], prefill["ours"]),
    }


def answers(ours: Paceline, theirs: LlamaCpp, repeats: int) -> dict[str, Any]:
    """Tokens/s, plain and on the edit prompt."""
    from paceline.text.chat import prompt_ids

    chat, edit = (prompt_ids(ours.tokenizer, text) for text in (CHAT, EDIT))
    if not ours.same(edit, ANSWER):
        sys.exit("lookup changed the answer")
    plain = turns(
        {
            "ours": lambda: ours.plain(chat, PLAIN),
            "theirs": lambda: theirs.plain(chat, PLAIN),
        },
        repeats,
    )
    lookups = {f"lookup {n}": (lambda n=n: theirs.lookup(edit, ANSWER, n)) for n in LOOKUPS}
    rates = turns(
        {
            "ours": lambda: ours.lookup(edit, ANSWER),
            "plain": lambda: theirs.plain(edit, ANSWER),
            **lookups,
        },
        repeats,
    )
    best = max((name for name in rates if name != "ours"), key=lambda name: median(rates[name]))
    return {
        "plain_tps": median(plain["ours"]),
        "llamacpp_plain_tps": median(plain["theirs"]),
        "plain_vs_llamacpp": ratio(plain["ours"], plain["theirs"]),
        "edit_tps": median(rates["ours"]),
        "llamacpp_edit_tps": {name: median(rates[name]) for name in ("plain", *lookups)},
        "llamacpp_best": best,
        "edit_vs_llamacpp_best": ratio(rates["ours"], rates[best]),
    }


def ready(name: str) -> float:
    """Seconds from start of a process to its first token, when all that can be kept is."""
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as packed:
        starts = [timed_start(name, DTYPE, packed)[0] for _ in range(4)]
    return median(starts[1:])


def measure(name: str, repeats: int) -> dict[str, Any]:
    """All figures of one model."""
    from paceline.models.pull import resolve

    ready_s = ready(name)
    ours, theirs = Paceline(name), LlamaCpp(str(resolve(name)))
    return passes(ours, theirs, repeats) | answers(ours, theirs, repeats) | {"ready_s": ready_s}


def rows(m: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """One model's figures: what, Paceline's, llama.cpp's, the ratio."""
    lines = []
    for n in SIZES:
        t, other = m["t1_ms"] * m["r"][str(n)], m["llamacpp_t1_ms"] * m["llamacpp_r"][str(n)]
        lines.append((f"T({n}), ms", f"{t:.1f}", f"{other:.1f}", f"{t / other:.2f}"))
    for n in (5, 8):
        share = m[f"t{n}_vs_llamacpp_t1"]
        lines.append((f"T({n}) / llama.cpp's T(1)", "", "", f"{share:.2f}"))
    for n in SIZES[1:]:
        lines.append((f"r({n})", f"{m['r'][str(n)]:.2f}", f"{m['llamacpp_r'][str(n)]:.2f}", ""))
    for key, title in (("prefill", f"prefill of {PREFILL}"), ("plain", "plain")):
        ours, theirs = m[f"{key}_tps"], m[f"llamacpp_{key}_tps"]
        share = m[f"{key}_vs_llamacpp"]
        lines.append((f"{title}, tokens/s", f"{ours:.1f}", f"{theirs:.1f}", f"{share:.2f}"))
    best, share = m["llamacpp_best"], m["edit_vs_llamacpp_best"]
    theirs = f"{m['llamacpp_edit_tps'][best]:.1f} ({best})"
    lines.append(("edit, tokens/s", f"{m['edit_tps']:.1f}", theirs, f"{share:.2f}"))
    lines.append(("start to first token, s", f"{m['ready_s']:.1f}", "", ""))
    return lines


def table(name: str, m: dict[str, Any]) -> None:
    """Print one model's figures."""
    from rich.console import Console
    from rich.table import Table

    shown = Table("", "Paceline", "llama.cpp", "ratio", title=f"{name}, {THREADS} threads")
    for column in shown.columns[1:]:
        column.justify = "right"
    for row in rows(m):
        shown.add_row(*row)
    Console().print(shown)


def rewrite(readme: Path, models: dict[str, dict[str, Any]]) -> None:
    """Put the figures between README's two marks."""
    names = [f"{name}, {side}" for name in models for side in ("Paceline", "llama.cpp", "ratio")]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for each in zip(*(rows(m) for m in models.values()), strict=True):
        cells = [cell for row in each for cell in row[1:]]
        lines.append(f"| {each[0][0]} | " + " | ".join(cells) + " |")
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    body = "\n".join(["", *lines, ""])
    readme.write_text(before + MARKS[0] + body + MARKS[1] + after, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=7, help="turns of either side (at least 5)")
    parser.add_argument("--readme", type=Path, help="whose table to replace with the figures")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return print(json.dumps(measure(options.one, options.repeats)))
    try:
        import llama_cpp  # noqa: F401
    except ImportError:
        sys.exit("the comparison needs llama.cpp: pip install llama-cpp-python")
    models: dict[str, dict[str, Any]] = {}
    for name in options.models:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        out = subprocess.run(
            [sys.executable, str(HERE), "--one", name, "--repeats", str(options.repeats)],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        models[name] = json.loads(out.stdout.splitlines()[-1])
        table(name, models[name])
    if options.readme:
        rewrite(options.readme, models)
    print(json.dumps(models))
    return None


if __name__ == "__main__":
    main()
