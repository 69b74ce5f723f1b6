"""Answers of many drafters to the same prompts, and what figures they make.

In one turn plain decoding and every drafter, at every K that is asked for, answer the same prompt;
each turn begins with another of them. What is quoted is a ratio of sums of seconds, so that a slow
spell of the machine hits all alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paceline.core.stats import Stats

if TYPE_CHECKING:
    from paceline.models.progress import Progress

KINDS = ("code", "chat", "edit")
JUDGED = ("code", "chat")  # of which α and τ are quoted: an edit repeats its prompt
Way = tuple[str, int]  # a drafter and its K
PLAIN: Way = ("none", 0)


@dataclass(frozen=True)
class Prompt:
    """`kind`: one of KINDS."""

    kind: str
    text: str


@dataclass(frozen=True)
class Run:
    """One answer: its token ids, the seconds that it took, and what was counted meanwhile."""

    ids: list[int]
    seconds: float
    stats: Stats


Runs = dict[Way, dict[int, Run]]  # the answers of each way, by the number of the prompt


def first_third(prompts: Sequence[Prompt]) -> list[int]:
    """The numbers of the first third of each kind, rounded up: what K is chosen on."""
    trial: list[int] = []
    for kind in dict.fromkeys(prompt.kind for prompt in prompts):
        those = [i for i, prompt in enumerate(prompts) if prompt.kind == kind]
        trial += those[: -(-len(those) // 3)]
    return trial


def compare(
    answer: Callable[[str, int, int], Run],
    prompts: Sequence[Prompt],
    drafts: Sequence[str],
    k: int,
    ks: Sequence[int],
    progress: Progress,
) -> tuple[Runs, dict[str, int]]:
    """All answers, `answer(draft, K, number of the prompt)`, and the best K of each drafter.

    On the first third of each kind every drafter runs at `k` and at each of `ks`, and the K with
    the fewest seconds is its best one; on the others it runs at `k` and at that.
    """
    runs: Runs = defaultdict(dict)
    trial = first_third(prompts)
    rest = [i for i in range(len(prompts)) if i not in trial]
    ways = [PLAIN, *((draft, n) for draft in drafts for n in sorted({k, *ks}))]
    done, total = 0, planned(prompts, drafts, k, ks)

    def take(numbers: list[int], ways: list[Way]) -> None:
        nonlocal done
        for turn, i in enumerate(numbers):
            first = turn % len(ways)
            for draft, n in ways[first:] + ways[:first]:
                runs[draft, n][i] = answer(draft, n, i)
                done += 1
                progress(done, total, "answers")

    take(trial, ways)
    best = {
        draft: min(ks, key=lambda n, d=draft: sum(r.seconds for r in runs[d, n].values()))
        for draft in drafts
    }
    ways = [PLAIN, *((draft, n) for draft in drafts for n in sorted({k, best[draft]}))]
    total = done + len(rest) * len(ways)
    take(rest, ways)
    return dict(runs), best


def planned(prompts: Sequence[Prompt], drafts: Sequence[str], k: int, ks: Sequence[int]) -> int:
    """How many answers `compare` asks for at most."""
    trial, n = len(first_third(prompts)), len({k, *ks})
    return trial * (1 + len(drafts) * n) + (len(prompts) - trial) * (1 + len(drafts) * min(2, n))


def pooled(each: Iterable[Stats]) -> Stats:
    """The counts and seconds of many answers together."""
    total = Stats()
    for one in each:
        for name in ("rounds", "drafted", "accepted", "emitted"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        for name in ("draft_s", "target_s", "overhead_s"):
            setattr(total, name, getattr(total, name) + getattr(one, name))
        total.tested = _added(total.tested, one.tested)
        total.passed = _added(total.passed, one.passed)
    return total


def _added(a: list[int], b: list[int]) -> list[int]:
    width = max(len(a), len(b))
    a, b = ([*x, *[0] * (width - len(x))] for x in (a, b))
    return [x + y for x, y in zip(a, b, strict=True)]


def figures(draft: str, runs: Runs, prompts: Sequence[Prompt], k: int, best: int) -> dict[str, Any]:
    """What the answers say about one drafter: α and τ at `k`, on code and chat and on each; the
    speedup over plain decoding at `best` and at `k`, kind by kind; and the least speedup of a kind
    and of a single prompt. `differing`: how many answers are not plain decoding's."""
    plain = runs[PLAIN]
    at_k, at_best = runs[draft, k], runs[draft, best]

    def counts(kinds: Sequence[str]) -> Stats:
        return pooled(run.stats for i, run in at_k.items() if prompts[i].kind in kinds)

    def speedups(drafted: dict[int, Run]) -> dict[str, float]:
        numbers = {
            kind: [i for i in drafted if prompts[i].kind == kind]
            for kind in KINDS
            if any(prompts[i].kind == kind for i in drafted)
        }
        return {kind: _speedup(plain, drafted, those) for kind, those in numbers.items()}

    judged, speedup = counts(JUDGED), speedups(at_best)
    ways = [way for way in runs if way[0] == draft]
    return {
        "alpha": judged.alpha,
        "alpha_at": judged.alpha_at,
        "tau": judged.tau,
        "alpha_by_kind": {kind: counts([kind]).alpha for kind in speedup},
        "tau_by_kind": {kind: counts([kind]).tau for kind in speedup},
        "k": best,
        "speedup": speedup,
        "speedup_at_k": {str(k): speedups(at_k)},
        "least": {
            "kind": min(speedup.values()),
            "prompt": min(_speedup(plain, at_best, [i]) for i in at_best),
        },
        "answers": sum(len(runs[way]) for way in ways),
        "differing": sum(run.ids != plain[i].ids for way in ways for i, run in runs[way].items()),
    }


def _speedup(plain: dict[int, Run], drafted: dict[int, Run], numbers: Sequence[int]) -> float:
    """Plain seconds over drafted seconds, of these prompts together."""
    return sum(plain[i].seconds for i in numbers) / sum(drafted[i].seconds for i in numbers)
