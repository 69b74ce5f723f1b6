"""An EAGLE-3 head in training (Li et al. 2025, arXiv 2503.01840), in the layout that is published.

The layer starts as the target's last block, reading what enters that one; the half of its queries,
keys and values that reads the embedding starts at zero. Trained as it drafts ("training-time
test"): from step 1 on it reads its own states instead of the target's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from paceline.distill.blocks import Attention, KeysValues, Mlp, RmsNorm, rms_norm
from paceline.distill.folder import hf_config
from paceline.distill.losses import check_tv, divergence
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Batch, Export, Needs, Step, options
from paceline.errors import PacelineError
from paceline.models.config import Config
from paceline.models.eagle3_config import layer_ids


def eagle3(teacher: Teacher, vocab: Tensor, given: dict[str, str]) -> Eagle3Trainee:
    """A head over the tokens `vocab` [N] int64. `given` may name `taps`, three layers whose
    entering states it reads ("2,14,27"; default: the third, the middle and the last one), and
    `train_head`: whether its output layer is trained too (default: it stays the target's own);
    `tv`: share of total variation in the loss."""
    total = teacher.config.layers
    values = options(given, taps=f"2,{total // 2},{total - 1}", train_head=False, tv=0.0)
    taps = _taps(values["taps"], total)
    return Eagle3Trainee(teacher, vocab, taps, values["train_head"], check_tv(values["tv"]))


class Layer(nn.Module):
    """The one layer: RMSNorms of embedding and state, attention over both, then a block's rest."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden, config.eps)
        self.hidden_norm = RmsNorm(config.hidden, config.eps)
        self.self_attn = Attention(config, 0, 2 * config.hidden)
        self.post_attention_layernorm = RmsNorm(config.hidden, config.eps)
        self.mlp = Mlp(config)

    def forward(
        self,
        embedded: Tensor,
        x: Tensor,
        positions: Tensor,
        context: KeysValues | None,
        seen: Tensor,
        own: list[KeysValues],
    ) -> tuple[Tensor, KeysValues]:
        """See `paceline.distill.blocks.Block.forward`."""
        both = torch.cat((self.input_layernorm(embedded), self.hidden_norm(x)), -1)
        y, entries = self.self_attn(both, positions, context, seen, own)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), entries


