"""Record files of made-up figures that look like measured ones; the same ones every time."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

Line = dict[str, Any]

# Of a category: the chance that a drafted token is accepted, and tokens of an answer.
CATEGORIES: dict[str, tuple[float, tuple[int, int]]] = {
    "code": (0.72, (70, 256)),
    "edit": (0.92, (60, 256)),
    "chat": (0.38, (40, 256)),
    "translation": (0.33, (20, 90)),
    "summary": (0.55, (40, 160)),
    "reasoning": (0.52, (60, 256)),
    "long": (0.60, (30, 200)),
}
WORDS = (
    "def", " total", "(", "values", ")", ":", "\n    ", "return", " sum", " the", " answer", " is",
    ".", ",", " which", " of", " 3", " <", " >=", " x", '"', " größer", " 是", " 🙂",
)  # fmt: skip
T1 = 0.058  # seconds of a plain token
R = {1: 1.0, 2: 1.09, 3: 1.18, 4: 1.27, 5: 1.36, 7: 1.58, 9: 1.83}


def header(run: str = "r1", **other: Any) -> Line:
    """A line of kind "run"."""
    card = {
        "weights_bytes": 986_000_000, "bytes_per_token": 1_020_000_000, "bandwidth_gb_s": 19.6,
        "floor_tokens_per_second": 19.2, "predicted_tau": 2.4,
        "r": {str(n): value for n, value in R.items()},
    }  # fmt: skip
    made: Line = {
        "kind": "run", "run": run, "paceline": "0.1.0", "commit": "0123abc4567def",
        "date": "2026-11-30T09:41:07+00:00",
        "argv": ["paceline", "bench", "--suite", "builtin", "--draft", "auto", "--repeats", "3"],
        "hardware": {
            "cpu": "Intel Xeon Platinum 8481C", "cores": 2, "threads": 2, "memory_gb": 15.6,
            "isa": "avx512-vnni", "gpu": None,
        },
        "versions": {"python": "3.11.7", "torch": "2.8.0"},
        "model": "qwen2.5-coder-1.5b", "dtype": "native", "draft": "auto", "k": 4,
        "window": "adaptive", "verify": "exact", "temperature": 0.0, "max_tokens": 256,
        "repeats": 3, "suite": "builtin", "card": card,
    }  # fmt: skip
    return made | other


def side(
    dice: random.Random, tokens: int, alpha: float | None, k: int = 4, slow: float = 1.0
) -> Line:
    """An answer of `tokens`, in three repeats; `alpha` None: plain decoding."""
    log: list[list[float]] = []
    made: list[list[str]] = []
    accepted = drafted = left = 0
    tested, passed = [0] * 12, [0] * 12
    window, left = k, tokens
    target = draft = 0.0
    while left:
        k_now = 0 if alpha is None else min(12, max(1, window))
        seconds = T1 * slow * _r(k_now + 1) * dice.gauss(1, 0.02)
        target += seconds
        wait = 0.0015 * k_now * dice.gauss(1, 0.05)
        draft += wait
        n = 0
        while n < k_now and dice.random() < (alpha or 0) * 0.985**n:
            n += 1
        emitted = min(n + 1, left)
        counted = min(n, emitted)
        for i in range(k_now if emitted > n == k_now else min(k_now, counted + (emitted > n))):
            tested[i] += 1
            passed[i] += i < counted
        log.append([k_now, counted, emitted, round(seconds + wait + 0.0006, 6)])
        for i in range(emitted):
            origin = "accepted" if i < counted else "bonus" if n == k_now else "recovered"
            made.append([dice.choice(WORDS), "plain" if alpha is None else origin])
        drafted, accepted, left = drafted + k_now, accepted + counted, left - emitted
        window = min(10, window + 2) if n == k_now else max(1, n + 1)
    ttft = 0.35 * dice.gauss(1, 0.05)
    log[0][3] = round(log[0][3] + ttft, 6)
    after = sum(entry[3] for entry in log[1:]) or T1
    repeats = sorted(dice.gauss(1, 0.015) for _ in range(3))
    rest = tokens - int(log[0][2])
    rate = rest / after if rest else tokens / (ttft + after)
    tests = sum(tested)
    return {
        "tokens": tokens, "finish": "stop" if tokens < 256 else "length",
        "seconds": [round(log[0][3] + after * each, 5) for each in repeats],
        "ttft_s": [round(log[0][3] * each, 5) for each in repeats],
        "tpot_s": [round(each / rate, 6) for each in repeats], 
        "tokens_per_second": rate / repeats[1],
        "tau": tokens / len(log), "alpha": sum(passed) / tests if tests else None,
        "alpha_at": [p / t for p, t in zip(passed, tested, strict=True) if t],
        "rounds": len(log), "drafted": drafted, "accepted": accepted, "draft_s": draft,
        "target_s": target, "overhead_s": 0.0006 * len(log), "round_log": log, "made": made,
    }  # fmt: skip


def prompt(
    dice: random.Random, category: str, number: int, cell: Mapping[str, Any] | None = None,
    run: str = "r1", k: int = 4, scale: float = 1.0,
) -> Line:  # fmt: skip
    """A line of kind "prompt"."""
    alpha, (least, most) = CATEGORIES.get(category, (0.5, (40, 200)))
    tokens = dice.randint(least, most)
    chance = min(0.97, max(0.02, alpha * scale + dice.gauss(0, 0.09)))
    return {
        "kind": "prompt", "run": run, "prompt": f"{category}-{number}", "category": category,
        "cell": dict(cell or {}), "prompt_tokens": dice.randint(40, 900),
        "plain": side(dice, tokens, None), "speculative": side(dice, tokens, chance, k),
        "same_tokens": True, "error": None,
    }  # fmt: skip


def failed(category: str, number: int, error: str, run: str = "r1") -> Line:
    """A prompt that ended with an error."""
    return {
        "kind": "prompt", "run": run, "prompt": f"{category}-{number}", "category": category,
        "cell": {}, "prompt_tokens": 0, "plain": None, "speculative": None, "same_tokens": None,
        "error": error,
    }  # fmt: skip


def peers(dice: random.Random, prompts: Sequence[Line], run: str = "r1") -> list[Line]:
    """Three other engines on the same prompts."""
    ways = (
        ("transformers", "plain", 0.31, {"dtype": "bfloat16", "threads": 2}),
        ("transformers", "prompt-lookup", 0.42, {"dtype": "bfloat16", "threads": 2, "k": 10}),
        ("llama-cpp", "plain", 0.83, {"file": "q4_k_m", "threads": 2}),
        ("llama-cpp", "prompt-lookup", 0.91, {"file": "q4_k_m", "threads": 2, "k": 7}),
        ("openvino", "plain", 0.74, {"bits": 4, "threads": 2}),
    )
    lines: list[Line] = []
    for engine, mode, share, settings in ways:
        for each in prompts:
            if each["plain"] is None:
                continue
            error = "out of memory" if (engine, each["prompt"]) == ("openvino", "long-1") else None
            rate = each["plain"]["tokens_per_second"] * share * dice.gauss(1, 0.05)
            tokens = each["plain"]["tokens"]
            lines.append({
                "kind": "peer", "run": run, "engine": engine, "mode": mode,
                "model": "qwen2.5-coder-1.5b", "prompt": each["prompt"],
                "category": each["category"], "tokens": None if error else tokens,
                "seconds": [] if error else [tokens / rate] * 3,
                "tokens_per_second": None if error else rate,
                "same_tokens": None if error else dice.random() < 0.8, "settings": settings,
                "error": error,
            })  # fmt: skip
    return lines


def whole(per_category: int = 10, seed: int = 1) -> list[Line]:
    """A run over every category, with two errors and three peers."""
    dice = random.Random(seed)
    lines = [header()]
    names = [(name, n) for name in CATEGORIES for n in range(1, per_category + 1)]
    lines += [prompt(dice, name, n) for name, n in names]
    if len(names) > 6:
        lines[-1] = failed(*names[-1], error="RuntimeError: the prompt is longer than the context")
        lines[9]["same_tokens"] = False
    return lines + peers(dice, lines[1:])


def sweep(seed: int = 2, prompts: int = 4) -> list[Line]:
    """K against draft, and no cell without settings."""
    dice = random.Random(seed)
    argv = ["paceline", "bench", "--sweep", "k=1:6", "draft=lookup,auto"]
    lines = [header("s1", argv=argv)]
    for draft, scale in (("lookup:5", 0.7), ("suffix", 0.85), ("auto", 1.0)):
        for k in (1, 2, 4, 6, 8):
            for n in range(1, prompts + 1):
                cell = {"k": k, "draft": draft}
                lines.append(prompt(dice, ("code", "chat")[n % 2], n, cell, "s1", k, scale))
    return lines


def write(path: Path, lines: Sequence[Line]) -> Path:
    """The record file."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")
    return path


def _r(n: int) -> float:
    """What scoring n tokens costs, over one."""
    known = sorted(R)
    for low, high in pairwise(known):
        if n <= high:
            return R[low] + (R[high] - R[low]) * (n - low) / (high - low)
    return R[known[-1]] + 0.14 * (n - known[-1])
