"""What every verifier promises. A new one joins by a line in `VERIFIERS`."""

from __future__ import annotations

import copy
import random

import pytest
import torch

from paceline.core.noise import Noise
from paceline.core.params import SamplingParams
from paceline.core.target import Prefix, Target, target
from paceline.core.types import Draft, Verdict
from paceline.verifiers.block import Block
from paceline.verifiers.coupled import Coupled
from paceline.verifiers.greedy import Greedy
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.typical import Typical

VERIFIERS = {  # and: may rows sample
    "greedy": (Greedy(), False),
    "rejection": (Rejection(), True),
    "block": (Block(), True),
    "coupled": (Coupled(), True),
    "typical": (Typical(), True),
}
LOSSY = {"typical"}
VOCAB, BATCH = 6, 5
NONE = torch.empty(0, dtype=torch.int64)


@pytest.fixture(params=VERIFIERS)
def verifier(request: pytest.FixtureRequest):
    return VERIFIERS[request.param]


def inputs(seed: int, k: int, samples: bool, q_kind: str) -> tuple[Target, Draft, Noise]:
    rng, make = random.Random(seed), torch.Generator().manual_seed(seed)
    params = [
        SamplingParams(temperature=rng.choice([0, 0.7, 1.5]) if samples else 0, top_k=4)
        for _ in range(BATCH)
    ]
    logits = torch.randn(BATCH, k + 1, VOCAB, generator=make) * 2
    width = VOCAB - (q_kind == "narrow")
    tokens = torch.randint(width, (BATCH, k), generator=make)
    right = torch.rand(BATCH, k, generator=make) < 0.6
    likely = logits[:, :k].argmax(-1)
    tokens = torch.where(right & (likely < width), likely, tokens)
    q = None
    if q_kind != "point":
        q = (torch.randn(BATCH, k, width, generator=make) * 2).softmax(-1)
    lengths = [rng.randrange(k + 1) for _ in range(BATCH)]
    lengths[1] = 0
    rows = [Prefix(p, NONE, NONE, tokens[b], ()) if b != 1 else None for b, p in enumerate(params)]
    p = target(logits, rows)
    return p, Draft(tokens, lengths, q), Noise.at(range(BATCH), [9] * BATCH, k)


def verdict_of(verifier, p: Target, draft: Draft, noise: Noise) -> tuple[Verdict, list[list[int]]]:
    verdict = verifier.verify(p, draft, noise)
    n = verdict.accepted.tolist()
    return verdict, [row[: n[b] + 1] for b, row in enumerate(verdict.tokens.tolist())]


CASES = [(seed, k, q) for seed in range(12) for k in (0, 1, 4) for q in ("point", "q", "narrow")]


@pytest.mark.parametrize(("seed", "k", "q"), CASES)
def test_a_prefix_of_the_draft_then_one_token_of_the_target(verifier, seed, k, q) -> None:
    part, samples = verifier
    p, draft, noise = inputs(seed, k, samples, q)
    before = copy.deepcopy((p, draft, noise))
    verdict, emitted = verdict_of(part, p, draft, noise)
    assert verdict.tokens.shape == (BATCH, k + 1)
    assert verdict.tokens.dtype == verdict.accepted.dtype == torch.int64
    for b in (0, 2, 3, 4):
        n = int(verdict.accepted[b])
        assert 0 <= n <= draft.lengths[b]
        assert emitted[b][:n] == draft.tokens[b, :n].tolist()
        law = torch.eye(VOCAB)[p.top[b]]
        if b in p.sampled:
            law = p.dense[list(p.sampled).index(b)]
        assert all(float(law[i, token]) > 0 for i, token in enumerate(emitted[b]))
    # pure: the inputs are as they were, and a second time gives the same
    for old, new in zip(before, (p, draft, noise), strict=True):
        for name, value in vars(old).items():
            now = getattr(new, name)
            assert torch.equal(value, now) if isinstance(value, torch.Tensor) else value == now
    assert verdict_of(part, p, draft, noise)[1] == emitted


