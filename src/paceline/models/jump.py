"""Jump heads: from the target's last state straight into its own last blocks.

The newest token passes the target's first block or blocks; a predictor guesses the state that would
enter block E, and its last blocks do the rest, over the target's own keys and values. So a head
holds a predictor alone, and its context is the target's. (`paceline.distill.jump`: the formula.)
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from paceline.core.cached import CachedModel
from paceline.errors import PacelineError
from paceline.models.head_codes import decode
from paceline.models.head_files import MadeFor, head_config, head_tensors
from paceline.models.jump_reads import Into, JumpReads
from paceline.models.native import NativeTransformer, joined, layer
from paceline.models.native_weights import NativeWeights
from paceline.models.store import packed_folder

if TYPE_CHECKING:
    from paceline.core.protocols import Model
    from paceline.kernels._native import Linear
    from paceline.models.config import Config

_FORMAT = (
    "int4"  # of the predictor and the cut output layer: as good as int8, a step a fifth faster
)


class Jump:
    """A `paceline.drafters.head.Head`."""

    def __init__(
        self, config: JumpConfig, target: NativeTransformer, parts: NativeWeights, ids: Tensor
    ) -> None:
        self.taps = [config.enter, config.layers]
        self.ids = ids
        self.confidence = config.confidence
        self._target = target
        self._eps = target.config.eps
        self._first = _First(target, config.early)
        self._linear = joined(parts, "linear")
        self._up = joined(parts, "up") if config.width else None
        self._down = joined(parts, "down") if config.width else None
        self._last = _Last(config, target, parts)

    def over(self, target: CachedModel) -> JumpReads:
        """See `paceline.drafters.head.Head`."""
        return JumpReads(self, target)

    def step(
        self, tokens: Tensor, entered: Tensor, left: Tensor, into: Into
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Read `tokens` [B, T] into the target's cache. From what entered the last blocks and left
        them [B, T, D] at the token before each: the same at these, and logits [B, T, V']."""
        entered = self._guess(self._first(tokens, into), entered, left)
        left, logits = self._last(entered, into)
        return entered, left, logits

    def _guess(self, *states: Tensor) -> Tensor:
        stacked = torch.stack(states, 2).flatten(0, 1)
        u = F.rms_norm(stacked, stacked.shape[-1:], None, self._eps).flatten(1)
        x = self._product(self._linear, u)
        if self._up is not None and self._down is not None:
            rows = [F.silu(row) for row in self._product(self._up, u)]  # else neighbours count
            x = x + self._product(self._down, torch.stack(rows))
        return x.view(states[0].shape)

    def _product(self, linear: Linear, x: Tensor) -> Tensor:
        return torch.from_numpy(linear(self._target.engine, x.contiguous().numpy()))


class _First:
    """The target's first `count` blocks: from tokens to states."""

    def __init__(self, target: NativeTransformer, count: int) -> None:
        self._target, self._count = target, count
        self._scale = target.config.embed_scale
        self._decoder = target.decoder(range(count)) if count else None
        self._length = 0

    def __call__(self, tokens: Tensor, into: Into) -> Tensor:
        """`tokens` [B, T] -> [B, T, D]; writes these blocks' entries of the cache."""
        target, ids = self._target, tokens.contiguous().numpy()
        if self._decoder is None:
            rows = torch.from_numpy(target.embedding.rows(ids.reshape(-1)))
            return rows.view(*ids.shape, -1) * self._scale
        if into.cache.length > self._length:
            self._length = into.cache.length
            target.set_ropes(self._decoder, self._length)
        states = torch.zeros(*ids.shape, target.config.hidden)  # rows that are not read: no NaN
        self._decoder.forward(
            target.engine,
            ids,
            hidden=states.numpy(),
            taps=[self._count],
            **into.arguments,
        )
        return states


class _Last:
    """The target's last blocks, or the head's own copies: from states to logits."""

    def __init__(self, config: JumpConfig, target: NativeTransformer, parts: NativeWeights) -> None:
        last = range(config.enter, config.layers)
        own = {i: layer(target.config, parts, i) for i in last} if config.tuned else {}
        self._target = target
        self._count = len(last)
        self._head = joined(parts, "head")
        self._decoder = target.decoder(last, head=self._head, own=own)
        self._length = 0

    def __call__(self, states: Tensor, into: Into) -> tuple[Tensor, Tensor]:
        """`states` [B, T, D] -> the states that leave the last block [B, T, D], and logits
        [B, T, V']; writes these blocks' entries of the cache."""
        if into.cache.length > self._length:
            self._length = into.cache.length
            self._target.set_ropes(self._decoder, self._length)
        left = torch.zeros(states.shape)
        logits = torch.zeros(*states.shape[:2], self._head.rows)
        self._decoder.forward(
            self._target.engine,
            None,
            hidden=left.numpy(),
            logits=logits.numpy(),
            taps=[self._count],
            states=states.contiguous().numpy(),
            **into.arguments,
        )
        return left, logits


