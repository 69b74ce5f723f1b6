"""Block verification: its output law and its mean acceptance length, enumerated exactly."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
import torch

from checks import chains, laws
from exact import chain, chi_square, round_law, tree
from fakes import HashLM, model_drafter, run
from naive import joint_law
from paceline.core.noise import Noise
from paceline.core.params import SamplingParams
from paceline.core.shape import distribution
from paceline.core.target import Target
from paceline.core.types import Draft
from paceline.verifiers.block import Block
from paceline.verifiers.greedy import Greedy
from paceline.verifiers.rejection import Rejection


@pytest.mark.parametrize(("k", "vocab", "width"), [(1, 4, 4), (2, 3, 3), (2, 3, 2), (3, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_joint_law_and_mean_length(seed: int, k: int, vocab: int, width: int) -> None:
    chains.block_is_lossless(100 + 10 * seed, k, vocab, width)


@pytest.mark.parametrize("lengths", [[0], [1], [0, 1, 2, 3], [3, 0]])
def test_ragged_drafts(lengths: list[int]) -> None:
    chains.block_is_lossless(200, 3, 2, 2, lengths)


@pytest.mark.parametrize("draft", ["q", "point", "narrow"])
@pytest.mark.parametrize("k", [1, 2])
def test_greedy_rows_beside_sampled_ones(draft: str, k: int) -> None:
    vocab = 4 if draft == "narrow" else 3
    *_, found = laws.round_is_lossless(300, k, vocab, draft, beside=3, verifier=Block())
    assert found.verdict.accepted.tolist() == [1, 1, 1]  # p says 1, 1, …; drafted were 1, 0
    assert found.verdict.tokens[:, :2].tolist() == [[1, 1]] * 3


@pytest.mark.parametrize("seed", range(3))
def test_drafts_that_were_not_drawn(seed: int) -> None:
    """A point mass: p_i is the product of the drafted tokens' own p."""
    p, _, found = laws.round_is_lossless(400 + seed, 3, 3, "point", verifier=Block())
    right = sum(chain(p, (1, 2, 0)[:n]) for n in (1, 2, 3))
    assert found.accepted == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize("params", [SamplingParams(top_k=2), SamplingParams(top_p=0.5)])
def test_a_truncated_target_and_a_raw_draft(params: SamplingParams) -> None:
    raw = torch.tensor([0.15, 0.3, 0.1, 0.45])
    shaped = distribution(raw.log()[None], params, 1.0)[0].double()
    p = (shaped / shaped.sum()).tolist()
    assert sum(share > 0 for share in p) == 2
    laws_of_p = {x: p for n in range(3) for x in product(range(4), repeat=n)}
    q = tree(500, 4, 1)
    found = round_law(laws_of_p, q, 2, verifier=Block(), dtype=torch.float64)
    assert max(abs(share - chain(laws_of_p, x)) for x, share in found.first.items()) <= 1e-9


def test_the_toy_case() -> None:
    """p = (1/3, 2/3), q = (2/3, 1/3), two tokens: 10/9 accepted one by one, 11/9 as a block."""
    prefixes = [x for n in range(3) for x in product(range(2), repeat=n)]
    p, q = {x: [1 / 3, 2 / 3] for x in prefixes}, {x: [2 / 3, 1 / 3] for x in prefixes}
    for verifier, right in ((Rejection(), 10 / 9), (Block(), 11 / 9)):
        found = round_law(p, q, 2, verifier=verifier, dtype=torch.float64)
        assert found.accepted == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_no_fewer_tokens_than_one_by_one(seed: int) -> None:
    p, q = tree(600 + seed, 3, 2), tree(700 + seed, 3, 1)
    block, single = (
        round_law(p, q, 2, verifier=verifier, dtype=torch.float64).accepted
        for verifier in (Block(), Rejection())
    )
    assert block >= single - 1e-9