@pytest.mark.parametrize("q", ["point", "q"])
def test_greedy_rows_say_what_the_target_would(verifier, q: str) -> None:
    part, samples = verifier
    for seed in range(20):
        p, draft, noise = inputs(seed, 4, samples, q)
        _, emitted = verdict_of(part, p, draft, noise)
        for b in (b for b in (0, 2, 3, 4) if b not in p.sampled):
            assert emitted[b] == p.top[b, : len(emitted[b])].tolist()
            n = len(emitted[b]) - 1
            assert n == draft.lengths[b] or int(draft.tokens[b, n]) != emitted[b][n]


@pytest.mark.parametrize("rule", [Greedy(), Greedy(0.5), Rejection(), Block()])
def test_a_rule_of_chains_reads_no_tree(rule) -> None:
    """It would take siblings for tokens that follow each other, and say nothing."""
    p, draft, noise = inputs(0, 2, not isinstance(rule, Greedy), "q")
    tree = Draft(draft.tokens, draft.lengths, draft.q, torch.full((BATCH, 2), -1))
    with pytest.raises(ValueError, match="tree"):
        rule.verify(p, tree, noise)


@pytest.mark.parametrize("q", ["point", "q", "narrow"])
def test_a_verdict_does_not_depend_on_the_neighbours(verifier, q: str) -> None:
    part, samples = verifier
    for seed in range(12):
        p, draft, noise = inputs(seed, 4, samples, q)
        _, emitted = verdict_of(part, p, draft, noise)
        for b in (0, 2, 3, 4):
            sampled = [0] if b in p.sampled else []
            dense = p.dense[[list(p.sampled).index(b)]] if sampled else None
            one = Target(p.logits[b : b + 1], p.top[b : b + 1], sampled, dense)
            q_b = None if draft.q is None else draft.q[b : b + 1]
            alone = Draft(draft.tokens[b : b + 1], [draft.lengths[b]], q_b)
            mine = slice(b, b + 1)
            u = Noise(noise.accept[mine], noise.last[mine], noise.seeds[mine], noise.bases[mine])
            assert verdict_of(part, one, alone, u)[1] == [emitted[b]]


@pytest.mark.parametrize("broken", [torch.nan, -torch.inf])
@pytest.mark.parametrize("at", [0, 2, 4])
def test_where_the_target_has_no_distribution_there_is_no_token(verifier, broken, at) -> None:
    """Everything before it is kept; the row's token there is -1; other rows go on."""
    part, samples = verifier
    for temperature in (0, 1) if samples else (0,):
        logits = torch.full((2, 5, VOCAB), -20.0)
        logits[:, :, 3] = 20.0
        whole = logits.clone()
        logits[0, at:] = broken
        draft = Draft(torch.full((2, 4), 3), [4, 4])
        row = Prefix(SamplingParams(temperature=temperature), NONE, NONE, draft.tokens[0], ())
        noise = Noise.at([1, 2], [1, 1], 4)
        _, emitted = verdict_of(part, target(logits, [row, row]), draft, noise)
        assert emitted == [[3] * at + [-1], [3] * 5]
        assert verdict_of(part, target(whole, [row, row]), draft, noise)[1][1] == emitted[1]


@pytest.mark.parametrize("rule", [Rejection(), Block(), Coupled()])
def test_greedy_is_the_one_hot_limit(rule) -> None:
    """On a one-hot p both rules say the same, whatever q is."""
    for seed in range(30):
        p, draft, noise = inputs(seed, 4, False, "q")
        hot = Target(p.logits, p.top, range(BATCH), torch.eye(VOCAB)[p.top])
        right = verdict_of(Greedy(), p, draft, noise)[1]
        point = Draft(draft.tokens, draft.lengths)
        sure = Draft(draft.tokens, draft.lengths, torch.eye(VOCAB)[draft.tokens])
        for same in (point, sure):
            found = verdict_of(rule, hot, same, noise)[1]
            running = [b for b in range(BATCH) if b != 1]
            assert [found[b] for b in running] == [right[b] for b in running]


@pytest.mark.parametrize("name", VERIFIERS)
def test_every_verifier_says_whether_it_is_lossless(name: str) -> None:
    assert VERIFIERS[name][0].lossless is (name not in LOSSY)
