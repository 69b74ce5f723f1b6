"""The law of the next tokens, written down in full and held against p.

A tiny model and a drafter run through the production loop. First every draft that the drafter can
draw is found (see pieces.py), then, with p and q as the loop has them, everything that the verifier
can do with it. What a round emitted is followed by p, which the theorem says is right; the joint
law of K + 1 tokens that comes out so must be p's own, to 1e-9. Where two rounds are looked at, the
second one runs on the caches that the first one left behind.

p and q are shaped in float32 by the production code and brought to a sum of 1 in float64 before
they are compared: what float32 rounds away, about 1e-8, is the same for plain decoding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from paceline.build.models import Progress
from paceline.build.verify import make_verifier
from paceline.check.kinds import EOS, PROCESSORS, PROMPT, VOCAB, maker, plans
from paceline.check.pieces import Pieces, pieces
from paceline.check.tiny import Script, Tiny, Turn
from paceline.check.verdicts import Watch, to_one
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.protocols import Verifier
from paceline.core.types import Draft

K = 2
LENGTH = K + 1  # tokens whose joint law is looked at
ERROR = 1e-9
POOL = 16  # rows in which the drafts behind one history are looked for side by side
Tokens = tuple[int, ...]
Law = dict[Tokens, float]  # a sequence ends early at the end token


@dataclass(frozen=True)
class Exact:
    """One law that was enumerated. `error`: the most that the probability of one sequence is off;
    `worst`: that sequence; `outcomes`: how many different things the rounds could do."""

    verifier: str
    draft: str
    processor: str
    rounds: int
    error: float
    worst: Tokens
    outcomes: int

    @property
    def ok(self) -> bool:
        """Whether the law is p's."""
        return self.error <= ERROR


@dataclass(frozen=True)
class _Past:
    """A way to have come to some committed tokens of a request that asks for `processor`: the noise
    of each round, and how many refused tokens the caches hold."""

    processor: str
    turns: tuple[Turn, ...] = ()
    refused: int = 0


_Steps = list[tuple[float, Tokens, _Past]]  # how likely, what is emitted, and the past it makes


def enumerate_laws(
    verifier: Verifier,
    name: str,
    draft: str,
    processors: Sequence[str] = tuple(PROCESSORS),
    rounds: int = 1,
) -> list[Exact]:
    """The laws of `verifier`, called `name`, with one way to draft, for each of `processors`."""
    world = _World(verifier, draft)
    done: dict[str, Law] = {each: defaultdict(float) for each in processors}
    now = {(each, ()): (1.0, _Past(each)) for each in processors}
    outcomes: dict[str, int] = defaultdict(int)
    for _ in range(rounds):
        running = {key: state for key, state in now.items() if not _ended(key[1])}
        for each, tokens in now.keys() - running.keys():
            done[each][tokens] += now[each, tokens][0]
        now = {}
        pasts = [past for _, past in running.values()]
        for key, (weight, _), steps in zip(
            running, running.values(), world.round(pasts), strict=True
        ):
            outcomes[key[0]] += len(steps)
            for share, emitted, past in steps:
                then = (key[0], key[1] + emitted)
                come, known = now.get(then, (0.0, past))
                # of all the ways here the one that leaves the most behind
                kept = max(known, past, key=lambda each: each.refused)
                now[then] = (come + weight * share, kept)
    for (each, tokens), (weight, _) in now.items():
        done[each][tokens] += weight
    found: list[Exact] = []
    for each in processors:
        law, right = (world.completed(each, one) for one in (done[each], {(): 1.0}))
        wrong = {x: abs(law.get(x, 0.0) - right.get(x, 0.0)) for x in law | right}
        worst = max(wrong, key=wrong.__getitem__)
        found.append(Exact(name, draft, each, rounds, wrong[worst], worst, outcomes[each]))
    return found


def _ended(tokens: Tokens) -> bool:
    return len(tokens) >= LENGTH or tokens[-1:] == (EOS,)


