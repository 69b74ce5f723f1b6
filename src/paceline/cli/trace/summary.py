"""A trace in a few figures, and the rounds that lost most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from paceline.cli.trace import words
from paceline.text.trace import RoundTrace, Trace


@dataclass(frozen=True)
class Loss:
    """A round that took `seconds` more than its tokens are worth, and `why`."""

    round: int
    seconds: float
    why: str


@dataclass(frozen=True)
class Worth:
    """What a token is worth in seconds, and `how` that is known."""

    seconds: float
    how: str


def worth(trace: Trace) -> Worth | None:
    """What one token takes in plain decoding: as the adaptive window had timed it, else of rounds
    without a draft, else this run's own mean. None where nothing was emitted."""
    timed = [1 / each.choice.plain for each in trace.rounds if each.choice and each.choice.plain]
    if timed:
        return Worth(median(timed), "as the window timed it")
    plain = [each.total_s for each in trace.rounds if not each.nodes]
    if plain:
        return Worth(median(plain), "of rounds without a draft")
    emitted = sum(len(each.emitted) for each in trace.rounds)
    if not emitted:
        return None
    return Worth(sum(each.total_s for each in trace.rounds) / emitted, "this run's mean")


def losses(trace: Trace, most: int = 5) -> list[Loss]:
    """The rounds that took longest for what they emitted, against what that is `worth`."""
    base = worth(trace)
    if base is None:
        return []
    found = [(each.total_s - len(each.emitted) * base.seconds, each) for each in trace.rounds]
    found.sort(key=lambda pair: -pair[0])
    return [Loss(each.number, lost, _why(trace, each)) for lost, each in found[:most] if lost > 0]


def _why(trace: Trace, each: RoundTrace) -> str:
    """A draft in vain; else the part that took longer than usual."""
    if each.drafted > each.accepted and not each.finish:
        lenience = float(trace.header.get("lenience", 1.0))
        first = words.refused(each.rejected, each.rule, lenience)
        return f"{each.accepted} of {each.drafted} accepted; {first}"
    parts = ("draft", "target", "overhead")
    alike = [other for other in trace.rounds if bool(other.nodes) == bool(each.nodes)]
    usual = {p: median(getattr(r.seconds, p) for r in alike) for p in parts}
    part = max(parts, key=lambda p: getattr(each.seconds, p) - usual[p])
    took, drafted = getattr(each.seconds, part), f"{each.accepted} of {each.drafted} accepted"
    what = drafted if each.nodes else "nothing drafted"
    what = f"{what} of a try" if each.choice and each.choice.tried is not None else what
    return f"{what}; {part} took {words.ms(took)} ms, mostly {words.ms(usual[part])}"


def windows(trace: Trace) -> dict[int, int]:
    """How often so many tokens were drafted."""
    counts: dict[int, int] = {}
    for each in trace.rounds:
        counts[len(each.nodes)] = counts.get(len(each.nodes), 0) + 1
    return dict(sorted(counts.items()))


def rate(trace: Trace) -> float | None:
    """Tokens a second behind the first round, reading and waiting left out: of the rounds' own
    times. None for a single round."""
    rest = trace.rounds[1:]
    seconds = sum(each.total_s for each in rest)
    return sum(len(each.emitted) for each in rest) / seconds if seconds else None


def report(trace: Trace) -> dict[str, Any]:
    """For JSON."""
    stats, base, end = trace.stats, worth(trace), trace.end
    header: Mapping[str, Any] = trace.header
    shown = ("model", "dtype", "draft", "k", "window", "verify", "prompt_tokens")
    return {
        **{name: header.get(name) for name in shown},
        "tokens": stats.emitted,
        "rounds": stats.rounds,
        "drafted": stats.drafted,
        "accepted": stats.accepted,
        "tau": stats.tau if stats.drafted else None,
        "alpha": stats.alpha,
        "alpha_at": stats.alpha_at,
        "windows": {str(k): n for k, n in windows(trace).items()},
        "tokens_per_second": rate(trace),
        "plain_seconds_per_token": None if base is None else base.seconds,
        "seconds": {
            "draft": stats.draft_s,
            "target": stats.target_s,
            "overhead": stats.overhead_s,
        },
        "lost": [vars(loss) for loss in losses(trace)],
        "finish_reason": None if end is None else end.get("finish_reason"),
        "notes": list(trace.notes),
    }
