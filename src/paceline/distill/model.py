"""A small stand-alone draft: some of the target's layers, trained to say what the target says.

The embedding and the output layer stay the target's own. Started from evenly spread layers, as in
DistilBERT (Sanh et al. 2019, arXiv 1910.01108, section 3); trained by KL(p || q) on the target's
own answers (on-policy, as in DistillSpec, Zhou et al. 2024, arXiv 2310.08461).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.distill.blocks import rms_norm
from paceline.distill.folder import hf_config, tokenizer_files
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Batch, Export, Needs, Step, options
from paceline.errors import PacelineError


def model(teacher: Teacher, vocab: Tensor, given: dict[str, str]) -> ModelTrainee:
    """A trainee of some of the target's layers. `given` may name `layers`: their numbers
    ("0,5,11"), or how many, evenly spread with the first and the last among them (default: a
    quarter of them, two at least)."""
    total = teacher.config.layers
    wanted = options(given, layers=str(max(2, total // 4)))["layers"]
    return ModelTrainee(teacher, vocab, _layers(wanted, total))


class ModelTrainee:
    """See `paceline.distill.trainee.Trainee`. It is a model of its own, so it reads the answer's
    tokens alone; of the target it needs what leaves the last layer, for p. p and q are compared
    over `vocab`."""

    kind = "model"

    def __init__(self, teacher: Teacher, vocab: Tensor, layers: Sequence[int]) -> None:
        total = teacher.config.layers
        self.settings: dict[str, Any] = {"layers": list(layers)}
        self.needs = Needs(taps=(0, total))
        self._teacher, self._vocab = teacher, vocab
        self._files = tokenizer_files(teacher.path)
        local = tuple(teacher.config.local[i] for i in layers)
        self._config = replace(teacher.config, layers=len(layers), local=local)
        self._raw = hf_config(self._config)
        self._blocks = nn.ModuleList([teacher.block(i) for i in layers]).requires_grad_(True)
        self._norm = nn.Parameter(teacher.norm())
        self._target_norm = teacher.norm()
        self._head = teacher.head(vocab)

    def parameters(self) -> list[Tensor]:
        """The blocks' weights and the final norm's."""
        return [*self._blocks.parameters(), self._norm]

    @property
    def wants(self) -> int:
        """Nothing: the target's own layers are the start."""
        return 0

    def absorb(self, batch: Batch) -> None:
        """See `Trainee`."""

    def settle(self) -> None:
        """See `Trainee`."""

    def loss(self, batch: Batch, steps: int) -> Step:
        """KL(p || q) over the answer. Every unrolled step reads the same tokens, so one pass is all
        of them."""
        count = batch.tokens.shape[1]
        places = torch.arange(count, device=batch.tokens.device)
        x = batch.hidden[:, :, 0]
        for block in self._blocks:
            x, _ = block(x, places)
        eps = self._config.eps
        counted = batch.mask(0).roll(1, 1)  # an anchor's first step stands one position behind it
        counted[:, 0] = False
        with torch.no_grad():
            p = self._log_probs(rms_norm(batch.hidden[:, :, 1][counted], self._target_norm, eps))
        q = self._log_probs(rms_norm(x[counted], self._norm, eps))
        loss = F.kl_div(q, p, reduction="batchmean", log_target=True)
        right = torch.zeros_like(counted)
        right[counted] = self._vocab[q.argmax(-1)] == batch.top[counted]
        overlap = torch.zeros(counted.shape, device=q.device)
        overlap[counted] = torch.minimum(p, q).exp().sum(-1).detach()
        agree = [_ahead(right, j + 1) for j in range(steps)]
        return Step(loss, agree, [_ahead(overlap, j + 1) for j in range(steps)])

    def state(self) -> dict[str, Tensor]:
        """All weights that are trained."""
        return {**self._blocks.state_dict(), "norm": self._norm.detach()}

    def load(self, state: dict[str, Tensor]) -> None:
        """In place."""
        blocks = {name: value for name, value in state.items() if name != "norm"}
        self._blocks.load_state_dict(blocks)
        self._norm.data.copy_(state["norm"])

    def export(self) -> Export:
        """A model in Hugging Face's layout, in fp16."""
        tensors = {f"model.layers.{name}": t for name, t in self._blocks.state_dict().items()}
        tensors["model.norm.weight"] = self._norm.detach()
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            if self._teacher.has(name) and not (name == "lm_head.weight" and self._config.tied):
                tensors[name] = self._teacher.tensor(name)
        if self._config.family == "gemma3":  # its files hold w where the norm multiplies by 1 + w
            tensors |= {n: t - 1 for n, t in tensors.items() if n.endswith("norm.weight")}
        halves = {name: value.to(torch.float16) for name, value in tensors.items()}
        return Export(halves, self._raw, self._files)

    def _log_probs(self, states: Tensor) -> Tensor:
        return (states @ self._head.to(states.dtype).T).float().log_softmax(-1)


def _ahead(values: Tensor, by: int) -> Tensor:
    """Position t gets what stands at t + `by`; zeros past the end."""
    return F.pad(values, (0, by))[:, by:]


def _layers(text: str, total: int) -> list[int]:
    """The layers that `text` names, of `total`."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) == 1:
        count = min(numbers[0], total + 1)
        numbers = [round(i * (total - 1) / max(1, count - 1)) for i in range(count)]
    if not numbers or sorted(set(numbers)) != numbers or not 0 <= numbers[0] <= numbers[-1] < total:
        raise PacelineError(
            f"--set layers={text}: give how many of the target's {total} layers to keep, "
            f"or their numbers, ascending, from 0 to {total - 1}: layers=0,{total // 2},{total - 1}"
        )
    return numbers
