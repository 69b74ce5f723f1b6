"""Which layers a model misses least: a search over sets of them, on the model's own answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from paceline.build import LLM
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.protocols import Model, Ranks
from paceline.core.sequences import Sequences
from paceline.core.theory import speedup
from paceline.errors import PacelineError
from paceline.models.progress import Progress
from paceline.models.skip import Part, Skip, layer_count, skip_layers, skippable
from paceline.text.chat import prompt_ids

PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number.",
    "Explain what a hash table is and when it is slow.",
    "Write a C function that reverses a string in place.",
    "What should I pack for a week of hiking in the rain?",
    "Fix this: for i in range(len(xs)): if xs[i] == 0: del xs[i]",
    "Summarise in three sentences why the sky is blue.",
    "Write an SQL query for the ten customers who spent most last year.",
    "Write a short, polite mail that moves a meeting to Thursday.",
)
"""What a model is tried on where its user gives nothing better."""
MOST = 16  # prompts that are answered
ROWS = 4  # of them side by side
DEPTH = 4  # tokens that are read behind the target's own cache, as a draft of so many is
PATIENCE = 3  # further layers that may bring nothing before the search ends
EXCHANGES = 12
LAZY = 4  # sets tried for each further layer, about
WINDOW = 8  # the largest K that a prediction looks at

Dropped = tuple[int, ...]


def search(
    score: Callable[[Dropped], float],
    worth: Callable[[float, Dropped], float],
    layers: Sequence[int],
    wanted: int | None = None,
    known: Iterable[Dropped] = (),
    seed: int = 0,
) -> Iterator[tuple[Dropped, float]]:
    """Better and better sets of `layers` to leave out, each with its score: each is worth more than
    those before it.

    Greedy: the layer whose absence costs the least is added until `wanted` are out, or (None) until
    PATIENCE more have brought nothing. A layer's cost is that of the last time it was tried, and is
    only measured again where it may be the least (Minoux 1978). Then EXCHANGES random ones of a
    layer for another. `score(dropped)`: higher is better. `worth(score, dropped)`: what leaving
    these out at that score is worth. `known`: sets that are tried first.
    """
    best, most = (), float("-inf")

    def better(dropped: Dropped, found: float) -> bool:
        nonlocal best, most
        value = worth(found, dropped)
        if (wanted is not None and len(dropped) != wanted) or value <= most:
            return False
        best, most = dropped, value
        return True

    for dropped in known:
        if better(dropped, found := score(dropped)):
            yield dropped, found
    current, at = (), 1.0
    cost = dict.fromkeys(layers, float("-inf"))
    vain = 0
    while len(current) < (len(layers) if wanted is None else wanted) and vain < PATIENCE:
        tried: dict[int, float] = {}
        for layer in sorted(set(layers) - {*current}, key=lambda x: (cost[x], x)):
            if tried and max(tried.values()) >= at - cost[layer]:
                break
            tried[layer] = score(tuple(sorted((*current, layer))))
        for layer, found in tried.items():
            cost[layer] = at - found
        layer = max(tried, key=lambda x: (tried[x], -x))
        current, at = tuple(sorted((*current, layer))), tried[layer]
        vain = vain if wanted is not None else vain + 1
        if better(current, at):
            vain = 0
            yield current, at
    rng = random.Random(seed)
    for _ in range(EXCHANGES if 0 < len(best) < len(layers) else 0):
        out, back = rng.choice(sorted(set(layers) - {*best})), rng.choice(best)
        dropped = tuple(sorted({*best, out} - {back}))
        if better(dropped, found := score(dropped)):
            yield dropped, found


@dataclass(frozen=True)
class Answer:
    """What the target said, greedily."""

    prompt_ids: list[int]
    completion_ids: list[int]


class Agreement:
    """How often `model` without some of its layers says what it says itself: a score to search by.

    Of each of `answers` (the model's own, greedy) the smaller model reads DEPTH tokens at a time
    behind the whole model's keys and values, exactly as a drafter over that cache would that has
    been right so far, and its likeliest tokens are compared with those that follow. `vocab`: how
    many ids the tokenizer knows.
    """

    def __init__(self, model: Model, answers: Sequence[Answer], vocab: int) -> None:
        self._model, self._layers = model, layer_count(model)
        self._groups = [
            _Group(model, answers[i : i + ROWS], vocab) for i in range(0, len(answers), ROWS)
        ]
        self._known: dict[Dropped, float] = {}

    def part(self, dropped: Dropped) -> Part:
        """The model without these layers."""
        return skip_layers(self._model, set(range(self._layers)) - set(dropped))

    def __call__(self, dropped: Dropped) -> float:
        """The share of all answers' tokens on which both agree."""
        if dropped not in self._known:
            part = self.part(dropped)
            counts = [group.agreeing(part) for group in self._groups]
            self._known[dropped] = sum(n for n, _ in counts) / sum(n for _, n in counts)
        return self._known[dropped]


class _Group:
    """Some answers side by side in the whole model's cache."""

    def __init__(self, model: Model, answers: Sequence[Answer], vocab: int) -> None:
        rows = [(a.prompt_ids + a.completion_ids, len(a.completion_ids)) for a in answers]
        longest = max(len(ids) for ids, _ in rows)
        seqs = Sequences(len(rows), longest + 1)
        for b, (ids, _) in enumerate(rows):
            seqs.admit(b, ids, SamplingParams())
        self._target = CachedModel(model, len(rows), longest + DEPTH, vocab)
        self._target.sync(seqs)
        self._kept = self._target.cache.data.clone()
        count = -(-max(n for _, n in rows) // DEPTH)
        # From the end: what a block overwrites is behind all that is still to be read.
        self._blocks = [_Block(rows, i * DEPTH) for i in reversed(range(count))]

    def agreeing(self, part: Part) -> tuple[int, int]:
        """On how many tokens `part` agrees, and of how many."""
        cache, vocab = self._target.cache, self._target.vocab
        part.reach(cache.length)
        cache.data.copy_(self._kept)
        same = total = 0
        for block in self._blocks:
            tokens = block.tokens.to(part.device)
            if isinstance(part, Ranks):
                top = part.best(tokens, block.at, cache, limit=vocab).top
            else:
                logits = part.forward(tokens, block.at, cache).logits
                top = None if logits is None else logits[..., :vocab].argmax(-1)
            assert top is not None
            same += int((top.cpu() == block.wanted).sum())
            total += int((block.wanted >= 0).sum())
        return same, total


class _Block:
    """DEPTH tokens of each row: `tokens` [B, DEPTH] to read from `at[b]` on, and those that follow,
    `wanted` [B, DEPTH], -1 where there are none. A row that has ended reads behind its end."""

    def __init__(self, rows: Sequence[tuple[list[int], int]], start: int) -> None:
        self.at = [len(ids) - 1 - max(0, n - start) for ids, n in rows]
        self.tokens = torch.zeros(len(rows), DEPTH, dtype=torch.int64)
        self.wanted = torch.full_like(self.tokens, -1)
        for b, (ids, _) in enumerate(rows):
            following = ids[self.at[b] + 1 :][:DEPTH]
            self.wanted[b, : len(following)] = torch.tensor(following, dtype=torch.int64)
            read = ids[self.at[b] :][:DEPTH]
            self.tokens[b, : len(read)] = torch.tensor(read, dtype=torch.int64)


class Prices:
    """What one pass of `model` costs for n = 1..WINDOW + 1 tokens of one row, in passes of one: the
    r(n) of a prediction. The best of some tries, as other programs only ever slow a pass down."""

    def __init__(self, model: Model, repeats: int = 5) -> None:
        self._model, self._repeats = model, repeats
        self._cache = model.new_cache(1, 128)
        times = self._seconds([(model, n) for n in range(1, WINDOW + 2)])
        self.r = [max(1.0, t / times[0]) for t in times]

    def c(self, part: Part) -> float:
        """What a draft step of `part` costs."""
        part.reach(self._cache.length)
        whole, less = self._seconds([(self._model, 1), (part, 1)])
        return less / whole

    def best(self, alpha: float, c: float) -> tuple[int, float]:
        """The K of 1..WINDOW that promises most, and the speedup that it promises."""
        promised = {k: speedup(alpha, k, c, self.r[k]) for k in range(1, WINDOW + 1)}
        k = max(promised, key=lambda k: (promised[k], -k))
        return k, promised[k]

    def _seconds(self, passes: Sequence[tuple[Model, int]]) -> list[float]:
        """How long each of these passes takes, of so many tokens; they take turns."""
        times = [float("inf")] * len(passes)
        for _ in range(self._repeats):
            for i, (model, n) in enumerate(passes):
                tokens = torch.zeros(1, n, dtype=torch.int64, device=model.device)
                began = perf_counter()
                logits = model.forward(tokens, [64], self._cache).logits
                assert logits is not None
                logits.argmax(-1).cpu()  # which waits for a GPU
                times[i] = min(times[i], perf_counter() - began)
        return times


def find(
    llm: LLM,
    prompts: Sequence[str],
    wanted: int | None = None,
    tokens: int = 32,
    known: Skip | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Iterator[Skip]:
    """Better and better choices of layers for `llm`'s model to leave out, on its greedy answers, of
    `tokens` tokens at most, to MOST of `prompts`; the last is the best. `wanted`: how many layers
    (None: as many as pay). `known`: an earlier result, to be beaten.

    Raises PacelineError for a model that cannot leave layers out, or not so many.
    """
    layers, tell = layer_count(llm.model), progress or (lambda done, total, what: None)
    among = skippable(layers)
    if not 1 <= (1 if wanted is None else wanted) <= len(among):
        fix = f"choose 1 to {len(among)}" if among else "use another draft"
        raise PacelineError(
            f"{llm.name} has {layers} layers, of which {len(among)} can be left out; {fix}"
        )
    chosen = list(prompts)
    if len(chosen) > MOST:
        chosen = random.Random(seed).sample(chosen, MOST)
    agreement = Agreement(llm.model, answers(llm, chosen, tokens, tell), llm.tokenizer.size)
    prices = Prices(llm.model)
    most = wanted or len(among)
    total, done = len(among) + LAZY * (most - 1) + EXCHANGES, 0

    def score(dropped: Dropped) -> float:
        nonlocal done
        done += 1
        tell(min(done, total - 1), total, "leaving layers out")
        return agreement(dropped)

    whole = agreement.part(()).nbytes

    def worth(alpha: float, dropped: Dropped) -> float:
        return prices.best(alpha, agreement.part(dropped).nbytes / whole)[1]

    fits = known and known.layers == layers and wanted in (None, len(known.dropped))
    start = [tuple(known.dropped)] if known and fits else []
    for dropped, alpha in search(score, worth, among, wanted, start, seed):
        c = prices.c(agreement.part(dropped))
        k, promised = prices.best(alpha, c)
        yield Skip(list(dropped), layers, alpha, c, k, promised, llm.dtype)
    tell(total, total, "leaving layers out")


def answers(llm: LLM, prompts: Sequence[str], tokens: int, tell: Progress) -> list[Answer]:
    """The model's greedy answers. Raises PacelineError where its scores are not numbers."""
    params, found = SamplingParams(max_tokens=tokens), []
    for i in range(0, len(prompts), ROWS):
        tell(i, len(prompts), "the target answers")
        ids = [prompt_ids(llm.tokenizer, prompt) for prompt in prompts[i : i + ROWS]]
        done = llm.generate(ids, params)
        found += [Answer(p, d.token_ids) for p, d in zip(ids, done, strict=True) if d.token_ids]
    tell(len(prompts), len(prompts), "the target answers")
    if not found:
        raise PacelineError(f"{llm.name} answers nothing: its scores are not numbers (NaN)")
    return found
