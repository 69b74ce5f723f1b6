"""What is multiplied out in the exact part: ways to draft, and what a request may ask for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from paceline.check.tiny import Tiny
from paceline.core.cached import CachedModel
from paceline.core.noise import draw
from paceline.core.params import SamplingParams
from paceline.core.protocols import Drafter
from paceline.core.sequences import Sequences
from paceline.core.shape import distribution
from paceline.core.types import Draft
from paceline.drafters.branches import Branches
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.sampling import Chain

VOCAB = 3
PROMPT = (0, 1, 2, 0, 1)  # lookup finds its end at the beginning
EOS = 2
MakesDrafter = Callable[[Sequences], Drafter]


@cache
def _tiny(vocab: int = VOCAB) -> Tiny:
    return Tiny(vocab, seed=2)


def _cached(seqs: Sequences, copies: int = 1, vocab: int = VOCAB) -> CachedModel:
    return CachedModel(_tiny(vocab), seqs.batch * copies, seqs.tokens.shape[1])


class FewTokens:
    """A draft model that knows tokens 0 and 2 alone, as a head with a smaller vocabulary does."""

    def __init__(self, seqs: Sequences) -> None:
        self._chain = Chain(_cached(seqs, vocab=2), ids=torch.tensor([0, 2]), vocab=VOCAB)

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Exactly `k[b]` tokens for each row."""
        return self._chain.propose(seqs, list(k))


class Bush:
    """A tree of two tokens behind the committed ones and, with K = 2, one behind the first of them.
    `drawn`: without replacement; else the likeliest ones, which are point masses."""

    def __init__(self, drawn: bool) -> None:
        self._drawn = drawn
        self._laws: dict[tuple[object, ...], torch.Tensor] = {}

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """Up to three nodes for each row."""
        u = seqs.draft_noise(3 if self._drawn else 0)
        tokens = torch.zeros(seqs.batch, 3, dtype=torch.int64)
        q = torch.zeros(seqs.batch, 3, VOCAB)
        lengths = [0] * seqs.batch
        for b in range(seqs.batch):
            lengths[b] = (0, 2, 3)[min(k[b], 2)] if seqs.running[b] else 0
            ids = seqs.committed(b).tolist()
            for j in range(lengths[b]):
                law = self._law(ids + ([int(tokens[b, 0])] if j == 2 else []), seqs.params[b])
                if j == 1:
                    law[tokens[b, 0]] = 0
                    # with one token left there is no other: a node that p is never asked about
                    law = law / law.sum() if float(law.sum()) > 0 else _other(int(tokens[b, 0]))
                q[b, j] = law
                x = draw(law[None], u[b, j : j + 1]) if self._drawn else law.argmax()
                tokens[b, j] = x
        parents = torch.tensor([-1, -1, 0]).repeat(seqs.batch, 1)
        for b, n in enumerate(lengths):
            parents[b, n:] = -1
        return Draft(tokens, lengths, q if self._drawn else None, parents)

    def _law(self, ids: list[int], params: SamplingParams) -> torch.Tensor:
        key = (*ids, params.temperature, params.top_k, params.top_p, params.min_p)
        if key not in self._laws:
            logits = _tiny().after(ids)[None]
            self._laws[key] = distribution(logits, params, params.temperature)[0]
        return self._laws[key].clone()


def _other(token: int) -> torch.Tensor:
    law = torch.zeros(VOCAB)
    law[(token + 1) % VOCAB] = 1
    return law


class _Short:
    """`drafter`, asked for one token at most."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """What it proposes."""
        return self._drafter.propose(seqs, [min(1, n) for n in k])


CHAINS: dict[str, MakesDrafter] = {
    "model": lambda seqs: ModelDrafter(_cached(seqs)),
    "model, hotter": lambda seqs: ModelDrafter(_cached(seqs), 1.7),
    "model, greedy": lambda seqs: ModelDrafter(_cached(seqs), 0.0),
    "few tokens": FewTokens,
    "lookup": lambda seqs: Lookup(),
}
REPEATED: dict[str, MakesDrafter] = {
    "two candidates": lambda seqs: _Short(Branches(_cached(seqs, 2), 2)),
    "two continuations": lambda seqs: Branches(_cached(seqs, 2), 2),
}
TREES: dict[str, MakesDrafter] = {
    "tree, drawn": lambda seqs: Bush(True),
    "tree, likeliest": lambda seqs: Bush(False),
}

PROCESSORS: dict[str, SamplingParams] = {
    "temperature 1": SamplingParams(temperature=1),
    "temperature 0.6": SamplingParams(temperature=0.6),
    "top-k": SamplingParams(temperature=1, top_k=2),
    "top-p": SamplingParams(temperature=1, top_p=0.7),
    "min-p": SamplingParams(temperature=1.2, min_p=0.3),
    "penalties": SamplingParams(
        temperature=1, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.3
    ),
    "bias, minimum": SamplingParams(temperature=1, logit_bias={1: 0.7}, min_tokens=2),
}


PLAIN = "temperature 1"


@dataclass(frozen=True)
class Plan:
    """A way to draft, verified with each of `processors`, over so many rounds. `rule`: what
    `auto` does with such drafts, by name."""

    draft: str
    processors: tuple[str, ...]
    rounds: int
    rule: str


def plans() -> list[Plan]:
    """Every way to draft with everything that may be asked for; and over two rounds, the second of
    which stands on the first one's caches. Trees, of which there are many more, with less of it."""
    everything = tuple(PROCESSORS)
    found: list[Plan] = []
    for draft in CHAINS:
        found += [Plan(draft, everything, 1, "block"), Plan(draft, (PLAIN,), 2, "block")]
    return [
        *found,
        Plan("two candidates", (PLAIN, "penalties"), 1, "kseq"),
        Plan("two candidates", ("top-k",), 2, "kseq"),
        Plan("two continuations", ("top-k",), 1, "kseq"),
        Plan("tree, drawn", (PLAIN, "penalties"), 1, "recursive"),
        Plan("tree, drawn", ("top-k",), 2, "recursive"),
        Plan("tree, likeliest", everything, 1, "recursive"),
        Plan("tree, likeliest", (PLAIN,), 2, "recursive"),
    ]


def maker(draft: str) -> MakesDrafter:
    """What builds a drafter of that kind."""
    return {**CHAINS, **REPEATED, **TREES}[draft]
