"""The target as a source of weights to train with."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from paceline.distill.blocks import Block
from paceline.models.config import Checkpoint
from paceline.models.native import NativeTransformer


class Teacher:
    """A target's weights in float32 on `device`, out of its checkpoint; where `model` runs on the
    native kernels, the embedding and the output layer are that model's own, as it rounds them.

    `name`: what the user calls it; `path`: its file or folder; `fingerprint` names its bytes;
    `config`: its shape.
    """

    def __init__(
        self, name: str, path: Path, checkpoint: Checkpoint, model: object, device: torch.device
    ) -> None:
        self.name = name
        self.path = path
        self.fingerprint = checkpoint.fingerprint
        self.config = checkpoint.config
        self.device = device
        self._checkpoint = checkpoint
        self._native = model if isinstance(model, NativeTransformer) else None
        self._tables: dict[str, Tensor] = {}

    def has(self, name: str) -> bool:
        """Whether there is a tensor of that (Hugging Face) name."""
        return name in self._checkpoint

    def tensor(self, name: str) -> Tensor:
        """The tensor `name`, float32, dequantised; matrices are [out, in], norms what the norm
        multiplies by."""
        return self._checkpoint.tensor(name).to(self.device, torch.float32).contiguous()

    def embed(self, ids: Tensor) -> Tensor:
        """`ids` [..] int64 -> [.., D], scaled as they enter the first layer."""
        rows = self._rows("model.embed_tokens.weight", ids.flatten())
        return (rows * self.config.embed_scale).view(*ids.shape, -1)

    def head(self, ids: Tensor) -> Tensor:
        """Those rows [N, D] of the output layer, for `ids` [N]."""
        tied = self.config.tied
        return self._rows("model.embed_tokens.weight" if tied else "lm_head.weight", ids)

    def norm(self) -> Tensor:
        """The final norm's weight [D]."""
        return self.tensor("model.norm.weight")

    def block(self, layer: int) -> Block:
        """A copy of one of the target's blocks, frozen."""
        block = Block(self.config, layer).to(self.device)
        at = f"model.layers.{layer}."
        for name, part in block.named_modules():
            if isinstance(part, nn.Linear):
                bias = f"{at}{name}.bias"
                value = nn.Parameter(self.tensor(bias)) if self.has(bias) else None
                part.register_parameter("bias", value)
        with torch.no_grad():
            for name, value in block.named_parameters():
                value.copy_(self.tensor(at + name))
        return block.requires_grad_(False)

    def _rows(self, name: str, ids: Tensor) -> Tensor:
        if self._native is not None:
            embedding = name == "model.embed_tokens.weight"
            matrix = self._native.embedding if embedding else self._native.head
            rows = torch.from_numpy(matrix.rows(ids.cpu().contiguous().numpy()))
            return rows.to(self.device)
        if name not in self._tables:
            self._tables[name] = self._checkpoint.tensor(name).to(self.device)
        return self._tables[name][ids.to(self.device)].float()
