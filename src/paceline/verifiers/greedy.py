"""Greedy verification: the one-hot limit of rejection sampling.

p is 1 at its largest logit, so a drafted token is accepted exactly if it is that token, and the
token behind the accepted ones is that token too. The output is what the target alone would say.

Lenience l < 1 (Leviathan et al. 2023, Appendix A.5) also accepts x if p(x) >= l max p, where p is
the softmax of the logits at temperature 1: every token is then nearly as likely as the likeliest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from paceline.core.noise import Noise
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.errors import PacelineError


def accepted_prefix(passes: Tensor, lengths: Sequence[int]) -> Tensor:
    """n [B] from accept tests [B, K]: those before the first failure, within each row's draft."""
    if not passes.shape[1]:
        return torch.zeros(len(passes), dtype=torch.int64, device=passes.device)
    size = torch.tensor(lengths).to(passes.device, non_blocking=True)
    inside = torch.arange(passes.shape[1], device=passes.device) < size[:, None]
    return (passes & inside).to(torch.int64).cumprod(-1).sum(-1)


class Greedy:
    """Accept while the draft says what the target would. For rows without a temperature.

    `lenience` l in (0, 1]: accept whatever is at least l times as likely as that; 1 is lossless.
    Raises PacelineError if it is anything else.
    """

    def __init__(self, lenience: float = 1.0) -> None:
        if not 0 < lenience <= 1:
            raise PacelineError(
                f"lenience must be above 0 and at most 1 (1 is lossless), not {lenience}"
            )
        self.lenience = lenience
        self.lossless = lenience == 1
        self.needs_logits = lenience < 1

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """Uses `p.top`, and the logits if lenient; the noise is not looked at. ValueError for a
        tree, which `Trees` verifies."""
        if draft.parents is not None:
            raise ValueError("a rule of chains cannot verify a tree: put it in Trees")
        x = draft.tokens.to(p.top.device)
        if self.lenience == 1:
            return Verdict(p.top, accepted_prefix(x == p.top[:, :-1], draft.lengths))
        n = accepted_prefix(_near(p, x, math.log(self.lenience)), draft.lengths)
        inside = torch.arange(p.top.shape[1], device=n.device) < n[:, None]
        return Verdict(torch.where(inside, pad(x, (0, 1)), p.top), n)


def _near(p: Target, x: Tensor, margin: float) -> Tensor:
    """[B, K]: whether log p(x) >= log max p + margin, asked of the logits as greedy rows see them:
    log p is a logit but for what all of them share."""
    assert p.logits is not None
    passes = _reach(p.logits, x, p.top, margin)
    for b, scores in p.adjusted.items():
        passes[b] = _reach(scores, x[b], p.top[b], margin)
    return passes


def _reach(scores: Tensor, x: Tensor, top: Tensor, margin: float) -> Tensor:
    """Scores [..., K+1, V] of x [..., K] against those of `top` [..., K+1]."""
    scores, top = scores[..., :-1, :], top[..., :-1]
    mine = scores.gather(-1, x[..., None])[..., 0]
    largest = scores.gather(-1, top.clamp(min=0)[..., None])[..., 0]
    return (mine >= largest + margin) & (top >= 0)
