"""Tiny targets on the native kernels, random jump heads for them, and what they compute."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import Tensor

from kernels import tiny_decoders
from paceline.core.cached import CachedModel
from paceline.core.sequences import Sequences
from paceline.drafters.grow import TreeSize
from paceline.drafters.head import HeadDrafter
from paceline.models.jump import Jump, JumpConfig
from paceline.models.native import NativeTransformer
from tiny import write_llama

HIDDEN, HEADS, SHARED, DIM, FFN, VOCAB = 32, 4, 2, 16, 64, 257
EPS, THETA = 1e-5, 10000.0
DRAFT_IDS = [*range(0, 60, 2), *range(97, 123), 200, 256]
MATRICES = [f"self_attn.{x}_proj" for x in "qkvo"] + [
    f"mlp.{x}_proj" for x in ("gate", "up", "down")
]
NORMS = ["input_layernorm", "post_attention_layernorm"]


def write_target(
    folder: Path,
    family: str = "llama",
    layers: int = 5,
    change: Callable[[dict[str, Tensor]], None] | None = None,
    seed: int = 0,
    **config: Any,
) -> Path:
    """A random Llama or Qwen2, with biases and norms of its own, whose every value is an fp16."""
    write_llama(folder, seed, layers)
    raw = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    make = torch.Generator().manual_seed(seed + 9)
    if family == "qwen2":
        raw |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
        for i in range(layers):
            for part, width in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
                name = f"model.layers.{i}.self_attn.{part}_proj.bias"
                tensors[name] = 0.5 * torch.randn(width * DIM, generator=make)
    for name in tensors:
        if "norm" in name:
            tensors[name] = 1 + 0.2 * torch.randn(HIDDEN, generator=make)
        elif "proj.weight" in name:
            tensors[name] = 1.5 * tensors[name]
    if change:
        change(tensors)
    tensors = {name: value.half().float() for name, value in tensors.items()}
    (folder / "config.json").write_text(json.dumps(raw | config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def parts(
    target: dict[str, Tensor], enter: int, layers: int, width: int, tuned: bool, seed: int = 0
) -> dict[str, Tensor]:
    """A random head's tensors; every value of a matrix is a code times a power of two."""
    make = torch.Generator().manual_seed(seed)
    out: dict[str, Tensor] = {"ids": torch.tensor(DRAFT_IDS, dtype=torch.int32)}

    def matrix(name: str, rows: int, cols: int, scale: float) -> None:
        out[f"{name}.codes"] = torch.randint(-127, 128, (rows, cols), generator=make).to(torch.int8)
        some = torch.randint(0, 2, (rows, -(-cols // 32)), generator=make)
        out[f"{name}.scales"] = (scale * 2.0**-some).half()

    matrix("linear.weight", HIDDEN, 3 * HIDDEN, 2**-9)
    out["linear.bias"] = torch.randn(HIDDEN, generator=make)
    if width:
        matrix("up.weight", width, 3 * HIDDEN, 2**-9)
        matrix("down.weight", HIDDEN, width, 2**-7)
    for i in range(enter, layers) if tuned else ():
        for name in MATRICES:
            shape = target[f"model.layers.{i}.{name}.weight"].shape
            matrix(f"blocks.{i}.{name}.weight", *shape, 2**-9)
            bias = target.get(f"model.layers.{i}.{name}.bias")
            if bias is not None:
                noise = 0.3 * torch.randn(bias.shape, generator=make)
                out[f"blocks.{i}.{name}.bias"] = bias + noise
        for name in NORMS:
            out[f"blocks.{i}.{name}.weight"] = 1 + 0.3 * torch.randn(HIDDEN, generator=make)
    return out


def write_jump(
    folder: Path,
    target: Path,
    early: int = 1,
    blocks: int = 1,
    width: int = 24,
    tuned: bool = False,
    *,
    seed: int = 0,
    change: Callable[[dict[str, Tensor]], None] | None = None,
    config: dict[str, Any] | None = None,
) -> Path:
    """A random head for the target in the folder `target`; `config`: what its config says else."""
    layers = json.loads((target / "config.json").read_text())["num_hidden_layers"]
    known, enter = load_file(target / "model.safetensors"), layers - blocks
    tensors = parts(known, enter, layers, width, tuned, seed)
    if change:
        change(tensors)
    raw = {
        "paceline_head": "jump", "early": early, "enter": enter, "layers": layers,
        "hidden": HIDDEN, "width": width, "tuned": tuned,
        "target": {"name": "tiny", "hidden": HIDDEN, "vocab": VOCAB, "layers": layers},
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(raw | (config or {})))
    return folder


class Naive:
    """What the head in `folder` makes of the target in `target`, in float64, entry by entry,
    without a cache of any kind."""

    def __init__(self, target: Path, folder: Path) -> None:
        self.config = json.loads((folder / "config.json").read_text())
        self.target = {k: t.double() for k, t in load_file(target / "model.safetensors").items()}
        self.head: dict[str, Tensor] = {}
        tensors = load_file(folder / "model.safetensors")
        self.ids = tensors.pop("ids").long()
        for name, value in tensors.items():
            if name.endswith(".codes"):
                scales = tensors[name.removesuffix("codes") + "scales"].double()
                wide = scales.repeat_interleave(32, 1)[:, : value.shape[1]]
                self.head[name.removesuffix(".codes")] = value.double() * wide
            elif not name.endswith(".scales"):
                self.head[name] = value.double()

    def logits(self, ids: Sequence[int], drafted: Sequence[int]) -> Tensor:
        """[len(drafted) + 1, V'] behind the committed `ids` and behind each of `drafted`."""
        early, enter, layers = (self.config[key] for key in ("early", "enter", "layers"))
        states, entries = self._whole(ids[:-1], layers)
        entered, left = states[enter][-1], states[layers][-1]
        out = []
        for j in range(len(drafted) + 1):
            place = len(ids) - 1 + j
            read = [*ids, *drafted[:j]]
            first = self._whole(read, early)[0][early][-1]
            entered = self._guess(first, entered, left)
            left = entered
            for i in range(enter, layers):
                at = f"blocks.{i}." if self.config["tuned"] else f"model.layers.{i}."
                weights = self.head if self.config["tuned"] else self.target
                entries[i].append(self._entry(weights, at, left, place))
                left = self._block(weights, at, left, place, entries[i])
            rows = self.target[
                "lm_head.weight" if "lm_head.weight" in self.target else "model.embed_tokens.weight"
            ][self.ids]
            out.append(rows @ self._norm(left, self.target["model.norm.weight"]))
        return torch.stack(out)

    def _guess(self, *states: Tensor) -> Tensor:
        u, h = torch.cat([self._norm(x) for x in states]), self.head
        x = h["linear.weight"] @ u + h["linear.bias"]
        if self.config["width"]:
            x = x + h["down.weight"] @ F.silu(h["up.weight"] @ u)
        return x

    def _whole(self, ids: Sequence[int], layers: int):
        """The target over `ids`: what enters each layer at each position, and what it keeps."""
        states = [[self.target["model.embed_tokens.weight"][i] for i in ids]]
        kept = []
        for i in range(layers):
            at, x = f"model.layers.{i}.", states[-1]
            kept.append([self._entry(self.target, at, s, t) for t, s in enumerate(x)])
            states.append(
                [self._block(self.target, at, s, t, kept[-1][: t + 1]) for t, s in enumerate(x)]
            )
        return states, kept

    def _entry(self, w: dict[str, Tensor], at: str, x: Tensor, place: int):
        """The key and the value [SHARED, DIM] of a state at `place`."""
        x = self._norm(x, w[f"{at}input_layernorm.weight"])
        k, v = (self._linear(w, f"{at}self_attn.{p}_proj", x).view(SHARED, DIM) for p in "kv")
        return self._rotate(k, place), v

    def _block(self, w: dict[str, Tensor], at: str, x: Tensor, place: int, entries) -> Tensor:
        normed = self._norm(x, w[f"{at}input_layernorm.weight"])
        q = self._linear(w, f"{at}self_attn.q_proj", normed).view(HEADS, DIM)
        q = self._rotate(q, place)
        seen = []
        for head in range(HEADS):
            group = head // (HEADS // SHARED)
            keys, values = (torch.stack([e[part][group] for e in entries]) for part in (0, 1))
            seen.append(values.T @ (keys @ q[head] / DIM**0.5).softmax(0))
        x = x + self._linear(w, f"{at}self_attn.o_proj", torch.cat(seen))
        normed = self._norm(x, w[f"{at}post_attention_layernorm.weight"])
        gate, up = (self._linear(w, f"{at}mlp.{p}_proj", normed) for p in ("gate", "up"))
        return x + self._linear(w, f"{at}mlp.down_proj", F.silu(gate) * up)

    @staticmethod
    def _linear(w: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
        y = w[f"{name}.weight"] @ x
        return y + w[f"{name}.bias"] if f"{name}.bias" in w else y

    @staticmethod
    def _norm(x: Tensor, weight: Tensor | float = 1.0) -> Tensor:
        return x / (x.pow(2).mean() + EPS).sqrt() * weight

    @staticmethod
    def _rotate(x: Tensor, place: int) -> Tensor:
        angle = place * THETA ** (-2 * torch.arange(DIM // 2).double() / DIM)
        a, b = x[:, : DIM // 2], x[:, DIM // 2 :]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class _Parts:
    """The `Weights` of a random head, in memory."""

    def __init__(self, weights: tiny_decoders.Weights, ids: list[int], width: int) -> None:
        dim, self._vectors = (
            weights.config.hidden,
            {"linear.bias": weights.draw(weights.config.hidden)},
        )
        rows = weights.values("lm_head.weight")[torch.tensor(ids)]
        self._matrices = {"head.weight": weights.fill("fp16", rows)}
        sizes = {"linear": (dim, 3 * dim), "up": (width, 3 * dim), "down": (dim, width)}
        for name, size in sizes.items():
            values = weights.draw(*size) * 2 * size[1] ** -0.5
            self._matrices[f"{name}.weight"] = weights.fill("int8", values)

    def matrix(self, name: str) -> object:
        return self._matrices[name]

    def bias(self, name: str) -> Tensor | None:
        return self._vectors.get(name)


@cache
def jump(
    vocab: int, early: int = 1, ids: tuple[int, ...] | None = None, kind: str = "int8"
) -> tuple[NativeTransformer, Jump]:
    """A random target of four layers and `vocab` tokens, and a random head for it that guesses
    `ids`, on two of its blocks."""
    config = replace(tiny_decoders.FAMILIES["qwen2"], vocab_size=vocab, layers=4, local=())
    weights = tiny_decoders.Weights(config, kind)
    target, known = tiny_decoders.native(weights), list(ids or range(vocab))
    shape = JumpConfig.read(
        {
            "early": early, "enter": 2, "layers": 4, "hidden": config.hidden, "width": 16,
            "tuned": False,
            "target": {"name": "", "hidden": config.hidden, "vocab": vocab, "layers": 4},
        },
        "a head",
    )  # fmt: skip
    head = Jump(shape, target, _Parts(weights, known, 16), torch.tensor(known))  # type: ignore
    return target, head


def jump_drafter(
    vocab: int, ids: tuple[int, ...] | None = None, tree: TreeSize | None = None
) -> Callable[[Sequences], HeadDrafter]:
    """Makes a drafter for given sequences out of `jump`."""

    def make(seqs: Sequences) -> HeadDrafter:
        target, head = jump(vocab, ids=ids)
        return HeadDrafter(CachedModel(target, seqs.batch, 256), head, tree=tree)

    return make