class _World:
    """The tiny target with one drafter and one verifier."""

    def __init__(self, verifier: Verifier, draft: str) -> None:
        self._target = Tiny(VOCAB, seed=1)
        self._make = maker(draft)
        self._watch = Watch(verifier)
        self._plain: dict[tuple[str, Tokens], list[float]] = {}

    def round(self, pasts: Sequence[_Past]) -> list[_Steps]:
        """All that one more round can do behind each past."""
        found: list[_Steps] = [[] for _ in pasts]
        if not pasts:
            return found
        drafts = self._drafts(pasts)
        turns = [Turn(tuple(point)) for point in drafts.point.tolist()]
        rows = [pasts[which] for which in drafts.which.tolist()]
        seqs, loop = self._replay(rows)
        seqs.turns = turns
        self._watch.laws = []
        round = loop.step(seqs)
        for b, steps in enumerate(self._watch.take()):
            for share, emitted, turn in steps:
                end = next((i + 1 for i, t in enumerate(emitted) if t == EOS), len(emitted))
                refused = round.draft.lengths[b] - len(emitted) + 1
                own = (*rows[b].turns, replace(turn, draft=turns[b].draft))
                weight = float(drafts.weight[b]) * share
                past = replace(rows[b], turns=own, refused=refused)
                found[drafts.which[b]].append((weight, emitted[:end], past))
        return found

    def completed(self, processor: str, law: Law) -> Law:
        """`law` with every sequence continued by p up to LENGTH tokens or the end."""
        found: Law = defaultdict(float)
        todo = list(law.items())
        while todo:
            key, weight = todo.pop()
            if _ended(key):
                found[key[:LENGTH]] += weight
                continue
            p = self._next(processor, key)
            todo += [((*key, token), weight * share) for token, share in enumerate(p) if share > 0]
        return found

    def _next(self, processor: str, behind: Tokens) -> list[float]:
        """p behind the prompt and `behind`, by plain decoding without a past."""
        if (processor, behind) not in self._plain:
            seqs, loop = self._replay([_Past(processor)])
            ids = torch.tensor(behind, dtype=torch.int64)
            seqs.tokens[0, len(PROMPT) : len(PROMPT) + len(behind)] = ids
            seqs.lengths[0] += len(behind)
            empty = Draft(torch.zeros(1, 0, dtype=torch.int64), [0])
            dense = seqs.probs(loop.target.score(seqs, empty), empty).dense
            assert dense is not None
            self._plain[processor, behind] = to_one(dense)[0, 0].tolist()
        return self._plain[processor, behind]

    def _drafts(self, pasts: Sequence[_Past]) -> Pieces:
        """Every draft that can be drawn behind each past."""
        seqs, loop = self._replay([past for past in pasts for _ in range(POOL)])
        window = loop.controller.window(seqs)
        loop.drafter.propose(seqs, window)
        codes: dict[tuple[object, ...], int] = {}

        def drafted(which: np.ndarray, points: np.ndarray) -> Iterator[tuple[int, Draft, int]]:
            """The number of each question, and the draft and the row of it that answer it."""
            for wave in _waves(which, len(pasts)):
                seqs.turns, seqs.running = [Turn()] * seqs.batch, [False] * seqs.batch
                for row, number in wave.items():
                    seqs.turns[row] = Turn(tuple(points[number].tolist()))
                    seqs.running[row] = True
                k = [n if run else 0 for n, run in zip(window, seqs.running, strict=True)]
                draft = loop.drafter.propose(seqs, k)
                for row, number in wave.items():
                    yield number, draft, row

        def rule(which: np.ndarray, points: np.ndarray) -> np.ndarray:
            found = np.zeros(len(which), dtype=np.int64)
            for number, draft, row in drafted(which, points):
                found[number] = codes.setdefault(_said(draft, row), len(codes))
            return found

        def hints(which: np.ndarray, points: np.ndarray) -> np.ndarray:
            most = K * VOCAB * 2
            found = np.ones((len(which), most))
            for number, draft, row in drafted(which, points):
                if draft.q is not None:
                    sums = to_one(draft.q[row, : draft.lengths[row]]).cumsum(-1)[:, :-1]
                    places = sorted({x for x in sums.flatten().tolist() if 0 < x < 1})[:most]
                    found[number, : len(places)] = places
            return found

        return pieces(rule, len(pasts), seqs.asked[0], 5, hints)

    def _replay(self, pasts: Sequence[_Past]) -> tuple[Script, Loop]:
        """Rows with these pasts behind them, each with its caches."""
        length = len(PROMPT) + LENGTH + K + 1
        seqs = Script(len(pasts), length)
        for row, past in enumerate(pasts):
            params = replace(PROCESSORS[past.processor], seed=0, max_tokens=None)
            seqs.admit(row, PROMPT, params, [EOS])
        target = CachedModel(self._target, seqs.batch, length)
        loop = Loop(target, self._make(seqs), self._watch, Fixed(K))
        rounds = max(len(past.turns) for past in pasts)
        for i in range(rounds):
            # all come to their last round together
            late = [i - rounds + len(past.turns) for past in pasts]
            seqs.running = [at >= 0 for at in late]
            seqs.turns = [
                past.turns[at] if at >= 0 else Turn() for past, at in zip(pasts, late, strict=True)
            ]
            loop.step(seqs)
        seqs.running = [True] * seqs.batch
        return seqs, loop


def _waves(which: np.ndarray, pasts: int) -> list[dict[int, int]]:
    """Questions spread over the pool, POOL rows for each past: {row: number of the question}, one
    after the other."""
    waves: list[dict[int, int]] = []
    asked = [0] * pasts
    for number, past in enumerate(which.tolist()):
        wave, slot = divmod(asked[past], POOL)
        asked[past] += 1
        if wave == len(waves):
            waves.append({})
        waves[wave][past * POOL + slot] = number
    return waves


def _said(draft: Draft, row: int) -> tuple[object, ...]:
    n = draft.lengths[row]
    parents = () if draft.parents is None else tuple(draft.parents[row, :n].tolist())
    draws = () if draft.draws is None else tuple(draft.draws[row].flatten().tolist())
    return tuple(draft.tokens[row, :n].tolist()), parents, draws


def check_exact(
    name: str, lenience: float = 1.0, progress: Progress = lambda done, total, what: None
) -> list[Exact]:
    """Every plan with the verifier of that name; with "auto", which picks a rule by how tokens were
    drafted, with every rule (the caches, which only the second round looks at, are the same for
    all). Raises PacelineError for a name that means nothing."""
    verifier = make_verifier(name, lenience)
    jobs = [(verifier, name, plan) for plan in plans()]
    if name == "auto" and lenience == 1:
        jobs = [(verifier, plan.rule, plan) for plan in plans()]
        for other, rule in (("rejection", "block"), ("specinfer", "kseq")):
            own = [plan for plan in plans() if plan.rule == rule and plan.rounds == 1]
            jobs += [(make_verifier(other), other, plan) for plan in own]
    found: list[Exact] = []
    for i, (verifier, called, plan) in enumerate(jobs):
        progress(i, len(jobs), "writing laws down")
        found += enumerate_laws(verifier, called, plan.draft, plan.processors, plan.rounds)
    progress(len(jobs), len(jobs), "writing laws down")
    return found
