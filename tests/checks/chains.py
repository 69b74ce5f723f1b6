"""What block verification and lenience promise, exactly."""

from __future__ import annotations

from itertools import product, zip_longest

import torch

from exact import RoundLaw, Tree, chain, round_law, tree
from paceline.core.noise import Noise
from paceline.core.target import Target
from paceline.core.types import Draft
from paceline.verifiers.block import Block
from paceline.verifiers.greedy import Greedy
from paceline.verifiers.rejection import Rejection


def block_accepts(p: Tree, q: Tree, k: int) -> float:
    """E[τ] = Σ_i E[p_i], straight from the definition."""
    total = 0.0
    for n in range(1, k + 1):
        for x in product(range(len(q[()])), repeat=n):
            kept = 1.0
            for i, token in enumerate(x):
                if q[x[:i]][token]:
                    kept = min(1.0, kept * p[x[:i]][token] / q[x[:i]][token])
            total += chain(q, x) * kept
    return total


def block_is_lossless(seed: int, k: int, vocab: int, width: int, lengths=None) -> RoundLaw:
    """The joint law of K+1 tokens, for any p and q in eighths; q over `width` ids."""
    p, q = tree(seed, vocab, k), tree(seed + 1, width, k - 1)
    found = round_law(p, q, k, lengths, verifier=Block(), dtype=torch.float64)
    assert max(abs(share - chain(p, x)) for x, share in found.first.items()) <= 1e-9
    if lengths is None:
        assert abs(found.accepted - block_accepts(p, q, k)) <= 1e-9
    return found


def blocks_are_lossless() -> None:
    for seed in range(2):
        block_is_lossless(seed, 2, 3, 3)
        block_is_lossless(seed + 10, 3, 2, 2)
    block_is_lossless(20, 2, 3, 2)
    block_is_lossless(21, 2, 3, 3, [0, 1, 2])


LENIENT_P = [0.3143595275301861, 0.002948918568854735, 0.20899259664776054, 0.4736989572531987]
LENIENT_Q = [0.38739644430358733, 0.3188951052630621, 0.09659569470718252, 0.19711275572616802]


def first_tokens(p: list[float], q: list[float], lenience: float) -> tuple[list[float], float]:
    """The law of the first token of a round with K = 1, and α."""
    law: Tree = dict.fromkeys([(), *((t,) for t in range(len(p)))], p)
    rule = Rejection(lenience)
    found = round_law(law, {(): q}, 1, verifier=rule, dtype=torch.float64)
    first = [0.0] * len(p)
    for x, share in found.first.items():
        first[x[0]] += share
    return first, found.alpha


def lenience_keeps_its_bound() -> None:
    """α(l) = Σ min(p/l, q); no token comes more often than p/l, nor more often than acceptance
    alone makes it where that is more than p; l = 1 is lossless."""
    for p, q in ((LENIENT_P, LENIENT_Q), ([0.5, 0.5, 0.0], [0.0, 0.25, 0.75])):
        for lenience in (1.0, 0.3):
            first, alpha = first_tokens(p, q, lenience)
            common = [min(a / lenience, b) for a, b in zip(p, q, strict=True)]
            assert abs(alpha - sum(common)) <= 1e-9
            for share, a, taken in zip(first, p, common, strict=True):
                assert share <= a / lenience + 1e-9
                assert share <= max(a, taken) + 1e-9
            if lenience == 1:
                pairs = zip_longest(first, p)
                assert max(abs(share - a) for share, a in pairs) <= 1e-9


def lenient_greedy_rows_say_what_is_nearly_as_likely() -> None:
    """x is accepted exactly if p(x) >= l max p."""
    p = torch.tensor([0.5, 0.26, 0.24, 0.0])
    logits = (p.log() + 3.0).expand(4, 2, 4)
    top = torch.zeros(4, 2, dtype=torch.int64)
    draft = Draft(torch.arange(4)[:, None], [1] * 4)
    for lenience, right in ((1.0, [1, 0, 0, 0]), (0.5, [1, 1, 0, 0]), (0.4, [1, 1, 1, 0])):
        for rule in (Greedy(lenience), Rejection(lenience)):
            verdict = rule.verify(Target(logits, top), draft, Noise.none(4))
            assert verdict.accepted.tolist() == right
            said = [row[: n + 1] for row, n in zip(verdict.tokens.tolist(), right, strict=True)]
            assert said == [[x, 0] if n else [0] for x, n in enumerate(right)]
