"""A small search for an engine's best settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from paceline.bench.peer import Answer, Note
from paceline.errors import PacelineError

TOKENS = 32  # of a trial answer
WINDOWS = (2, 3, 5, 7, 10)  # drafted tokens that are tried
SLOW = 0.5  # of the best rate so far: what a candidate must reach to be asked again
NGRAMS = (2, 3)  # matching tokens that are tried
Settings = Mapping[str, Any]


def thread_counts(threads: int) -> list[int]:
    """All of them, and half: two threads of a core may be slower than one."""
    return sorted({threads, max(1, threads // 2)}, reverse=True)


def best(
    candidates: Iterable[Settings],
    answer: Callable[[Settings], Answer],
    note: Note,
) -> dict[str, Any]:
    """The candidate that makes the most tokens a second; each answers twice, and the faster answer
    counts, but one that is slower than half the best so far is not asked again. One that fails is
    passed over. Raises PacelineError if all do, or if an answer is nothing but one token over and
    over: the engine then misreads the weights."""
    rates: list[tuple[float, dict[str, Any]]] = []
    reason = "nothing was tried"
    for candidate in candidates:
        try:
            answers = [answer(candidate)]
            if answers[0].tokens_per_second >= SLOW * max((each for each, _ in rates), default=0.0):
                answers.append(answer(candidate))
        except Exception as error:
            reason = one_line(error)
            note(f"{spelled(candidate)}: {reason}")
            continue
        if len(answers[0].ids) >= TOKENS // 2 and len(set(answers[0].ids)) == 1:
            raise PacelineError("it misreads this file: it repeats one token for ever")
        rate = max(each.tokens_per_second for each in answers)
        note(f"{spelled(candidate)}: {rate:.1f} tokens/s")
        rates.append((rate, dict(candidate)))
    if not rates:
        raise PacelineError(reason)
    return max(rates, key=lambda each: each[0])[1]


def windows(draft: str, ngram: str) -> list[dict[str, int]]:
    """The lookups that are tried, under the names that an engine has for the two numbers."""
    return [{draft: k, ngram: n} for n in NGRAMS for k in WINDOWS]


def spelled(settings: Settings) -> str:
    """Settings in one line."""
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def one_line(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
