"""A draft model of another vocabulary, through the tokens that both have."""

from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from exact import chi_square, loop_law
from fakes import Accepts, Faulty, HashLM, Scripted, TableModel, Windows, drive, run, sequences
from naive import decode, fresh_logits, joint_law, probabilities
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.model import ModelDrafter
from paceline.verifiers.rejection import Rejection
from translated import Permuted, as_built, by_token, pieces, translation

WARM = SamplingParams(temperature=1)
TARGET = pieces("a", "b", "ab", "c")
DRAFT = pieces("bc", "b", "a", "c", "cc")  # shares a, b and c
ORDER = [2, 0, 3, 1]
SHUFFLED = pieces("ab", "a", "c", "b")  # the target's tokens under other numbers


# in eighths, over the draft's ids; what is shared is in quarters, in halves, or nothing at all
EIGHTHS = [[3, 1, 2, 1, 1], [0, 4, 2, 2, 0], [6, 1, 1, 0, 0], [8, 0, 0, 0, 0]]


@pytest.mark.parametrize("q", EIGHTHS)
@pytest.mark.parametrize("p", [[2, 2, 3, 1], [0, 4, 4, 0]])
def test_the_first_token_follows_p_exactly(p: list[int], q: list[int]) -> None:
    own = sum(q[1:4])
    shared = [8 * n / own if own else 0 for n in (q[2], q[1], 0, q[3])]
    rest = sum(max(0, a - b) for a, b in zip(p, shared, strict=True))
    model = TableModel.of_probs([share / 8 for share in p])
    small = TableModel.of_probs([share / 8 for share in q])
    cells = math.lcm(8, round(rest) or 1)
    law = loop_law(model, by_token(small, TARGET, DRAFT), WARM, 1, (4, 8, cells))
    assert law.tolist() == pytest.approx([share / 8 for share in p], abs=1e-9)


