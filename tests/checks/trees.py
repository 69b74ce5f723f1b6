"""A tree drafter's own health: what it drafts is what it says, whatever happened before."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from exact import chi_square
from fakes import HashLM, Scripted, Windows, drive, run, sequences
from naive import fresh_logits, fresh_pass, joint_law, probabilities
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.noise import DRAFT, draw, uniforms
from paceline.core.params import SamplingParams
from paceline.core.protocols import Drafter
from paceline.core.sequences import Sequences
from paceline.core.shared import Shared
from paceline.core.tree import ancestry, children, heights, parents_of
from paceline.core.types import Draft
from paceline.drafters.branches import Branches, Wide
from paceline.drafters.first_of import FirstOf
from paceline.drafters.grow import TreeSize
from paceline.drafters.model import ModelDrafter
from paceline.drafters.sampling import Grows
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.tree import Trees

GREEDY = SamplingParams()
EITHER = ("a cache for each", "one cache")


def branches(model, count: int, kind: str = EITHER[0], temperature: float | None = None):
    """Makes a drafter of `count` continuations for given sequences."""

    def make(seqs: Sequences) -> Branches:
        length = seqs.tokens.shape[1]
        if kind == EITHER[0]:
            reads = CachedModel(model, seqs.batch * count, length)
        else:
            reads = Wide(CachedModel(model, seqs.batch, length))
        return Branches(reads, count, temperature)

    return make


def is_a_tree(draft: Draft, k: Sequence[int]) -> None:
    """Parents stand first, siblings differ, no path is longer than k."""
    for b, n in enumerate(draft.lengths):
        parents, tokens = parents_of(draft, b), draft.tokens[b].tolist()
        assert all(-1 <= parent < node for node, parent in enumerate(parents))
        assert heights(parents)[0] <= k[b]
        for siblings in children(parents):
            assert len({tokens[node] for node in siblings}) == len(siblings)
        if draft.parents is not None:
            assert draft.parents[b, n:].tolist() == [-1] * (draft.tokens.shape[1] - n)


def paths(draft: Draft, row: int) -> list[list[int]]:
    """The tokens from the root to each node."""
    parents, tokens = parents_of(draft, row), draft.tokens[row].tolist()
    return [[tokens[i] for i in ancestry(parents, node)] for node in range(draft.lengths[row])]


def laws(model, ids: Sequence[int], draft: Draft, row: int) -> torch.Tensor:
    """[n, V]: what the model says, in an uncached pass, where each drafted token stands."""
    rows = [fresh_pass(model, [*ids, *path[:-1]])[-1] for path in paths(draft, row)]
    return torch.stack(rows).softmax(-1)


class Watch:
    """`drafter` of independent continuations at temperature 1: each node's q is that of an uncached
    pass, and each continuation is what its own noise drew from them."""

    def __init__(self, drafter: Branches, model: HashLM) -> None:
        self.drafter, self.model, self.watched = drafter, model, 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        draft = self.drafter.propose(seqs, k)
        is_a_tree(draft, k)
        for b, n in enumerate(draft.lengths):
            if n:
                right = laws(self.model, seqs.committed(b).tolist(), draft, b)
                assert float((draft.q[b, :n] - right).abs().max()) <= 1e-5
                self._draws(seqs, draft, b, k[b])
                self.watched += n
            elif draft.draws is not None:
                assert int(draft.draws[b].max()) == -1
        return draft

    def _draws(self, seqs: Sequences, draft: Draft, b: int, k: int) -> None:
        count, parents = self.drafter.count, parents_of(draft, b)
        u = uniforms([seqs.seeds[b]], [seqs.lengths[b]], DRAFT, range(k * count))[0]
        assert draft.draws.shape[1] == count
        used = set()
        for c, line in enumerate(draft.draws[b].tolist()):
            assert line[k:] == [-1] * (len(line) - k)
            for i, node in enumerate(line[:k]):
                assert parents[node] == (line[i - 1] if i else -1)
                drawn = draw(draft.q[b, node][None], u[i * count + c][None])
                assert draft.tokens[b, node] == drawn
                used.add(node)
        assert used == set(range(draft.lengths[b]))


def continuations_are_what_was_drawn(kind: str = EITHER[0], count: int = 3) -> None:
    """Whatever was accepted, whoever drafted in between, whatever K was, and whoever had the slot
    before. Three ids only, so that stale entries often look right."""
    model, target, length = HashLM(3, seed=1, sharpness=0.7), HashLM(3, seed=51), 90
    shapes = sequences([[0]] * 3, SamplingParams(), (), length)
    watch = Watch(branches(model, count, kind)(shapes), model)
    now_and_then = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 5 == 0 else [])
    for turn, prompts in enumerate([[[0, 1], [2] * 9, [1, 2, 0]], [[1], [2] * 5 + [0], [0] * 30]]):
        seqs = sequences(prompts, SamplingParams(max_tokens=40, temperature=1, seed=3), (), length)
        windows = Windows(4, 4, 0, 1, 4, 0, 0, 2)
        cached = CachedModel(target, 3, length)
        drive(Loop(cached, FirstOf(now_and_then, watch), Trees(Rejection()), windows), seqs)
        assert watch.watched > 100 * (turn + 1)


def perfect(
    make: Callable[[CachedModel, HashLM], Drafter],
    model: HashLM,
    temperature: float,
    length: int = 100,
) -> float:
    """All that could be accepted is, also where another one drafts now and then, K is 0 now and
    then, a slot is used again by unrelated prompts, and at the end of the sequence. How many tokens
    its rounds accept on average, where K is 4."""
    target = CachedModel(model, 2, length)
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    drafter = FirstOf(silly, make(target, model))
    full: list[int] = []
    for prompts in ([[1, 2], [0] * 20], [[2] * 11, [1, 1]], [[2] * 11 + [0, 0], [1] * 70]):
        params = SamplingParams(max_tokens=40, temperature=temperature, seed=1)
        seqs = sequences(prompts, params, (), length)
        windows = Windows(4, 0, 4, 1)
        at = list(seqs.lengths)
        loop = Loop(target, drafter, Trees(Rejection()), windows)
        while any(seqs.running):
            round = loop.step(seqs)
            for b, row in enumerate(round.emitted):
                if row is None:
                    continue
                if at[b] % 7:
                    assert row.accepted == min(row.drafted, len(row.tokens))
                    if row.drafted == 4:
                        full.append(row.accepted)
                at[b] += len(row.tokens)
    assert len(full) > 5
    return sum(full) / len(full)


def output_is_the_targets_own(make_drafter, k: int = 3) -> None:
    """Greedily, tree by tree, the very tokens that the target alone says; ragged rows."""
    model = HashLM(6, seed=1)
    prompts = [[1, 2, 3], [4], [5] * 9]
    params = [SamplingParams(max_tokens=n) for n in (40, 25, 33)]
    plain = run(model, prompts, params)
    drafted = run(model, prompts, params, make_drafter, k, verifier=Trees(Rejection()))
    assert drafted.ids == plain.ids
    assert sum(row.drafted for rows in drafted.emitted for row in rows) > 60


def pairs_follow_p(make_drafter, k: int = 2, rule: str = "kseq", rows: int = 700) -> None:
    """The joint law of the first two tokens, drawn often: a chi-square test against p's."""
    model, params = HashLM(4, seed=3, sharpness=0.7), SamplingParams(temperature=1, top_k=3)
    each = [SamplingParams(temperature=1, top_k=3, seed=i, max_tokens=2) for i in range(rows)]
    verifier = Trees(Rejection(), rule)
    done = run(model, [[1, 2]] * rows, each, make_drafter, k, verifier=verifier, length=8)
    law = dict(joint_law(model, [1, 2], params, 2))
    seen = dict.fromkeys(law, 0)
    for ids in done.ids:
        seen[tuple(ids)] += 1
    assert all(law[pair] for pair, count in seen.items() if count)
    possible = [pair for pair in law if law[pair]]
    statistic, limit = chi_square([seen[x] for x in possible], [rows * law[x] for x in possible])
    assert statistic < limit