@dataclass(frozen=True)
class JumpConfig:
    """A head's config.json. `early`: how many first blocks it runs through; `enter`: the block that
    it jumps into, of `layers`; `hidden`: D; `width`: of the predictor's hidden layer (0: none);
    `tuned`: it brings these blocks itself; `confidence`: see `paceline.drafters.sampling.Chain`."""

    early: int
    enter: int
    layers: int
    hidden: int
    width: int
    tuned: bool
    confidence: float
    made_for: MadeFor

    @classmethod
    def read(cls, raw: dict[str, Any], name: str) -> JumpConfig:
        """Raises PacelineError for a config that is none."""
        try:
            sizes = {key: int(raw["target"][key]) for key in ("hidden", "vocab", "layers")}
            config = cls(
                early=int(raw["early"]),
                enter=int(raw["enter"]),
                layers=int(raw["layers"]),
                hidden=int(raw["hidden"]),
                width=int(raw["width"]),
                tuned=bool(raw["tuned"]),
                confidence=float(raw.get("confidence", 0.0)),
                made_for=MadeFor(str(raw["target"]["name"]), **sizes),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PacelineError(f"{name}'s config.json is not a jump head's ({error!r})") from None
        wrong = (config.hidden, config.layers) != (sizes["hidden"], sizes["layers"])
        wrong = wrong or not 0 <= config.early < config.enter < config.layers
        if wrong or not 0 <= config.confidence < 1:
            raise PacelineError(f"{name}'s config.json makes no sense; get it again")
        return config


def is_jump(raw: dict[str, Any]) -> bool:
    """Whether this is the config.json of a jump head."""
    return raw.get("paceline_head") == "jump"


def load_jump(folder: Path, name: str, target: Model, target_name: str) -> Jump:
    """The head in `folder`, which the user calls `name`, for `target`, called `target_name`.

    Raises PacelineError, in one line, for files that cannot be read, a head that was made for
    another target, or a target that does not run on the native kernels.
    """
    config = JumpConfig.read(head_config(folder, name), name)
    if not isinstance(target, NativeTransformer):
        raise PacelineError(
            f"{name} needs a target on the native kernels, which {target_name} is not here; "
            "use --draft lookup, or --dtype int8 on a CPU"
        )
    config.made_for.check(name, target_name, target.config)
    tensors = head_tensors(folder, name)
    try:
        ids = tensors["ids"].long()
        kept = _Kept(folder, config, target, tensors, ids)
        kept.check()
        with NativeWeights(kept, _FORMAT, target.engine, packed_folder()) as parts:
            return Jump(config, target, parts, ids)
    except KeyError as error:
        raise PacelineError(f"{name} has no tensor {error}; get it again") from None
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise PacelineError(f"{name}'s weights do not fit ({reason}); get it again") from None


class _Kept:
    """A head's matrices and the rows of the target's output layer, as a checkpoint to pack."""

    def __init__(
        self,
        folder: Path,
        config: JumpConfig,
        target: NativeTransformer,
        tensors: dict[str, Tensor],
        ids: Tensor,
    ) -> None:
        self._tensors, self._ids, self._target = tensors, ids, target
        self._jump = config
        digest = hashlib.sha256((folder / "config.json").read_bytes())
        for path in sorted(folder.glob("*.safetensors")):
            state = path.stat()
            digest.update(f"{state.st_size} {state.st_mtime_ns} {target.head.kind} ".encode())
        # another target of this shape has other rows: a few of them tell
        digest.update(target.head.rows(np.arange(0, target.vocab_size, 997)).tobytes())
        self.fingerprint = digest.hexdigest()

    @property
    def config(self) -> Config:
        """Sizes that say about how much there is to pack."""
        return self._target.config

    def check(self) -> None:
        """Raise ValueError unless the sizes are what the config and the target make them."""
        dim, width = self._jump.hidden, self._jump.width
        wanted = {"linear.weight": (dim, 3 * dim), "linear.bias": (dim,)}
        if width:
            wanted |= {"up.weight": (width, 3 * dim), "down.weight": (dim, width)}
        for key, shape in wanted.items():
            found = tuple(self.tensor(key).shape)
            if found != shape:
                raise ValueError(f"{key} is {found}, not {shape}")
        ids = self._ids
        if ids.dim() != 1 or not len(ids) or len(ids.unique()) < len(ids):  # else q would be wrong
            raise ValueError("its ids are damaged")
        if not 0 <= int(ids.min()) <= int(ids.max()) < self._target.vocab_size:
            raise ValueError("it drafts tokens that the target has not")

    def __contains__(self, name: str) -> bool:
        name = _own(name)
        return name == "head.weight" or name in self._tensors or f"{name}.codes" in self._tensors

    def tensor(self, name: str) -> Tensor:
        if name == "head.weight":
            return torch.from_numpy(self._target.head.rows(self._ids.numpy()))
        return decode(self._tensors, _own(name))


def _own(name: str) -> str:
    """What the head's file calls a tensor of one of the target's blocks."""
    return name.replace("model.layers.", "blocks.")