class Eagle3Trainee:
    """See `paceline.distill.trainee.Trainee`. p and q are compared over `vocab`, at the places
    where the target's likeliest token is in it."""

    kind = "eagle3"

    def __init__(
        self,
        teacher: Teacher,
        vocab: Tensor,
        taps: tuple[int, int, int],
        train_head: bool,
        tv: float,
    ) -> None:
        config = teacher.config
        self.settings: dict[str, Any] = {"taps": list(taps), "train_head": train_head, "tv": tv}
        self._tv = tv
        self.needs = Needs(taps=(*taps, config.layers))
        self._teacher, self._vocab, self._taps = teacher, vocab.to(teacher.device), taps
        self._known = torch.zeros(config.vocab_size, dtype=torch.bool, device=teacher.device)
        self._known[self._vocab] = True
        # what others can serve is a Llama's layer, whatever the target's are
        self._config = replace(
            config,
            family="llama",
            layers=1,
            local=(False,),
            sliding_window=None,
            qk_norm=False,
            post_norms=False,
            activation="silu",
            attn_scale=config.head_dim**-0.5,
            tied=False,
        )
        self._target_norm, self._target_head = teacher.norm(), teacher.head(self._vocab)
        self._module = nn.ModuleDict(
            {
                "fc": nn.Linear(3 * config.hidden, config.hidden, bias=False),
                "midlayer": Layer(self._config),
                "norm": RmsNorm(config.hidden, config.eps),
                "lm_head": nn.Linear(config.hidden, len(vocab), bias=False),
            }
        ).to(teacher.device)
        self._start()
        self._module["lm_head"].requires_grad_(train_head)

    @torch.no_grad()
    def _start(self) -> None:
        """Copy the target's last block."""
        config, last = self._teacher.config, self._teacher.block(self._teacher.config.layers - 1)
        layer = self._module["midlayer"]
        attention = layer.self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            mine, its = getattr(attention, name), getattr(last.self_attn, name)
            mine.weight.zero_()[:, config.hidden :] = its.weight
            if its.bias is not None:
                mine.bias.copy_(its.bias)
        attention.o_proj.weight.copy_(last.self_attn.o_proj.weight)
        layer.mlp.load_state_dict(last.mlp.state_dict())
        layer.hidden_norm.weight.copy_(last.input_layernorm.weight)
        before_ffn = "pre_feedforward" if config.post_norms else "post_attention"
        layer.post_attention_layernorm.weight.copy_(getattr(last, f"{before_ffn}_layernorm").weight)
        self._module["fc"].weight.zero_()[:, 2 * config.hidden :] = torch.eye(config.hidden)
        self._module["norm"].weight.copy_(self._target_norm)
        self._module["lm_head"].weight.copy_(self._target_head)

    def parameters(self) -> list[Tensor]:
        """The weights of `fc`, the layer and the norm; of the output layer if that is wanted."""
        return [value for value in self._module.parameters() if value.requires_grad]

    @property
    def wants(self) -> int:
        """Nothing: the target's own last block is the start."""
        return 0

    def absorb(self, batch: Batch) -> None:
        """See `Trainee`."""

    def settle(self) -> None:
        """See `Trainee`."""

    def loss(self, batch: Batch, steps: int) -> Step:
        """The divergence of p and q (see `losses`), its mean over all anchors of all steps."""
        total, terms = batch.hidden.new_zeros(()), 0
        agree: list[Tensor] = []
        overlap: list[Tensor] = []
        for j, x in enumerate(self.unroll(batch, steps)):
            top = _ahead(batch.top, 1 + j)
            counted = batch.mask(j) & self._known[top]
            with torch.no_grad():
                last = _ahead(batch.hidden[:, :, 3], 1 + j)[counted]
                last = rms_norm(last, self._target_norm, self._config.eps)
                p = _log_probs(last @ self._target_head.T)
            q = self.log_probs(x[counted])
            total = total + divergence(p, q, self._tv)
            terms += len(q)
            right = torch.zeros_like(counted)
            right[counted] = self._vocab[q.argmax(-1)] == top[counted]
            agree.append(right)
            shared = torch.zeros(counted.shape, device=q.device)
            shared[counted] = torch.minimum(p, q).exp().sum(-1).detach()
            overlap.append(shared)
        return Step(total / max(1, terms), agree, overlap)

    def unroll(self, batch: Batch, steps: int) -> Iterator[Tensor]:
        """The states [B, T, D] that leave the layer, by anchor, step by step: in step 0 it reads
        the target's features, afterwards its own states, always the answer's own tokens."""
        places = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
        context: KeysValues | None = None
        own: list[KeysValues] = []
        x = self._module["fc"](batch.hidden[:, :, :3].flatten(2))
        for j in range(steps):
            embedded = self._teacher.embed(_ahead(batch.tokens, 1 + j)).to(x.dtype)
            layer = self._module["midlayer"]
            x, entries = layer(embedded, x, places + j, context, places + 1, own)
            context, own = (entries, []) if context is None else (context, [*own, entries])
            yield x

    def log_probs(self, states: Tensor) -> Tensor:
        """log q [.., N] over `vocab` for states [.., D] that leave the layer."""
        return _log_probs(self._module["lm_head"](self._module["norm"](states)))

    def state(self) -> dict[str, Tensor]:
        """What is trained, by name."""
        named = self._module.named_parameters()
        return {name: value.detach() for name, value in named if value.requires_grad}

    def load(self, state: dict[str, Tensor]) -> None:
        """Become what `state` returned."""
        for name, value in self._module.named_parameters():
            if value.requires_grad:
                value.data.copy_(state[name])

    def export(self) -> Export:
        """The plain layout, in fp16, which vLLM and SGLang read as well; the embedding is the
        target's. (Biases, where the target's layers have them, are read by vLLM alone.)"""
        halves = {name: t.half() for name, t in self._module.state_dict().items()}
        if self._config.qkv_bias:  # where one has a bias, all have
            halves["midlayer.self_attn.o_proj.bias"] = torch.zeros(self._config.hidden).half()
        ids = self._vocab.cpu()
        halves["d2t"] = ids - torch.arange(len(ids))
        halves["t2d"] = self._known.cpu()
        config = hf_config(self._config) | {
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": len(ids),
            "mlp_bias": False,
            **layer_ids(self._taps),
        }
        return Export(halves, config)


def _log_probs(logits: Tensor) -> Tensor:
    return logits.float().log_softmax(-1)


def _ahead(values: Tensor, by: int) -> Tensor:
    """[B, T, …]: position t gets what stands at t + `by`; zeros past the end."""
    moved = torch.zeros_like(values)
    moved[:, : max(0, values.shape[1] - by)] = values[:, by:]
    return moved


def _taps(text: str, total: int) -> tuple[int, int, int]:
    """The three layers that `text` names, of `total`."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if (
        len(numbers) != 3
        or sorted({*numbers}) != numbers
        or not 0 < numbers[0] < numbers[2] < total
    ):
        raise PacelineError(
            f"--set taps={text}: give three of the target's {total} layers, ascending, "
            f"from 1 to {total - 1}"
        )
    return numbers[0], numbers[1], numbers[2]