def test_two_tokens_follow_p_exactly() -> None:
    """What the draft says depends on what it has read."""
    right = torch.tensor([[0.5, 0.25, 0.0, 0.25], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    model = TableModel.of_probs(*right.tolist())
    rows = [[2, 1, 2, 1, 2], [0, 4, 2, 2, 0], [4, 2, 0, 2, 0], [4, 1, 2, 1, 0], [4, 1, 2, 1, 0]]
    small = TableModel((torch.tensor(rows) / 8).log().tolist(), by="token")
    law = loop_law(model, by_token(small, TARGET, DRAFT), WARM, 1, (4, 2, 4), tokens=2)
    assert float((law - right[0][:, None] * right[1]).abs().max()) <= 1e-9


CASES = {
    "as it is": (2, WARM, None),
    "wide window": (5, SamplingParams(temperature=1.4), None),
    "shaped": (3, SamplingParams(temperature=0.8, top_p=0.9, min_p=0.02, top_k=3), None),
    "cooler draft": (2, WARM, 0.4),
    "greedy draft": (2, WARM, 0.0),
    "penalties": (2, SamplingParams(temperature=1, frequency_penalty=0.8), None),
}
MODEL, SMALL = HashLM(4, 1, sharpness=1.0), HashLM(5, 2, sharpness=1.0)


@pytest.mark.parametrize("case", CASES)
def test_joint_law_of_three_tokens(case: str) -> None:
    k, params, temperature = CASES[case]
    make, _ = as_built(MODEL, SMALL, TARGET, DRAFT, temperature)
    prompt, n = [1, 2, 1], 400
    each = [SamplingParams(**{**vars(params), "max_tokens": 3, "seed": seed}) for seed in range(n)]
    seen = Counter(map(tuple, run(MODEL, [prompt] * n, each, make, k, length=16).ids))
    right = dict(joint_law(MODEL, prompt, params, 3))
    assert all(right[tokens] > 0 for tokens in seen)
    statistic, edge = chi_square([seen[t] for t in right], [n * share for share in right.values()])
    assert statistic < edge


def test_q_is_the_shared_part_of_what_a_fresh_pass_says() -> None:
    """Masked, then shaped, then over the target's ids; of a draft model that reads its own."""
    table = translation(TARGET, DRAFT)
    params = SamplingParams(temperature=0.8, top_p=0.9, seed=3)
    prompts = [[0, 1, 3], [2, 3, 0], [3]]
    seqs = sequences(prompts, params)
    draft = by_token(SMALL, TARGET, DRAFT)(seqs).propose(seqs, [3, 3, 2])
    assert draft.lengths == [3, 3, 2]
    for b, n in enumerate(draft.lengths):
        _, settled, rest = table.read(prompts[b], True)
        own = settled + rest
        for j in range(n):
            logits = fresh_logits(SMALL, own)
            shared = probabilities([logits[i] for i in (1, 2, 3)], params)
            right = [shared[1], shared[0], 0.0, shared[2]]  # a, b, ab, c
            assert draft.q[b, j].tolist() == pytest.approx(right, abs=1e-6)
            token = int(draft.tokens[b, j])
            assert right[token] > 0
            own.append(table.to_draft[token])


def test_a_prompt_that_ends_inside_a_token_of_the_drafts_is_read_as_it_reads_it() -> None:
    """Here "bc" is one token for the draft, two for the target."""
    seqs = sequences([[3, 1, 3]], WARM)
    assert translation(TARGET, DRAFT).read([3, 1, 3], True) == (0, [], [3, 0])
    draft = by_token(SMALL, TARGET, DRAFT)(seqs).propose(seqs, [1])
    right = probabilities(fresh_logits(SMALL, [3, 0])[1:4], WARM)
    assert draft.q[0, 0].tolist() == pytest.approx([right[1], right[0], 0, right[2]], abs=1e-6)


def test_more_is_accepted_than_if_other_drafts_were_lost() -> None:
    """Σ min(p, q') against Σ min(p, q) over what is shared, for q' as drafted."""
    make = torch.Generator().manual_seed(1)
    for _ in range(50):
        p = torch.rand(4, generator=make).pow(3) + 1e-3
        q = torch.rand(5, generator=make).pow(3) + 1e-3
        p, q = p / p.sum(), q / q.sum()
        seqs = sequences([[0]], WARM)
        draft = by_token(TableModel.of_probs(q.tolist()), TARGET, DRAFT)(seqs).propose(seqs, [1])
        alone = torch.tensor([q[2], q[1], 0, q[3]])
        assert draft.q[0, 0].tolist() == pytest.approx((alone / alone.sum()).tolist(), abs=1e-6)
        assert torch.minimum(p, draft.q[0, 0]).sum() >= torch.minimum(p, alone).sum() - 1e-6


PARAMS = [
    SamplingParams(temperature=1, seed=5),
    SamplingParams(temperature=0.7, top_k=2, seed=6),
    SamplingParams(temperature=1.3, top_p=0.8, seed=7),
]
PROMPTS = [[0, 1, 2, 3, 1, 2], [2], [0, 1] * 30]


def test_with_the_same_vocabulary_it_is_the_plain_drafter() -> None:
    seqs = sequences(PROMPTS, PARAMS)
    for k in ([4, 4, 4], [8, 1, 0], [0, 3, 2]):
        plain = ModelDrafter(CachedModel(MODEL, 3, 256)).propose(seqs, k)
        draft = by_token(MODEL, TARGET, TARGET)(seqs).propose(seqs, k)
        assert draft.lengths == plain.lengths
        for b, n in enumerate(k):
            assert draft.tokens[b, :n].tolist() == plain.tokens[b, :n].tolist()
            assert torch.equal(draft.q[b, :n], plain.q[b, :n])


def test_the_target_under_other_numbers_is_always_accepted() -> None:
    """Also after another drafter, K = 0 and other requests in the same slots."""
    model, length = HashLM(4, seed=9), 300
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    scored, make = CachedModel(model, 2, length), by_token(Permuted(model, ORDER), TARGET, SHUFFLED)
    drafter = None
    for prompts in ([[1, 2], [0] * 20], [[2] * 11, [1]], [[2] * 11 + [0, 0], [1, 1]]):
        params = SamplingParams(max_tokens=60, temperature=1, seed=1)
        seqs = sequences(prompts, params, (), length)
        drafter = drafter or make(seqs)
        loop = Loop(scored, FirstOf(silly, drafter), Rejection(), Windows(4, 0, 8, 1))
        done = drive(loop, seqs)
        drafted = 0
        for b, rows in enumerate(done.emitted):
            at = len(prompts[b])
            for row in rows:
                if at % 7:
                    assert row.accepted == row.drafted
                    drafted += row.drafted
                at += len(row.tokens)
        assert drafted > 50


@pytest.mark.parametrize("counts", [(0,), (4,), (0, 4, 1, 3, 2)])
def test_the_draft_cache_after_every_number_of_accepts(counts: tuple[int, ...]) -> None:
    """Whatever was accepted: each draft is that of a new drafter."""
    seqs = sequences(PROMPTS, [SamplingParams(max_tokens=25, temperature=1, seed=2)] * 3)
    make = by_token(SMALL, TARGET, DRAFT)
    used = make(seqs)
    loop = Loop(CachedModel(MODEL, 3, 256), used, Accepts(*counts), Windows(4, 0, 1, 4))
    while any(seqs.running):
        new, again = make(seqs).propose(seqs, [3, 2, 3]), used.propose(seqs, [3, 2, 3])
        assert new.lengths == again.lengths
        assert torch.equal(new.tokens, again.tokens)
        assert torch.equal(new.q, again.q)
        loop.step(seqs)


def test_rows_with_and_without_a_temperature_in_one_batch() -> None:
    prompts = [[0, 1, 3], [2, 3, 0], [3], [1, 1]]
    params = [SamplingParams(max_tokens=30, temperature=t, seed=4) for t in (0, 1, 0, 0.7)]
    make, _ = as_built(MODEL, SMALL, TARGET, DRAFT)
    together = run(MODEL, prompts, params, make, 4)
    assert any(row.accepted for rows in together.emitted for row in rows)
    for b, (prompt, asked) in enumerate(zip(prompts, params, strict=True)):
        assert together.ids[b] == run(MODEL, [prompt], asked, make, 4).ids[0]
        if asked.greedy:
            assert together.ids[b] == decode(MODEL, prompt, asked)[0]
    seqs = sequences(prompts, params)
    draft = make(seqs).propose(seqs, [4, 4, 4, 4])
    points = draft.q[[0, 2]].amax(-1)
    assert torch.equal(points, torch.ones_like(points))


def test_it_leaves_rows_without_a_temperature_alone() -> None:
    seqs = sequences([[0], [1]], [SamplingParams(), WARM])
    assert by_token(SMALL, TARGET, DRAFT)(seqs).propose(seqs, [2, 2]).lengths == [0, 2]
    assert by_token(SMALL, TARGET, DRAFT, 0.0)(seqs).propose(seqs, [2, 2]).lengths == [0, 0]
    assert by_token(SMALL, TARGET, DRAFT, 0.5)(seqs).propose(seqs, [2, 2]).lengths == [2, 2]


def test_a_longer_token_that_only_the_draft_has_stands_for_the_last_one() -> None:
    """The text ends with a line break; the draft would have joined it to the spaces behind."""
    target, draft = pieces("a", "\n", "  ", "b", "c"), pieces("a", "b", "\n", "\n  ", "c", "\nz")
    after_a = [0.0, 0.1, 0.2, 0.6, 0.1, 0.1]  # "\n" : "\n  " as 1 : 3
    after_line = [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    after_joined = [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    rows = [after_a, after_a, after_line, after_joined, after_a, after_a]
    small = TableModel(torch.tensor(rows).log().tolist(), by="token")
    joined = 0
    for seed in range(40):
        seqs = sequences([[0, 1]], SamplingParams(temperature=1, seed=seed))
        drawn = by_token(small, target, draft)(seqs).propose(seqs, [2])
        assert drawn.q[0, 0].tolist() == pytest.approx([0.125, 0, 0.75, 0.125, 0], abs=1e-6)
        if int(drawn.tokens[0, 0]) == 2:
            joined += 1
            assert int(drawn.tokens[0, 1]) == 4  # it read the joined token, in place of the last
    assert 20 < joined < 38


def test_behind_a_joined_token_the_draft_model_reads_that_one() -> None:
    target, draft = pieces("a", "\n", "  ", "b"), pieces("\n", "\n  ", "b", "a")
    small = HashLM(4, seed=2, sharpness=0.5)
    joined = 0
    for seed in range(20):
        seqs = sequences([[0, 1], [0, 3, 1]], SamplingParams(temperature=1, seed=seed))
        drawn = by_token(small, target, draft)(seqs).propose(seqs, [2, 2])
        for b, own in enumerate([[3, 0], [3, 2, 0]]):
            first = int(drawn.tokens[b, 0])
            own = [*own[:-1], 1] if first == 2 else [*own, [3, 0, 0, 2][first]]
            joined += first == 2
            logits = fresh_logits(small, own)
            right = probabilities([logits[i] for i in (3, 0, 2)], WARM)
            right = [*right[:2], 0, right[2]]
            assert drawn.q[b, 1].tolist() == pytest.approx(right, abs=1e-6)
    assert 5 < joined < 35


@pytest.mark.parametrize("start", [0, 3, 4])
def test_a_draft_model_without_a_distribution_drafts_no_further(start: int) -> None:
    seqs = sequences([[3, 1, 3, 0]], WARM)
    draft = by_token(Faulty(SMALL, start=start), TARGET, DRAFT)(seqs).propose(seqs, [4])
    assert draft.lengths == [max(0, start - 2)]  # the draft reads "bc" as one: 3 ids


def test_nothing_shared_means_nothing_drafted() -> None:
    seqs = sequences([[0, 0]], WARM)
    make = by_token(HashLM(2), pieces("a", "b"), pieces("x", "y"))
    assert make(seqs).propose(seqs, [3]).lengths == [0]


def test_nothing_is_drafted_beyond_the_drafts_own_context() -> None:
    """A draft that needs more ids for the text than the target reaches its end sooner."""
    target, draft = pieces("aa", "b", "a"), pieces("a", "b")
    make = by_token(HashLM(2, seed=1), target, draft, context=10, length=3)
    seqs = sequences([[0, 0, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 1], [1]], [WARM] * 4)
    assert make(seqs).propose(seqs, [8] * 4).lengths == [6, 3, 1, 8]
    used = make(seqs)
    for prompt, most in ([0] * 5, 1), ([0] * 6, 0), ([0] * 80, 0), ([0] * 3, 5), ([0, 0, 1], 6):
        one = sequences([prompt] * 4, WARM)
        assert used.propose(one, [8] * 4).lengths == [most] * 4


def test_padding_of_either_head_is_never_drafted() -> None:
    """Ids past the tokenizer have a logit of +50."""
    small = TableModel([[*torch.tensor([0.1, 0.2, 0.3, 0.2, 0.2]).log().tolist(), 50.0, 50.0]])
    for width in (3, 4, 6):
        model = HashLM(width, seed=3)
        make, _ = as_built(model, small, TARGET, DRAFT)
        seqs = sequences([[0, 1]], WARM)
        draft = make(seqs).propose(seqs, [4])
        assert draft.q.shape[-1] == min(width, 4)
        # "c" may be past the target's head
        right = [0.6, 0.4, 0.0] if width == 3 else [3 / 7, 2 / 7, 0.0, 2 / 7]
        assert draft.q[0, 0].tolist() == pytest.approx(right, abs=1e-6)
