"""The walk down a tree: rows side by side, chains, caches, and the whole loop."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from checks import tree_laws
from checks.tree_laws import Bushy, around, drafted
from exact import Grid
from exact_trees import merged
from fakes import TableModel, run
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.noise import Noise, draw
from paceline.core.params import SamplingParams
from paceline.core.target import Target
from paceline.core.types import Draft
from paceline.drafters.branches import Branches
from paceline.verifiers.block import Block
from paceline.verifiers.candidates import kseq, one_by_one
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.tree import Trees, offers_of, walk

RULES = {"kseq": kseq, "specinfer": one_by_one}


def random_rows(seed: int, kinds: list[str], q_kind: str) -> tuple[Target, Draft, Noise]:
    """A batch of `kinds`: trees, chains, drawn continuations, empty rows; every third is greedy."""
    rng, make = random.Random(seed), torch.Generator().manual_seed(seed)
    vocab, width = 6, 6 - (q_kind == "narrow")
    rows = []
    for kind in kinds:
        line = [rng.sample(range(width), width)[:3] for _ in range(3)]
        paths = {
            "empty": [],
            "chain": [[x[0] for x in line]],
            "tree": [[line[0][1]], [line[0][0], line[1][0]], [line[0][0], line[1][1], line[2][0]]],
            "drawn": [[rng.choice(line[0][:2]), rng.choice(line[1][:2])] for _ in range(3)],
            "drawn chain": [[x[0] for x in line]],
        }
        rows.append(merged(paths[kind]))
    draft = drafted(rows)
    batch, k = draft.tokens.shape
    draws = torch.full((batch, 3, 3), -1)
    q = (torch.randn(batch, k, width, generator=make) * 2).softmax(-1)
    for b, (kind, (tokens, parents, nodes)) in enumerate(zip(kinds, rows, strict=True)):
        for behind in offers_of(parents):
            for node, before in zip(behind[1:], behind, strict=False):
                q[b, node] = q[b, before]
                if not kind.startswith("drawn"):
                    q[b, node, tokens[before]] = 0
                    q[b, node] /= q[b, node].sum()
        if kind.startswith("drawn"):
            for c, line in enumerate(nodes):
                draws[b, c, : len(line)] = torch.tensor(line)
    logits = torch.randn(batch, k + 1, vocab, generator=make) * 2
    sampled = [b for b in range(batch) if b % 3]
    dense = logits[sampled].softmax(-1)
    p = Target(logits, logits.argmax(-1), sampled, dense)
    q = None if q_kind == "point" else q
    draft = Draft(draft.tokens, draft.lengths, q, draft.parents, draws)
    return p, draft, Noise.at([seed + b for b in range(batch)], [9] * batch, k)


def only(b: int, p: Target, draft: Draft, noise: Noise) -> tuple[Target, Draft, Noise]:
    """Row b alone, without its padding."""
    n, rows = draft.lengths[b], slice(b, b + 1)
    sampled = b in p.sampled
    dense = p.dense[[p.sampled.index(b)], : n + 1] if sampled else None
    return (
        Target(p.logits[rows, : n + 1], p.top[rows, : n + 1], [0] if sampled else [], dense),
        Draft(
            draft.tokens[rows, :n],
            [n],
            None if draft.q is None else draft.q[rows, :n],
            draft.parents[rows, :n],
            draft.draws[rows],
        ),
        Noise(noise.accept[rows, :n], noise.last[rows, : n + 1]),
    )


KINDS = ["tree", "tree", "drawn", "chain", "chain", "empty", "drawn", "tree", "drawn chain"]


@pytest.mark.parametrize("q_kind", ["q", "point", "narrow"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("chain", [Rejection(), Block()])
def test_rows_of_all_kinds_side_by_side(chain, rule: str, q_kind: str) -> None:
    """Each says what it says alone; a path is one of the tree; nothing is changed."""
    verifier = Trees(chain, rule)
    for seed in range(6):
        rng = random.Random(seed)
        p, draft, noise = random_rows(seed, rng.sample(KINDS, len(KINDS)), q_kind)
        before = copy.deepcopy((p, draft, noise))
        verdict = verifier.verify(p, draft, noise)
        batch, k = draft.tokens.shape
        assert verdict.tokens.shape == (batch, k + 1)
        assert verdict.path.shape == (batch, k)
        assert verdict.tokens.dtype == verdict.accepted.dtype == verdict.path.dtype == torch.int64
        for b in range(batch):
            n = int(verdict.accepted[b])
            path, said = verdict.path[b, :n].tolist(), verdict.tokens[b, : n + 1].tolist()
            assert verdict.path[b, n:].tolist() == [-1] * (k - n)
            assert said[:n] == draft.tokens[b, path].tolist()
            assert draft.parents[b, path].tolist() == [-1, *path[:-1]][:n]
            assert all(0 <= node < draft.lengths[b] for node in path)
            at = [0, *(node + 1 for node in path)]
            if b in p.sampled:
                law = p.dense[p.sampled.index(b), at]
                assert all(float(law[i, token]) > 0 for i, token in enumerate(said))
            else:
                assert said == p.top[b, at].tolist()
                children = offers_of(draft.parents[b, : draft.lengths[b]].tolist())[at[-1]]
                assert said[-1] not in draft.tokens[b, children].tolist()
            alone = verifier.verify(*only(b, p, draft, noise))
            assert alone.tokens[0, : n + 1].tolist() == said
            assert alone.path[0, :n].tolist() == path
        for old, new in zip(before, (p, draft, noise), strict=True):
            for name, value in vars(old).items():
                now = getattr(new, name)
                assert torch.equal(value, now) if isinstance(value, torch.Tensor) else value == now


@pytest.mark.parametrize("q_kind", ["q", "point", "narrow"])
@pytest.mark.parametrize("rule", RULES)
def test_the_walk_takes_each_numbers_own_row(rule: str, q_kind: str) -> None:
    """Every node its own uniform, p behind it and q of it; the last draw at the accepted count."""
    for seed in range(20):
        p, draft, noise = random_rows(seed, ["empty", "tree", "drawn"], q_kind)
        verdict = Trees(Rejection(), rule).verify(p, draft, noise)
        for b in (1, 2):
            n = draft.lengths[b]
            q = None if draft.q is None else draft.q[b, :n]
            drawn = b == 2 and q is not None
            lines = [[x for x in line if x >= 0] for line in draft.draws[b].tolist()]
            path, weights = walk(
                p.dense[b - 1, : n + 1],
                offers_of(draft.parents[b, :n].tolist(), lines if drawn else []),
                draft.tokens[b, :n].tolist(),
                q,
                noise.accept[b].tolist(),
                RULES[rule] if drawn else one_by_one,
            )
            assert verdict.path[b, : len(path)].tolist() == path
            assert int(verdict.accepted[b]) == len(path)
            last = int(draw(weights[None], noise.last[b, len(path), None]))
            assert int(verdict.tokens[b, len(path)]) == last


def wide_rows(seed: int, q_kind: str) -> tuple[Target, Draft, Noise]:
    """Sampled chains over many tokens, p with or without a long tail of zeros."""
    make = torch.Generator().manual_seed(seed)
    rows, k, vocab = 24, 4, 1000
    width = vocab - 100 * (q_kind == "narrow")
    scores = torch.randn(rows, k + 1, vocab, generator=make) * 3
    q = (scores[:, :k, :width] + torch.randn(rows, k, width, generator=make)).softmax(-1)
    if seed % 2:
        scores[scores < 0] = -torch.inf
    p = Target(scores, scores.argmax(-1), range(rows), scores.softmax(-1))
    u = torch.rand(rows * k, generator=make).double()
    tokens = draw(q.flatten(0, 1), u).reshape(rows, k)
    lengths = [b % (k + 1) for b in range(rows)]
    draft = Draft(tokens, lengths, None if q_kind == "point" else q)
    return p, draft, Noise.at(range(rows), [seed] * rows, k)


@pytest.mark.parametrize("q_kind", ["q", "point", "narrow"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_a_tree_of_width_one_is_the_chain_to_the_bit(seed: int, rule: str, q_kind: str) -> None:
    p, draft, noise = wide_rows(seed, q_kind)
    k, lengths = draft.tokens.shape[1], draft.lengths
    parents = torch.arange(-1, k - 1).expand(len(lengths), -1).clone()
    for b, n in enumerate(lengths):
        parents[b, n:] = -1
    one = torch.arange(k).expand(len(lengths), 1, k).clone()
    for b, n in enumerate(lengths):
        one[b, :, n:] = -1
    for chain in (Rejection(), Block()):
        right = chain.verify(p, draft, noise)
        accepted = right.accepted.tolist()
        for draws in (None, one):
            tree = Draft(draft.tokens, lengths, draft.q, parents, draws)
            verdict = Trees(chain, rule).verify(p, tree, noise)
            assert verdict.accepted.tolist() == accepted
            for b, n in enumerate(accepted):
                assert torch.equal(verdict.tokens[b, : n + 1], right.tokens[b, : n + 1])
                assert verdict.path[b].tolist() == [*range(n), *[-1] * (k - n)]
        assert Trees(chain, rule).verify(p, draft, noise).path is None
    # and so is the walk itself, which chains are spared
    right = Rejection().verify(p, draft, noise)
    for b, n in enumerate(lengths):
        q = None if draft.q is None else draft.q[b]
        offers = [*([i] for i in range(n)), []]
        path, weights = walk(
            p.dense[b], offers, draft.tokens[b].tolist(), q, noise.accept[b].tolist(), RULES[rule]
        )
        assert len(path) == int(right.accepted[b])
        last = draw(weights[None], noise.last[b, len(path), None])
        assert int(last) == int(right.tokens[b, len(path)])


def test_lossless_is_what_the_chain_says() -> None:
    assert Trees(Rejection()).lossless is True
    assert Trees(Rejection(0.5)).lossless is False


def test_greedy_trees_say_what_the_target_would() -> None:
    tree_laws.greedy_trees_say_what_the_target_would()


def test_siblings_share_a_position() -> None:
    """A model that reads positions: each level of the tree is one place on."""
    steps = [[2, 0, 1, 0], [0, 0, 3, 1], [0, 5, 0, 1], [7, 0, 1, 2], [0, 1, 2, 9], [3, 1, 0, 0]]
    model = TableModel(steps)
    params = SamplingParams(temperature=0, max_tokens=8)
    plain = run(model, [[1]], params)
    truth = [1, *plain.ids[0]]
    found = run(model, [[1]], params, around([truth], 4, 3), verifier=Trees(Rejection()))
    assert found.ids == plain.ids == [[0, 2, 1, 0, 3, 0, 0, 0]]
    assert max(e.accepted for e in found.emitted[0]) == 3


def test_refused_nodes_leave_nothing_in_the_cache() -> None:
    tree_laws.refused_nodes_leave_nothing_in_the_cache()


def test_two_tokens_through_the_whole_loop() -> None:
    """Fixed candidates: the joint law of two tokens, round upon round, on a grid."""
    p = [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
    law = torch.zeros(3, 3)
    seqs = through_the_loop(
        TableModel(torch.tensor(p).log().tolist(), by="token"),
        lambda seqs: Bushy(lambda ids: [[0], [1]]),
        2,
        (1, 2, 4),
        2,
    )
    for x, y in seqs.tokens[:, 1:3].tolist():
        law[x, y] += 1 / seqs.batch
    assert float((law - torch.tensor(p)[0][:, None] * torch.tensor(p)).abs().max()) <= 1e-9


def test_independent_continuations_through_the_whole_loop() -> None:
    """A draft model's own draws; SpecInfer's thresholds are in eighths here."""
    p, q = [0.5, 0.25, 0.25], [0.25, 0.5, 0.25]

    def wide(seqs: Grid) -> Branches:
        model = TableModel.of_probs(q)
        return Branches(CachedModel(model, 2 * seqs.batch, seqs.tokens.shape[1]), 2)

    seqs = through_the_loop(TableModel.of_probs(p), wide, 1, (4, 2, 4), 1)
    law = torch.bincount(seqs.tokens[:, 1], minlength=3) / seqs.batch
    assert law.tolist() == p


def through_the_loop(model, make_drafter, k: int, cells: tuple[int, int, int], tokens: int) -> Grid:
    """Rows over a grid of noise for drafts of two nodes, after that many tokens."""
    seqs = Grid(2, tokens, *cells)
    for row in range(seqs.batch):
        seqs.admit(row, [0], SamplingParams(temperature=1))
    target = CachedModel(model, seqs.batch, seqs.tokens.shape[1])
    loop = Loop(target, make_drafter(seqs), Trees(Rejection(), "specinfer"), Fixed(k))
    while any(seqs.running):
        loop.step(seqs)
        for row, length in enumerate(seqs.lengths):
            if length > tokens:
                seqs.finish(row)
    return seqs