def random_round(rows: int, k: int, sampled: range, narrow: bool) -> tuple[Target, Draft, Noise]:
    make = torch.Generator().manual_seed(k)
    logits = torch.randn(rows, k + 1, 9, generator=make) * 2
    q = (torch.randn(rows, k, 9 - narrow, generator=make) * 2).softmax(-1)
    tokens = q.reshape(rows * k, -1).multinomial(1, generator=make).reshape(rows, k)
    dense = logits.softmax(-1)[sampled.start : sampled.stop] if sampled else None
    p = Target(logits, logits.argmax(-1), sampled, dense)
    lengths = [b % (k + 1) for b in range(rows)]
    return p, Draft(tokens, lengths, q), Noise.at(range(rows), [3] * rows, k)


def same(a, b) -> bool:
    ends = [(n, row[: n + 1]) for n, row in zip(a.accepted, a.tokens.tolist(), strict=True)]
    return ends == [(n, row[: n + 1]) for n, row in zip(b.accepted, b.tokens.tolist(), strict=True)]


@pytest.mark.parametrize("point", [False, True])
@pytest.mark.parametrize("narrow", [False, True])
def test_one_token_is_verified_as_by_rejection(point: bool, narrow: bool) -> None:
    p, draft, noise = random_round(500, 1, range(500), narrow)
    draft = Draft(draft.tokens, draft.lengths) if point else draft
    block = Block().verify(p, draft, noise)
    assert same(block, Rejection().verify(p, draft, noise))
    assert 10 < int(block.accepted.sum()) < 240


def test_greedy_rows_are_verified_as_by_the_greedy_rule() -> None:
    p, draft, noise = random_round(300, 4, range(0), False)
    assert same(Block().verify(p, draft, noise), Greedy().verify(p, draft, noise))


def test_nothing_drafted() -> None:
    p, *_ = random_round(40, 1, range(10, 30), False)
    p = Target(p.logits, p.top[:, :1], p.sampled, p.dense[:, :1])
    noise = Noise.at(range(40), [3] * 40, 0)
    for q in (torch.empty(40, 0, 9), None):
        empty = Draft(torch.empty(40, 0, dtype=torch.int64), [0] * 40, q)
        assert same(Block().verify(p, empty, noise), Rejection().verify(p, empty, noise))


def test_what_is_refused_for_a_reason() -> None:
    laws.rejected_only_for_a_reason(20_000, 4, Block())
    laws.impossible_tokens_are_refused(Block())
    laws.empty_residual_is_a_draw_from_p(Block())


def test_ratios_beyond_what_a_float_can_hold() -> None:
    """p/q = 1e-38 for eight tokens: all refused, and what follows comes from p; and up again: with
    p/q = 1e38 behind each of them the whole draft is nearly as likely as the target's own."""
    tiny = 1e-38
    low, high = [tiny, 1.0], [1.0, tiny]
    noise = Noise.at(range(2), [1] * 2, 8)
    p = torch.tensor([[low] * 9, [low, high] * 4 + [high]])
    q = torch.tensor([[high] * 8, [high, low] * 4])
    target = Target(p.log(), p.argmax(-1), range(2), p)
    verdict = Block().verify(target, Draft(torch.zeros(2, 8).long(), [8, 8], q), noise)
    assert verdict.accepted[0] == 0
    assert verdict.tokens[0, 0] == 1
    assert 0 <= verdict.accepted[1] <= 8
    assert bool((verdict.tokens >= 0).all())


def test_joint_law_of_three_tokens_through_the_loop() -> None:
    model, prompt, n = HashLM(4, 1, sharpness=1.0), [1, 2, 1], 1000
    each = [SamplingParams(temperature=0.9, max_tokens=3, seed=seed) for seed in range(n)]
    drafter = model_drafter(HashLM(4, 1, jitter=0.6))
    done = run(model, [prompt] * n, each, drafter, 3, verifier=Block(), length=16)
    seen = Counter(map(tuple, done.ids))
    right = dict(joint_law(model, prompt, each[0], 3))
    statistic, bar = chi_square([seen[t] for t in right], [n * share for share in right.values()])
    assert statistic < bar
