"""Any other causal language model of transformers, if its cache can be rewound."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline.core.types import Output
from paceline.errors import MissingExtra, PacelineError, unknown
from paceline.models.formats import DTYPES

_CONTEXT = ("max_position_embeddings", "seq_length", "max_seq_len")
_CONTEXT_UNKNOWN = 2048


class HfCache:
    """One cache of transformers a row, and the length that was asked for."""

    def __init__(self, rows: list[Any], length: int) -> None:
        self.rows = rows
        self.length = length


class HfModel:
    """A `paceline.core.protocols.Model` around a model of transformers.

    Rows are read one after the other, each through a cache of its own that is cut back to where
    the reading starts: right for every attention-only model, and not made for speed. Logits agree
    within rounding, not to the bit, when the same tokens are read in other pieces. `Output.hidden`
    is None.
    """

    def __init__(
        self,
        model: str | Path | torch.nn.Module,
        dtype: str = "fp32",
        device: torch.device | str = "cpu",
    ) -> None:
        """Load `model` (a folder or an id on the hub; or take the module as it is) in the weight
        format `dtype` ("fp32", "bf16" or "fp16") on `device`.

        Raises MissingExtra without transformers, and PacelineError where it cannot load the model
        or where the model's state cannot be rewound (by the name of its cache class).
        """
        try:
            import transformers
        except ImportError:
            raise MissingExtra("a model of this architecture", "hf") from None
        self.device = torch.device(device)
        if not isinstance(model, torch.nn.Module):
            model = _load(str(model), dtype)
        self._model: Any = model.to(self.device).eval()
        self._body = self._model.base_model
        self._new_row = transformers.DynamicCache
        self.vocab_size, self._keyword = self._probe()
        config = self._model.config
        known = (getattr(config, name, None) for name in _CONTEXT)
        self.context = int(next(filter(None, known), _CONTEXT_UNKNOWN))

    def new_cache(self, batch: int, length: int) -> HfCache:
        """Room for `batch` rows of `length` positions."""
        return HfCache([self._new_row() for _ in range(batch)], length)

    def forward(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: HfCache,
        *,
        row: int = 0,
        logits: bool = True,
    ) -> Output:
        """See `paceline.core.protocols.Model`."""
        read = self._model if logits else self._body
        scores = []
        for b, start in enumerate(at):
            past = cache.rows[row + b]
            seen = past.get_seq_length()
            if not 0 <= start <= seen or start + tokens.shape[1] > cache.length:
                raise ValueError(
                    f"cannot read {tokens.shape[1]} tokens from position {start} on: "
                    f"{seen} are cached, {cache.length} fit"
                )
            if start < seen:
                past.crop(start - seen)
            out = read(input_ids=tokens[b : b + 1], use_cache=True, **{self._keyword: past})
            if logits:
                scores.append(out.logits.float())
        return Output(torch.cat(scores) if logits else None)

    @torch.no_grad()
    def _probe(self) -> tuple[int, str]:
        """The width of the logits, and the keyword for a cache ("past_key_values", in newer
        releases "cache"). Raises PacelineError unless the model, left to itself, makes a
        cache of nothing but plain keys and values, all of them kept."""
        from transformers.cache_utils import DynamicLayer

        ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        out = self._model(input_ids=ids, use_cache=True)
        states = {k: v for k, v in out.items() if k not in ("logits", "loss")}
        name, cache = next(iter(states.items()), ("none", None))
        if type(cache) is self._new_row and {*map(type, cache.layers)} == {DynamicLayer}:
            return out.logits.shape[-1], name
        names = [type(cache).__name__]
        names += [type(x).__name__ for x in getattr(cache, "layers", ())]
        odd = [name for name in names[1:] if name != DynamicLayer.__name__]
        raise PacelineError(
            f"{type(self._model).__name__} keeps its past in a {' of '.join(names[:1] + odd[:1])}, "
            "which cannot be rewound after a rejected token; use a model with full attention alone"
        )


def _load(path: str, dtype: str) -> Any:
    from transformers import AutoModelForCausalLM

    floats = [name for name, kind in DTYPES.items() if kind.is_floating_point]
    if dtype not in floats:
        if dtype in DTYPES:
            raise PacelineError(f"{dtype} is not there for this architecture; use {floats[-1]}")
        raise unknown("dtype", dtype, floats)
    try:
        return AutoModelForCausalLM.from_pretrained(path, dtype=DTYPES[dtype])
    except (OSError, ValueError, KeyError, RuntimeError, ImportError) as e:
        reason = " ".join(str(e).split())[:300]
        raise PacelineError(f"transformers cannot load {path}: {reason}") from None
