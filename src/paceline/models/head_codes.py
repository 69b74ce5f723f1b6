"""Heads on disk in 8 bits: a draft's matrices need no more, and a package should stay small.

A matrix "X" [out, in] becomes "X.codes" int8 of the same shape and "X.scales" float16
[out, ceil(in / 32)]: each 32 inputs of a row share a scale, x = code * scale.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

GROUP = 32


def encode(name: str, matrix: Tensor) -> dict[str, Tensor]:
    """The tensors that stand for `matrix`; vectors stay float32."""
    values = matrix.detach().float().cpu()
    if values.dim() != 2:
        return {name: values.contiguous()}
    rows, cols = values.shape
    groups = F.pad(values, (0, -cols % GROUP)).view(rows, -1, GROUP)
    largest = groups.abs().amax(-1)
    scales = (largest / 127).to(torch.float16)
    # the smallest float16 are few: the next one up where a code would pass 127
    scales = (scales.view(torch.int16) + (scales.float() * 127.5 < largest)).view(torch.float16)
    divisor = scales.float().masked_fill(scales == 0, 1)[..., None]
    codes = (groups / divisor).round().clamp(-127, 127).to(torch.int8).flatten(1)
    return {f"{name}.codes": codes[:, :cols].contiguous(), f"{name}.scales": scales}


def decode(tensors: dict[str, Tensor], name: str) -> Tensor:
    """What `encode` took, float32; KeyError if it is not there, ValueError if it is damaged."""
    if name in tensors:
        return tensors[name].float()
    codes, scales = tensors[f"{name}.codes"].float(), tensors[f"{name}.scales"].float()
    if codes.dim() != 2 or scales.shape != (len(codes), -(-codes.shape[1] // GROUP)):
        raise ValueError(f"{name}: {[*codes.shape]} codes have {[*scales.shape]} scales")
    return codes * scales.repeat_interleave(GROUP, 1)[:, : codes.shape[1]]
