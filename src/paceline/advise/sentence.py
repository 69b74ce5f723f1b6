"""The advice: this draft with this K, or none, and why."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.advise.costs import Passes
from paceline.advise.rows import Row

WORTH = 1.03  # the least speedup that is worth a drafter: below it is what timing cannot tell apart
_ALIKE = 0.02  # speedups that differ by less are the same, and memory decides
_FEW_BYTES = 100_000_000


@dataclass(frozen=True)
class Advice:
    """What to do. `draft` "none" and `k` 0: do not speculate. `command`: what to type."""

    draft: str
    k: int
    speedup: float
    sentence: str
    command: str

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dict(vars(self))


def advise(rows: Sequence[Row], passes: Passes, model: str, options: Sequence[str]) -> Advice:
    """Choose among `rows`, by the speedup to expect of each at its best K. `passes`: of one row;
    `options`: of the command line, to be repeated."""
    drafting = [row for row in rows if row.drafts]
    top = max((row.expected for row in drafting), default=1.0)
    alike = [row for row in drafting if row.expected >= top * (1 - _ALIKE)]
    # the first of those: the order is that of the user's wishes, or that of what is simplest
    best = min(alike, key=lambda row: (row.memory or 0) // _FEW_BYTES, default=None)
    if best is None or best.expected < WORTH:
        why = "no drafter could be tried" if best is None else _why_none(best, passes)
        command = _command(model, options, "--draft", "none")
        return Advice("none", 0, 1.0, f"Do not speculate: {why}.{_batches(drafting)}", command)
    command = _command(model, options, "--draft", best.draft)  # at a window that finds that K
    said = _why(best, passes) + _batches(drafting)
    return Advice(best.draft, best.k, best.expected, said, command)


def _batches(rows: Sequence[Row]) -> str:
    """What to do with several rows side by side, of which there are predictions alone."""
    said = ""
    for batch in rows[0].batches if rows else ():
        best = max(rows, key=lambda row: row.batches[batch][1])
        k, speedup = best.batches[batch]
        use = "none" if speedup < WORTH else f"{best.draft} with K = {k}"
        said += f" With {batch} rows side by side: {use} ({speedup:.2f}x is predicted)."
    return said


def _command(model: str, options: Sequence[str], *rest: str) -> str:
    return shlex.join(["paceline", "generate", "--model", model, *options, *rest])


def _why(row: Row, passes: Passes) -> str:
    kinds = {kind: row.expected_of(kind) for kind in row.kinds}
    each = ", ".join(f"{speedup:.2f}x on {kind}" for kind, speedup in kinds.items())
    slow = [kind for kind, speedup in kinds.items() if speedup < 0.97]
    but = f" It slows {' and '.join(slow)} down: leave it out there." if slow else ""
    apart = f" ({each})" if len(kinds) > 1 else ""
    gain = f"{row.expected:.2f} times as fast as plain decoding{apart}"
    return f"Use {_called(row)} with K = {row.k}: {gain}. {_because(row, passes)}.{but}"


def _why_none(row: Row, passes: Passes) -> str:
    fastest = (
        f"the best drafter here, {_called(row)}, would make it {row.expected:.2f} times as fast"
    )
    because = _because(row, passes)
    return f"{fastest} at K = {row.k}. {because}"


def _because(row: Row, passes: Passes) -> str:
    scoring = passes.seconds(row.k + 1) / passes.seconds(1)
    c = 0.0 if row.c is None else row.c
    brings = f"A round brings {row.tau:.2f} tokens"
    return (
        f"{brings}; scoring {row.k + 1} at once takes {scoring:.2f} plain steps, "
        f"and drafting a token {c:.3f}"
    )


def _called(row: Row) -> str:
    return row.draft if row.draft == row.resolved else f"{row.draft} ({row.resolved})"
