"""What comes out is distributed exactly as p."""

from __future__ import annotations

import torch

from exact import Q2, Q3, Q4, chain, loop_law, round_law, tree
from fakes import Faulty, HashLM, TableModel, model_drafter
from paceline.core.noise import DRAFT, Noise, draw, uniforms
from paceline.core.params import SamplingParams
from paceline.core.target import Prefix, Target, target
from paceline.core.types import Draft
from paceline.verifiers.greedy import accepted_prefix
from paceline.verifiers.rejection import Rejection


def round_is_lossless(
    seed: int, k: int, vocab: int, draft: str, lengths=None, beside: int = 0, verifier=None
):
    """One round of K drafted tokens leaves p exactly as it is. `draft`: "q", "point" mass, or
    "narrow" (the drafter's vocabulary is one smaller). Returns the laws and what was found."""
    p = tree(seed, vocab, k)
    width = vocab - (draft == "narrow")
    shapes = {2: Q2, 3: Q3, 4: Q4}[width]
    q = None if draft == "point" else tree(seed + 1, width, k - 1, shapes)
    found = round_law(p, q, k, lengths, beside, verifier)
    worst = max(abs(share - chain(p, x)) for x, share in found.first.items())
    assert worst <= 1e-9
    return p, q, found


def rounds_are_lossless(verifier=None) -> None:
    """The same for a few of each kind."""
    for seed in (1, 2, 3):
        for draft in ("q", "point", "narrow"):
            round_is_lossless(seed, 1, 4, draft, verifier=verifier)
    round_is_lossless(4, 2, 3, "q", verifier=verifier)
    round_is_lossless(5, 2, 3, "q", lengths=[0, 1, 2], verifier=verifier)


LAWS: dict[str, tuple] = {  # p and q, what is asked of sampling, the grid, the right first token
    "truncated on both sides": (
        [0.5, 0.3, 0.15, 0.05],
        [0.1, 0.2, 0.3, 0.4],
        SamplingParams(temperature=1, top_k=2),
        None,
        (7, 2, 8),
        [0.625, 0.375, 0, 0],
    ),
    "drafted at another temperature": (
        [0.5, 0.5],
        [0.7, 0.3],
        SamplingParams(temperature=0.5),
        1.0,
        (10, 7, 2),
        [0.5, 0.5],
    ),
    "drafted greedily": (
        [0.6, 0.4],
        [0.9, 0.1],
        SamplingParams(temperature=1),
        0.0,
        (1, 10, 10),
        [0.6, 0.4],
    ),
    "residual": (
        [0.5, 0.3, 0.2],
        [0.2, 0.3, 0.5],
        SamplingParams(temperature=1),
        None,
        (10, 5, 10),
        [0.5, 0.3, 0.2],
    ),
}


def first_token_follows_p(name: str) -> None:
    """A known law of the first token after the prompt, exactly, through the whole loop, K = 1."""
    p, q, params, temperature, grid, right = LAWS[name]
    drafter = model_drafter(TableModel.of_probs(q), temperature)
    law = loop_law(TableModel.of_probs(p), drafter, params, 1, grid)
    assert float((law - torch.tensor(right, dtype=law.dtype)).abs().max()) <= 1e-9


def first_tokens_follow_p() -> None:
    for name in LAWS:
        first_token_follows_p(name)


def several_tokens_follow_p(k: int = 2) -> None:
    """The joint law of the first two tokens through the whole loop, where every token depends on
    the one before: exactly p's, round upon round."""
    p = [[0.5, 0.25, 0.25], [0.25, 0.75, 0.0], [0.25, 0.25, 0.5]]
    q = [[0.5, 0.5, 0.0], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]]
    target, drafter = (TableModel(torch.tensor(t).log().tolist(), by="token") for t in (p, q))
    params = SamplingParams(temperature=1)
    law = loop_law(target, model_drafter(drafter), params, k, (2, 2, 4), tokens=2)
    right = torch.tensor(p)[0][:, None] * torch.tensor(p)
    assert float((law - right).abs().max()) <= 1e-9


def broken_drafts_leave_p_as_it_is() -> None:
    """NaN, infinite or empty logits of the draft model: p is untouched."""
    target = TableModel.of_probs([0.5, 0.25, 0.25])
    right = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    for value in (torch.nan, torch.inf, -torch.inf):
        drafter = model_drafter(Faulty(HashLM(3), value=value))
        law = loop_law(target, drafter, SamplingParams(temperature=1), 1, (1, 4, 4))
        assert float((law - right).abs().max()) <= 1e-9


def rejected_only_for_a_reason(draws: int = 100_000, k: int = 1, verifier=None) -> None:
    """Where q is p itself, nothing is ever refused."""
    logits = torch.randn(1, k + 1, 8, generator=torch.Generator().manual_seed(0))
    ids = torch.tensor([3])
    params = SamplingParams(temperature=0.7, top_p=0.9)
    row = Prefix(params, ids, ids[:0], torch.zeros(k, dtype=torch.int64), ())
    p = target(logits, [row])
    noise = Noise.at(range(draws), [1] * draws, k)
    dense = p.dense.expand(draws, k + 1, 8)
    many = Target(p.logits, p.top.expand(draws, k + 1), range(draws), dense)
    u = uniforms(range(draws), [1] * draws, DRAFT, range(k))
    x = torch.stack([draw(dense[:, i], u[:, i]) for i in range(k)], 1)
    draft = Draft(x, [k] * draws, dense[:, :k])
    assert int((verifier or Rejection()).verify(many, draft, noise).accepted.min()) == k


def accepts_stop_at_the_first_refusal() -> None:
    """Accept tests [yes, no, yes, yes] are one accepted token, and a draft ends where it ends."""
    tests = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]).bool()
    assert accepted_prefix(tests, [4, 4, 2, 4]).tolist() == [1, 4, 2, 0]


def two_sure_rows(
    p: list[float], q: list[float], x: list[int], u: float, last: float, verifier=None
):
    """The verdict for rows that each drafted one token of `x` from the same q, at fixed noise."""
    n = len(x)
    dense = torch.tensor(p).expand(n, 2, len(p))
    draft = Draft(torch.tensor(x)[:, None], [1] * n, torch.tensor(q).expand(n, 1, len(q)))
    noise = Noise(torch.full((n, 1), u).double(), torch.full((n, 2), last).double())
    top = torch.zeros(n, 2, dtype=torch.int64)
    verifier = verifier or Rejection()
    return verifier.verify(Target(dense.log(), top, range(n), dense), draft, noise)


def impossible_tokens_are_refused(verifier=None) -> None:
    """p(x) = 0 is refused, even at u = 0, and what comes instead is possible."""
    for last in (0.0, 0.5, 1 - 2.0**-53):
        verdict = two_sure_rows([0.5, 0.0, 0.5], [0.2, 0.6, 0.2], [1, 1], 0.0, last, verifier)
        assert verdict.accepted.tolist() == [0, 0]
        assert verdict.tokens[0, 0] in (0, 2)


def empty_residual_is_a_draw_from_p(verifier=None) -> None:
    """A refusal where q is at least p everywhere (rounding alone can do that): a draw from p."""
    high = [0.25 + 1e-7, 0.75 + 1e-7]
    first = [
        int(two_sure_rows([0.25, 0.75], high, [1], 1 - 2.0**-53, last, verifier).tokens[0, 0])
        for last in (0.1, 0.2, 0.3, 0.9)
    ]
    assert first == [0, 0, 1, 1]
