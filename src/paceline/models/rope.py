"""Rotary position tables (Su et al. 2021, RoFormer, eq. 34), with the scalings that are in use."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.errors import PacelineError
from paceline.models.config import RopeScaling


def frequencies(theta: float, dim: int, scaling: RopeScaling | None = None) -> Tensor:
    """Radians a position for each of the dim / 2 pairs: theta^(-2i / dim), stretched, float32.

    Raises PacelineError for a kind of scaling that is not implemented.
    """
    plain = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if scaling is None:
        return plain
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "factors":
        return plain / torch.tensor(scaling.factors, dtype=torch.float32)
    if scaling.kind != "llama3":
        raise PacelineError(
            f"rope kind {scaling.kind!r} is not implemented; known: linear, llama3, factors"
        )
    # Llama 3.1: waves longer than original_context / low_freq_factor are stretched by `factor`,
    # those shorter than original_context / high_freq_factor are left, between them a blend.
    turns = scaling.original_context * plain / (2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = ((turns - scaling.low_freq_factor) / span).clamp(0, 1)
    return kept * plain + (1 - kept) * plain / scaling.factor


class Rope:
    """cos and sin of every position, ready for `x * cos + roll(x, dim / 2) * sin`.

    Both carry the square root of the score's scale, which so costs nothing: queries and keys are
    both rotated, and the product of the two has it once. sin carries the sign of the rotated half.
    """

    def __init__(
        self, frequencies: Tensor, scale: float, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._frequencies = frequencies
        self._scale = math.sqrt(scale)
        empty = torch.empty(0, 2 * frequencies.numel(), dtype=dtype, device=device)
        self.cos = self.sin = empty

    def grow(self, length: int) -> None:
        """Make the tables [length, dim] at least."""
        if length <= len(self.cos):
            return
        angle = torch.arange(length, dtype=torch.float32)[:, None] * self._frequencies
        cos, sin = angle.cos() * self._scale, angle.sin() * self._scale
        self.cos = torch.cat((cos, cos), -1).to(self.cos)
        self.sin = torch.cat((-sin, sin), -1).to(self.sin)
