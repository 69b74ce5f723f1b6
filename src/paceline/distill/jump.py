"""A jump head in training: from the target's last state straight into its last blocks.

At inference the target's states are known up to token t and the token at t + 1 has been chosen. It
may pass the target's first block or blocks, which depend on tokens alone and so are exact however
deep the draft. A predictor then guesses the state that would enter block E at t + 1 from what came
out, and from the states that entered E and left the last block at t. From there on everything is
the target's own: its last blocks over its own keys and values, its norm, its output layer cut to
the frequent tokens. Later steps read the head's own states in their place, as they do in drafting.

    u = [norm(state behind the first blocks); norm(what entered E); norm(what left the last block)]
    guess = W u + b + D silu(U u)

It starts as a ridge regression of W, b and D, with U random, over all answers: one pass, and most
of what can be had. Then the divergence KL(p || q) over several unrolled steps is minimised.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from paceline.distill.blocks import Block, KeysValues, rms_norm
from paceline.distill.losses import check_tv, divergence
from paceline.distill.lowrank import LowRank, adapt
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Batch, Export, Needs, Step, options
from paceline.errors import PacelineError
from paceline.models.head_codes import encode

STRENGTH = 0.003  # of the ridge, in mean squares of the inputs
CONFIDENCE = 0.35  # below which a draft of such a head ends: measured, best between .3 and .4
FADE = 0.8  # what each later step counts, of the one before


def jump(teacher: Teacher, vocab: Tensor, given: dict[str, str]) -> JumpTrainee:
    """A fresh jump head. Options: `early` (0 to 3) and `blocks` (1 to 3): how many of the target's
    first and last blocks it runs through; `width` of the predictor's hidden layer (0: none);
    `rank` of what is added to each matrix of the last blocks (0: they stay the target's own; -1:
    their matrices are trained themselves); `tv`: share of total variation in the loss."""
    chosen = options(given, early=0, blocks=1, width=2048, rank=0, tv=0.0)
    early, blocks = chosen["early"], chosen["blocks"]
    width, rank = chosen["width"], chosen["rank"]
    check_tv(chosen["tv"])
    if not 1 <= blocks <= 3 or not 0 <= early <= 3:
        raise PacelineError("--set blocks must be 1 to 3, and early 0 to 3")
    if early + blocks >= teacher.config.layers:
        raise PacelineError(f"a model of {teacher.config.layers} layers is too small for a jump")
    if width < 0 or rank < -1:
        raise PacelineError("--set width must be at least 0, and rank at least -1")
    return JumpTrainee(teacher, vocab, chosen)


class Predictor(nn.Module):
    """u [.., 3 D] -> the state [.., D] that enters the blocks."""

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3 * dim, dim)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.up = nn.Linear(3 * dim, width, bias=False) if width else None
        if self.up is not None:
            nn.init.normal_(self.up.weight, std=(3 * dim) ** -0.5)
        self.down = nn.Linear(width, dim, bias=False) if width else None
        if self.down is not None:
            nn.init.zeros_(self.down.weight)

    def forward(self, u: Tensor) -> Tensor:
        x = self.linear(u)
        if self.up is None or self.down is None:
            return x
        return x + self.down(F.silu(self.up(u)))

    def inputs(self, u: Tensor) -> Tensor:
        """All that it weighs, one behind the other: u, 1, and what the hidden layer makes of u."""
        hidden = [] if self.up is None else [F.silu(self.up(u))]
        return torch.cat([u, u.new_ones(*u.shape[:-1], 1), *hidden], -1)

    def become(self, weights: Tensor) -> None:
        """`weights` [D, n] of these inputs."""
        size = self.linear.in_features
        self.linear.weight.copy_(weights[:, :size])
        self.linear.bias.copy_(weights[:, size])
        if self.down is not None:
            self.down.weight.copy_(weights[:, size + 1 :])


class JumpTrainee:
    """See `paceline.distill.trainee.Trainee`."""

    kind = "jump"

    def __init__(self, teacher: Teacher, vocab: Tensor, chosen: dict[str, Any]) -> None:
        config = teacher.config
        blocks, width, rank = chosen["blocks"], chosen["width"], chosen["rank"]
        self._config, self._vocab = config, vocab
        self._enter = config.layers - blocks
        last = range(self._enter, config.layers)
        self.settings: dict[str, Any] = dict(chosen)
        # the state behind the first `early` blocks; behind none, the embedding
        taps = (chosen["early"], self._enter, config.layers)
        self.needs = Needs(taps=taps, cache=tuple(last))
        self._predictor = Predictor(config.hidden, width).to(teacher.device)
        self._blocks: list[Block] = [teacher.block(i) for i in last]
        if rank:
            for block in self._blocks:
                adapt(block, rank)
        self._rank, self._tv = rank, chosen["tv"]
        self._square: Tensor | None = None
        self._product: Tensor | None = None
        self._norm = teacher.norm()
        self._head = teacher.head(vocab)
        self._ids = vocab.to(teacher.device)

    def _named(self) -> dict[str, Tensor]:
        named = {f"predictor.{n}": p for n, p in self._predictor.named_parameters()}
        for i, block in enumerate(self._blocks, self._enter):
            each = block.named_parameters()
            named |= {f"blocks.{i}.{n}": p for n, p in each if p.requires_grad}
        return named

    def parameters(self) -> list[Tensor]:
        """See `Trainee`."""
        return list(self._named().values())

    def state(self) -> dict[str, Tensor]:
        """See `Trainee`."""
        state = {name: value.detach().clone() for name, value in self._named().items()}
        if self._square is not None and self._product is not None:
            state |= {"square": self._square.clone(), "product": self._product.clone()}
        return state

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> None:
        """See `Trainee`."""
        for name, value in self._named().items():
            value.copy_(state[name])
        self._square, self._product = (
            value if value is None else value.to(self._ids.device)
            for value in (state.get("square"), state.get("product"))
        )

    @property
    def wants(self) -> int:
        """All there are: the regression has thousands of inputs."""
        return 1 << 60

    @torch.no_grad()
    def absorb(self, batch: Batch) -> None:
        """Add to the sums of a regression of what enters the blocks on what the predictor has."""
        rows, t = batch.mask(0).nonzero().unbind(-1)
        u = self._inputs(batch.hidden[rows, t + 1, 0], *batch.hidden[rows, t, 1:].unbind(1))
        x = self._predictor.inputs(u)
        if self._square is None or self._product is None:
            self._square = x.new_zeros(x.shape[-1], x.shape[-1])
            self._product = x.new_zeros(x.shape[-1], self._config.hidden)
        self._square.addmm_(x.T, x)
        self._product.addmm_(x.T, batch.hidden[rows, t + 1, 1])

    @torch.no_grad()
    def settle(self) -> None:
        """Ridge regression."""
        if self._square is None or self._product is None:
            return
        ridge = STRENGTH * self._square.diagonal().mean()
        self._square.diagonal().add_(ridge)
        # thousands of inputs that depend on one another: too much for 24 bits
        solved = torch.linalg.solve(self._square.double(), self._product.double())
        self._predictor.become(solved.T.float())
        self._square = self._product = None

    def loss(self, batch: Batch, steps: int) -> Step:
        """See `Trainee`."""
        assert batch.keys is not None
        assert batch.values is not None
        first = max(0, min(batch.starts) - 2)
        end = max(max(batch.lengths) - 2, first + 1)
        anchors = torch.arange(first, end, device=batch.tokens.device)
        entered, left = batch.hidden[:, first:end, 1:].unbind(2)
        with torch.no_grad():
            normed = rms_norm(batch.hidden[:, first:, 2], self._norm, self._config.eps)
            log_p = F.linear(normed, self._head).log_softmax(-1)
        own: list[list[KeysValues]] = [[] for _ in self._blocks]
        total, weight, agree = batch.hidden.new_zeros(()), 0.0, []
        last = batch.tokens.shape[1] - 1
        for step in range(steps):
            places = (anchors + 1 + step).clamp(max=last)
            entered = self._predictor(self._inputs(batch.hidden[:, places, 0], entered, left))
            left = entered
            for i, block in enumerate(self._blocks):
                context = (batch.keys[i], batch.values[i])
                left, entries = block(left, places, context, anchors + 1, own[i])
                own[i].append(entries)
            logits = F.linear(rms_norm(left, self._norm, self._config.eps), self._head)
            mask = batch.mask(step)[:, first:end]
            p = log_p[:, places - first][mask]
            each = divergence(p, logits[mask].log_softmax(-1), self._tv)
            total = total + FADE**step * each / max(1, int(mask.sum()))
            weight += FADE**step
            right = torch.zeros_like(batch.tokens, dtype=torch.bool)
            right[:, first:end] = self._ids[logits.argmax(-1)] == batch.top[:, places]
            agree.append(right)
        return Step(total / weight, agree)

    def _inputs(self, *states: Tensor) -> Tensor:
        """u [.., 3 D]."""
        return torch.cat([_normed(x, self._config.eps) for x in states], -1)

    def export(self) -> Export:
        """Matrices in 8 bits (see `encode`), the ids that it can guess, and its shape."""
        parts = self._predictor.state_dict()
        bias = parts.pop("linear.bias")
        tensors = {"ids": self._vocab.to(torch.int32).cpu(), "linear.bias": bias.float().cpu()}
        if self._rank:
            for i, block in enumerate(self._blocks, self._enter):
                parts |= {f"blocks.{i}.{n}": m for n, m in merged(block).items()}
        for name, matrix in parts.items():
            tensors |= encode(name, matrix)
        config = {
            "paceline_head": "jump",
            "enter": self._enter,
            "layers": self._config.layers,
            "hidden": self._config.hidden,
            "tuned": bool(self._rank),
            "confidence": CONFIDENCE,
            **self.settings,
        }
        return Export(tensors, config)


def merged(block: Block) -> dict[str, Tensor]:
    """A block's matrices and vectors by name, what was added to them included."""
    named: dict[str, Tensor] = {}
    for name, part in block.named_modules():
        if isinstance(part, LowRank):
            named[f"{name}.weight"] = part.merged()
            if part.bias is not None:
                named[f"{name}.bias"] = part.bias
        elif isinstance(part, nn.Linear):
            named[f"{name}.weight"] = part.weight
            if part.bias is not None:
                named[f"{name}.bias"] = part.bias
        elif hasattr(part, "weight"):
            named[f"{name}.weight"] = part.weight
    return {name: value.detach() for name, value in named.items()}


def _normed(x: Tensor, eps: float) -> Tensor:
    return F.rms_norm(x, (x.shape[-1],), None, eps)
