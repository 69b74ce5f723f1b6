"""What pays: expected tokens against the time that they take.

A round that drafts w tokens commits E(w) tokens, its own one included, in T(w + 1) + w c, so the
best w is the one with the largest ratio. All of them are looked at, because T has steps. Where some
of that is decided as the draft is made, the rule that maximises tokens per time over many rounds is
Dinkelbach's: with L, the largest rate that there is, do whatever has the larger tokens - L time.
"""

from __future__ import annotations

from collections.abc import Sequence

_RARE = 0.02
_ROUNDS = 3  # of Dinkelbach's iteration, which converges faster than Newton's


def promised(chances: Sequence[float]) -> list[float]:
    """How many of k drafted tokens are accepted, on average, for k = 0..`len(chances)`; the chance
    of each is that it is if all before it are."""
    reached, total, found = 1.0, 0.0, [0.0]
    for chance in chances:
        reached *= chance
        total += reached
        found.append(total)
    return found


def best_window(
    rows: Sequence[Sequence[float]], others: int, time: Sequence[float], step: float
) -> tuple[float, int]:
    """The largest rate, in tokens a second, and the window w that has it, the smallest on a tie.

    `rows`: `promised` of each row that drafts, up to as far as it may; `others`: rows that do not;
    `time[w]`: T(w + 1) in seconds; `step`: what a draft step takes.
    """
    best, window = 0.0, 0
    for w in range(min(len(time), max(map(len, rows), default=1))):
        tokens = others + sum(1 + row[min(w, len(row) - 1)] for row in rows)
        if (rate := tokens / (time[w] + w * step)) > best:
            best, window = rate, w
    return best, window


def asking_rate(
    first: Sequence[float],
    chances: Sequence[float],
    behind: Sequence[float],
    time: Sequence[float],
    step: float,
) -> float:
    """The largest rate of one row that has its drafter look at the first token, and then drafts as
    far as pays by how sure it is of that. `first[i]`: how often (any scale) it is as sure as has
    chance `chances[i]`; `behind`: `promised` of what may follow the first token."""
    limit = min(len(behind), len(time) - 1)
    costs = [time[w] + max(1, w) * step for w in range(limit + 1)]
    gains = [0.0, *(1 + more for more in behind[:limit])]  # for a first token that is accepted
    often = [(n, chance) for n, chance in zip(first, chances, strict=True) if n > _RARE]
    rate = 1 / time[0]
    for _ in range(_ROUNDS):
        tokens = spent = 0.0
        paid = [rate * cost for cost in costs]
        for n, chance in often:
            values = [chance * gain - cost for gain, cost in zip(gains, paid, strict=True)]
            w = values.index(max(values))
            tokens += n * (1 + chance * gains[w])
            spent += n * costs[w]
        rate = tokens / spent
    return rate


def goes_on(gains: Sequence[float], costs: Sequence[float], rate: float) -> bool:
    """Whether some n more tokens pay: `gains[n - 1]` tokens on average for `costs[n - 1]` seconds,
    where `rate` tokens a second can be had otherwise."""
    return any(gain > rate * cost for gain, cost in zip(gains, costs, strict=True))
