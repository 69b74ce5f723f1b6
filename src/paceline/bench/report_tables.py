"""The tables of a report, as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from paceline.bench.findings import Group, Rival
from paceline.bench.recorded import Failure, Recorded, Side
from paceline.bench.summary import percentiles

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]  # the head, and the rows under it

_NOTHING = "–"


def rates(groups: Sequence[Group]) -> Rows:
    """What a user gets, by category."""
    head = ("category", "n", "plain, tokens/s", "speculative, tokens/s", "speedup",
            "with the prompt", "slower than plain", "same tokens")  # fmt: skip
    body: list[list[str]] = []
    for group in groups:
        n = len(group.pairs)
        known = [pair.same for pair in group.pairs if pair.same is not None]
        slower = sum(pair.speedup < 1 for pair in group.pairs)
        body.append([
            group.name, f"{n}", _middle([pair.plain for pair in group.pairs], lambda s: s.rate),
            _middle([pair.drafted for pair in group.pairs], lambda s: s.rate),
            group.speedup.said("x"), group.whole.said("x") if group.whole else _NOTHING,
            f"{slower} of {n}", f"{sum(known)} of {len(known)}" if known else _NOTHING,
        ])  # fmt: skip
    return head, body


def latencies(groups: Sequence[Group]) -> Rows:
    """What it waits for, and what the drafts were worth."""
    head = ("category", "n", "TTFT, ms: plain", "TTFT, ms: speculative", "TPOT, ms: plain",
            "TPOT, ms: speculative", "τ", "α", "K")  # fmt: skip
    body: list[list[str]] = []
    for group in groups:
        plain = [pair.plain for pair in group.pairs]
        drafted = [pair.drafted for pair in group.pairs]
        body.append([
            group.name, f"{len(group.pairs)}",
            *(_spread(sides, lambda s: s.ttft, 0) for sides in (plain, drafted)),
            *(_spread(sides, lambda s: s.tpot, 1) for sides in (plain, drafted)),
            group.tau.said() if group.tau else _NOTHING, _number(group.alpha),
            _number(group.window, 1),
        ])  # fmt: skip
    return head, body


def peers(rivals: Sequence[Rival]) -> Rows:
    """Other engines, by category."""
    head = ("engine", "mode", "category", "n", "theirs, tokens/s", "ours ÷ theirs", "tokens differ")
    body: list[list[str]] = []
    for rival in rivals:
        differ = f"{rival.differing} of {rival.known}" if rival.known else _NOTHING
        ratio = rival.ratio
        body.append([
            rival.engine, rival.mode, rival.category, f"{len(rival.ratios)}",
            f"{median(rival.rates):.1f}", ratio.said("x") if ratio else _NOTHING, differ,
        ])  # fmt: skip
    return head, body


def settings(rivals: Iterable[Rival]) -> Rows:
    """In what settings each engine ran."""
    body = [[r.engine, r.mode, said or "its own"] for r in rivals for said in r.settings or [""]]
    return ("engine", "mode", "settings"), body


def failures(failed: Sequence[Failure]) -> Rows:
    return ("what", "error"), [[each.what, each.error] for each in failed]


def facts(recorded: Recorded) -> list[tuple[str, str]]:
    """Under which circumstances: (name, value) each, as far as they are known."""
    run, hardware, card = recorded.run, recorded.part("hardware"), recorded.part("card")
    versions = ", ".join(f"{name} {value}" for name, value in recorded.part("versions").items())
    cores = f"{hardware.get('cores')} cores, {hardware.get('threads')} threads"
    machine = [hardware.get("cpu"), cores if hardware.get("cores") else None, hardware.get("isa")]
    memory = hardware.get("memory_gb")
    machine += [f"{memory:.0f} GB" if isinstance(memory, (int, float)) else None]
    machine.append(hardware.get("gpu"))
    names = ("draft", "k", "window", "verify", "temperature", "max_tokens", "repeats", "suite")
    given = [(name.replace("_", " "), recorded.word(name)) for name in names]
    found = [
        ("model", recorded.word("model")), ("weight format", recorded.word("dtype")),
        *((name.upper() if name == "k" else name, value) for name, value in given),
        ("machine", ", ".join(str(part) for part in machine if part)),
        ("versions", versions), ("paceline", f"{run.get('paceline', '')} {_commit(recorded)}"),
        ("date", recorded.word("date")[:16].replace("T", " ")), *_bytes(card),
    ]  # fmt: skip
    return [(name, value.strip()) for name, value in found if value.strip()]


def _commit(recorded: Recorded) -> str:
    commit = recorded.word("commit")
    return f"(commit {commit})" if commit else ""


def _bytes(card: dict[str, object]) -> list[tuple[str, str]]:
    """What was known before the first answer."""
    told = (
        ("all weights", "weights_bytes", 1e9, 2, "GB"),
        ("read a token", "bytes_per_token", 1e9, 2, "GB"),
        ("memory bandwidth", "bandwidth_gb_s", 1, 1, "GB/s"),
        ("bandwidth floor", "floor_tokens_per_second", 1, 1, "tokens/s"),
        ("predicted τ", "predicted_tau", 1, 2, ""),
    )
    found: list[tuple[str, str]] = []
    for name, key, over, places, unit in told:
        value = card.get(key)
        if isinstance(value, (int, float)):
            found.append((name, f"{value / over:.{places}f} {unit}"))
    return found


def _middle(sides: Sequence[Side], of: Callable[[Side], float]) -> str:
    return f"{median(of(side) for side in sides):.1f}"


def _spread(sides: Sequence[Side], of: Callable[[Side], float | None], places: int) -> str:
    """p50 and p90 over prompts, in milliseconds."""
    values = [1e3 * value for side in sides if (value := of(side)) is not None]
    if not values:
        return _NOTHING
    found = percentiles(values, (50, 90))
    return f"{found['p50']:.{places}f} / {found['p90']:.{places}f}"


def _number(value: float | None, places: int = 2) -> str:
    return _NOTHING if value is None else f"{value:.{places}f}"
