"""What a bench found: by category, by length of the answer, by cell of a sweep, and in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.bench.estimates import Estimate, ratio
from paceline.bench.findings import Group, positions
from paceline.bench.recorded import Pair, Recorded, Side

LENGTHS = (32, 64, 128, 256)  # tokens of an answer, where the next bucket begins
_SLOWER = 0.98
_SOME = 1.02


def summarise(recorded: Recorded) -> dict[str, Any]:
    """For JSON. Of each prompt counts the median of its repeats; what stands for several prompts
    says which: a geometric mean with its interval, or percentiles over prompts."""
    pairs = recorded.pairs
    return {
        "prompts": len(pairs),
        "cell": dict(recorded.cell),
        "errors": [{"prompt": each.what, "error": each.error} for each in recorded.failures],
        "same_tokens": sum(pair.same is True for pair in pairs),
        "differing": sum(pair.same is False for pair in pairs),
        "all": _figures(pairs) if pairs else None,
        "categories": {name: _figures(recorded.of(name)) for name in recorded.categories},
        "lengths": _lengths(pairs),
        "cells": cells(recorded),
        "words": words(recorded),
    }


def cells(recorded: Recorded) -> list[dict[str, Any]]:
    """Of a sweep, the fastest first."""
    each = [
        {"cell": dict(cell), "prompts": len(pairs), "speedup": speedup(pairs), **_counts(pairs)}
        for cell, pairs in recorded.cells.items()
    ]
    return sorted(each, key=lambda one: -one["speedup"]["mean"])


def words(recorded: Recorded) -> str:
    """One sentence, or two."""
    pairs = recorded.pairs
    failed = f"{_count(len(recorded.failures), 'prompt')} failed" if recorded.failures else ""
    if not pairs:
        return f"Nothing was measured{': ' + failed if failed else ''}."
    found = ratio([pair.speedup for pair in pairs])
    assert found is not None
    what = recorded.word("draft") or "speculation"
    k = dict(recorded.cell).get("k")
    said = f"{what}{f' with k={k}' if k else ''} makes {recorded.word('model')} {_by(found)}"
    said += f" on {_count(len(pairs), 'prompt')}"
    by = {name: speedup(recorded.of(name))["mean"] for name in recorded.categories}
    if len(by) > 1:
        most, least = max(by, key=by.__getitem__), min(by, key=by.__getitem__)
        said += f": {by[most]:.2f}x on {most}, {by[least]:.2f}x on {least}"
    slower = sum(pair.speedup < _SLOWER for pair in pairs)
    more = [f"{_count(slower, 'prompt')} got slower" if slower else "no prompt got slower"]
    same, differ = (sum(pair.same is is_ for pair in pairs) for is_ in (True, False))
    if differ:
        verb = "differs" if differ == 1 else "differ"
        more.append(f"{_count(differ, 'answer')} {verb} from plain decoding's")
    elif same == len(pairs):
        more.append("every answer is plain decoding's, token by token")
    if failed:
        more.append(failed)
    return f"{said}. {', '.join(more).capitalize()}."


def speedup(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The geometric mean over prompts with its 95% interval, and percentiles."""
    each = [pair.speedup for pair in pairs]
    found = ratio(each)
    assert found is not None
    spread = percentiles(each, (10, 50, 90))
    return {"mean": found.value, "low": found.low, "high": found.high, **spread}


def percentiles(values: Sequence[float], which: Sequence[int]) -> dict[str, float]:
    """By name, p10 and so on; between two values on a line."""
    found = np.percentile(np.array(values), which).tolist()
    return {f"p{name}": value for name, value in zip(which, found, strict=True)}


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    worst = min(pairs, key=lambda pair: pair.speedup)
    whole = Group("", pairs).whole
    return {
        "prompts": len(pairs),
        "speedup": speedup(pairs),
        "speedup_with_prompt": None if whole is None else whole.value,
        **_counts(pairs),
        "tokens_per_second": _both(pairs, lambda side: side.rate),
        "ttft_s": _both(pairs, lambda side: side.ttft),
        "tpot_s": _both(pairs, lambda side: side.tpot),
        "seconds": {part: sum(p.drafted.parts[part] for p in pairs) for part in worst.plain.parts},
        "plain_seconds": {
            part: sum(p.plain.parts[part] for p in pairs) for part in worst.plain.parts
        },
        "worst": {"prompt": worst.prompt, "speedup": worst.speedup},
    }


def _counts(pairs: Sequence[Pair]) -> dict[str, Any]:
    """τ, α and K over all rounds of these prompts: a long answer counts for more."""
    group = Group("", pairs)
    return {
        "tau": None if group.tau is None else group.tau.value,
        "alpha": group.alpha,
        "alpha_at": [place.alpha.value for place in positions(pairs)],
        "drafted_per_round": group.window,
    }


def _both(pairs: Sequence[Pair], of: Callable[[Side], float | None]) -> dict[str, Any]:
    """p50 and p90 over prompts of both sides."""
    found: dict[str, Any] = {}
    for name, sides in (
        ("plain", [pair.plain for pair in pairs]),
        ("speculative", [pair.drafted for pair in pairs]),
    ):
        values = [value for side in sides if (value := of(side)) is not None]
        found[name] = percentiles(values, (50, 90)) if values else None
    return found


def _lengths(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    """By tokens of the answer."""
    ends = [*LENGTHS, None]
    found: list[dict[str, Any]] = []
    for low, high in zip([0, *LENGTHS], ends, strict=True):
        those = [p for p in pairs if low < p.drafted.tokens and p.drafted.tokens <= (high or 1e9)]
        if those:
            tokens = f"{low + 1}-{high}" if high else f"{low + 1}-"
            found.append({"tokens": tokens, "prompts": len(those), "speedup": speedup(those)})
    return found


def _by(found: Estimate) -> str:
    by = f"{found.value:.2f}x"
    if found.low is not None and found.high is not None:
        interval = f" (95% interval {found.low:.2f} to {found.high:.2f})"
        if found.low <= 1 <= found.high:
            return f"{by} as fast, which may be chance{interval},"
        return f"{by} as fast{interval}"
    if found.value < 1 / _SOME:
        return f"slower, {by},"
    return f"no faster, {by}," if found.value < _SOME else f"{by} as fast"


def _count(n: int, word: str) -> str:
    return f"{n} {word}{'s' * (n != 1)}"