def alone(
    drafter: Callable[[Sequences], Drafter],
    ids: Sequence[int],
    k: int,
    params: SamplingParams = GREEDY,
) -> Draft:
    """What is drafted for one row."""
    seqs = sequences([ids], params)
    return drafter(seqs).propose(seqs, [k])


def levels_see_their_paths(make: Callable[[], Grows], vocab: int, exact: bool = True) -> None:
    """Behind each node of a random tree of three levels stands what a chain along its path gives,
    in ragged rows, of which one is not running; also where a tree was read before."""
    rng = random.Random(vocab)
    seqs = sequences([[1, 2, 0, 1], [2] * 11, [1, 0], [0, 1]], SamplingParams(), (), 64)
    seqs.finish(2)
    reads, width, batch = make(), 3, seqs.batch
    for _ in range(2):
        first = reads.read(seqs)
        parents = [[rng.randrange(-1, i // width * width) for i in range(9)] for _ in range(batch)]
        tokens = torch.tensor([[rng.randrange(vocab) for _ in range(9)] for _ in range(batch)])
        for level in range(0, 9, width):
            known = torch.tensor([row[: level + width] for row in parents])
            found = reads.level(seqs, tokens[:, level : level + width], known)
            for node in range(level, level + width):
                for b in (0, 1, 3):
                    chain = make()
                    at = chain.read(seqs)
                    for depth, i in enumerate(ancestry(parents[b], node)):
                        at = chain.extend(seqs, tokens[:, i], depth)
                    here = found[b, node - level]
                    if exact:
                        assert torch.equal(here, at[b])
                    else:
                        assert float((here - at[b]).abs().max()) < 1e-4
        again = reads.read(seqs)
        assert torch.equal(again[[0, 1, 3]], first[[0, 1, 3]])


def growing(model, size: TreeSize, temperature: float | None = None, shared: bool = False):
    """Makes a drafter for given sequences."""

    def make(seqs: Sequences) -> ModelDrafter:
        cached = CachedModel(model, seqs.batch, seqs.tokens.shape[1])
        return ModelDrafter(Shared(cached, model) if shared else cached, temperature, size)

    return make


def naive(
    model, ids: Sequence[int], depth: int, nodes: int, width: int, params: SamplingParams
) -> dict[tuple[int, ...], float]:
    """The paths of the right tree and their confidences, one pass for each node."""
    at = SamplingParams(temperature=1) if params.greedy else params
    level: dict[tuple[int, ...], float] = {(): 1.0}
    everything: dict[tuple[int, ...], float] = {}
    for _ in range(depth):
        found = {}
        for path in sorted(level, key=lambda x: -level[x])[:width]:
            p = probabilities(fresh_logits(model, [*ids, *path]), at)
            for token in sorted(range(len(p)), key=lambda t: -p[t])[:width]:
                if p[token]:
                    found[(*path, token)] = level[path] * p[token]
        everything |= found
        level = found
    best = sorted(everything, key=lambda x: -everything[x])[:nodes]
    return {path: everything[path] for path in best}


def the_surest_are_held(
    depth: int = 4, nodes: int = 20, width: int = 3, params: SamplingParams = GREEDY
) -> None:
    """A tree holds what a search finds that looks behind every candidate of a level; with its own
    cache or over another's."""
    model = HashLM(9, seed=depth, sharpness=1.0)
    for ids in ([1, 2, 3], [4], [5] * 9):
        right = naive(model, ids, depth, nodes, width, params)
        for shared in (False, True):
            draft = alone(growing(model, TreeSize(nodes, width), shared=shared), ids, depth, params)
            is_a_tree(draft, [depth])
            assert draft.q is None
            assert draft.draws is None
            assert {*map(tuple, paths(draft, 0))} == set(right)
