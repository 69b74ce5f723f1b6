"""All parts of the check, one after the other, and what came of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from paceline.build import check_window
from paceline.build.models import Note, Progress
from paceline.build.verify import make_verifier
from paceline.check.contexts import One, Reader, Two, synthetic, synthetic_two
from paceline.check.exact import Exact, check_exact
from paceline.check.greedy import Answer, Greedy, check_greedy
from paceline.check.pair import Pair, open_pair
from paceline.check.power import Power, check_power
from paceline.check.prompts import PROMPTS
from paceline.check.sampled import FORMS, Sampled, check_sampled
from paceline.errors import PacelineError

LEAST = 1000  # rounds; fewer see nothing
_TRIES = 4  # places that are looked at for each context where a fault could show
_SURE = 0.98  # a token as likely as this leaves nothing to count


@dataclass(frozen=True)
class Request:
    """What is to be checked. `model` None: no pair, the verifier alone. `self_test`: breakages
    too. `prompts`: how many are answered; `contexts`: at how many places of the answers is sampled;
    `rounds`: how often at each. Raises PacelineError for a value that means nothing."""

    model: str | None = None
    draft: str = "auto"
    verify: str = "auto"
    lenience: float = 1.0
    self_test: bool = False
    prompts: int = 12
    contexts: int = 8
    rounds: int = 4000
    k: int = 6
    seed: int = 0
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        make_verifier(self.verify, self.lenience)
        check_window(self.k)
        if not 1 <= self.prompts <= len(PROMPTS):
            raise PacelineError(f"--prompts must be from 1 to {len(PROMPTS)}, not {self.prompts}")
        if self.contexts < 1:
            raise PacelineError(f"--contexts must be at least 1, not {self.contexts}")
        if self.rounds < LEAST:
            raise PacelineError(
                f"--rounds must be at least {LEAST}, not {self.rounds}: fewer show no bias"
            )
        if self.k < 1:
            raise PacelineError("--k must be at least 1: without drafts there is nothing to check")
        if self.model is None and self.draft != "auto":
            raise PacelineError(f"--draft {self.draft} needs its target: give --model too")


@dataclass(frozen=True)
class Report:
    """Everything that was found. `lossless`: what the verifier says of itself."""

    request: Request
    lossless: bool
    exact: list[Exact]
    greedy: Greedy | None = None
    sampled: list[Sampled] = field(default_factory=list[Sampled])
    power: list[Power] = field(default_factory=list[Power])
    pair: Pair | None = None

    @property
    def broken(self) -> list[str]:
        """Which parts found something wrong."""
        parts: list[tuple[str, bool]] = [
            ("exact", all(each.ok for each in self.exact)),
            ("greedy", self.greedy is None or self.greedy.ok),
            ("sampled", all(each.ok for each in self.sampled)),
            ("power", all(each.ok for each in self.power)),
        ]
        return [name for name, ok in parts if not ok]

    @property
    def ok(self) -> bool:
        """Whether all hold."""
        return not self.broken

    @property
    def setting(self) -> str:
        """What the user chose that the law hangs on."""
        if self.request.lenience < 1:
            return f"--lenience {self.request.lenience:g}"
        return f"--verify {self.request.verify}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        greedy = None
        if self.greedy is not None:
            divergences = [
                {**asdict(each), "near_tie": each.near_tie} for each in self.greedy.divergences
            ]
            greedy = {**asdict(self.greedy), "divergences": divergences, "ok": self.greedy.ok}
        return {
            "ok": self.ok,
            "broken": self.broken,
            "lossless": self.lossless,
            "model": self.request.model,
            "draft": self.pair.draft if self.pair else None,
            "verify": self.request.verify,
            "lenience": self.request.lenience,
            "dtype": self.pair.dtype if self.pair else None,
            "rounds": self.request.rounds,
            "exact": [{**asdict(each), "ok": each.ok} for each in self.exact],
            "greedy": greedy,
            "sampled": [{**asdict(each), "ok": each.ok} for each in self.sampled],
            "power": [{**asdict(each), "ok": each.ok} for each in self.power],
        }


def check(request: Request, progress: Progress, note: Note) -> Report:
    """Run all parts. Raises PacelineError for anything that the user can put right."""
    verifier = make_verifier(request.verify, request.lenience)
    pair: Pair | None = None
    if request.model is not None:  # first: what cannot be loaded is said before anything is done
        pair = open_pair(
            request.model,
            request.draft,
            request.verify,
            request.lenience,
            request.dtype,
            request.device,
            request.threads,
            progress,
            note,
        )
    exact = check_exact(request.verify, request.lenience, progress)
    greedy, ones, twos = None, [synthetic(4096, 1)], [synthetic_two(12, 2)]
    sampled: list[Sampled] = []
    if pair is not None:
        greedy, answers = check_greedy(pair, PROMPTS[: request.prompts], request.k, progress)
        ones, twos = _contexts(pair, answers, request, progress)
        if not any(one.x >= 0 for one in ones):
            note(f"{pair.draft} drafted nothing at any of {len(ones)} contexts: give more prompts")
        sampled = check_sampled(verifier, ones, twos, request.rounds, request.seed, FORMS, progress)
        ones, twos = _for_power(ones, twos)
    power = []
    if request.self_test:
        power = check_power(ones, twos, request.rounds, request.seed, progress)
    return Report(request, verifier.lossless, exact, greedy, sampled, power, pair)


def _contexts(
    pair: Pair, answers: Sequence[Answer], request: Request, progress: Progress
) -> tuple[list[One], list[Two]]:
    """Places inside the answers; those first where something is drafted and p is open. Two tokens
    are looked at in every other one."""
    places = [(a, i) for a, answer in enumerate(answers) for i in range(len(answer.ids))]
    random.Random(request.seed).shuffle(places)
    longest = max(len(answer.prompt) + len(answer.ids) for answer in answers)
    reader = Reader(pair, longest)
    ones: list[tuple[One, list[int]]] = []
    idle: list[tuple[One, list[int]]] = []
    for a, i in places[: _TRIES * request.contexts]:
        if len(ones) == request.contexts:
            break
        progress(len(ones), request.contexts, "reading contexts")
        ids = answers[a].prompt + answers[a].ids[:i]
        one = reader.one(f"prompt {a + 1}, token {i + 1}", ids)
        shows = one.x >= 0 and float(one.p[0].max()) < _SURE
        (ones if shows else idle).append((one, ids))
    chosen = (ones + idle)[: request.contexts]
    twos = [reader.two(one.where, ids) for one, ids in chosen[::2]]
    progress(request.contexts, request.contexts, "reading contexts")
    return [one for one, _ in chosen], twos


def _for_power(ones: Sequence[One], twos: Sequence[Two]) -> tuple[list[One], list[Two]]:
    """Contexts that can show a breakage: where a token is drawn from a q. A verifier's faults do
    not hang on the pair, so what the pair lacks is made up."""
    drawn = [one for one in ones if one.q is not None][:2]
    pairs = [two for two in twos if two.drawn][:2]
    return drawn or [synthetic(4096, 1)], [*pairs, synthetic_two(12, 2)]
