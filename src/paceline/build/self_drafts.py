"""Drafts made of the target itself: in fewer bits, or without some of its layers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from paceline.build.models import Loaded, Models
from paceline.build.trees import PaceFor, model_drafter
from paceline.core.cached import CachedModel
from paceline.core.protocols import Drafter
from paceline.core.shared import Shared
from paceline.drafters.sampling import Grows
from paceline.errors import PacelineError, unknown
from paceline.models.load import open_checkpoint, uncollected
from paceline.models.progress import megabytes
from paceline.models.pull import resolve
from paceline.models.quant import FORMATS, Copy, quantised, same_cache
from paceline.models.skip import Part, layer_count, saved_skip, skip_layers, skippable, spread

if TYPE_CHECKING:
    from paceline.build.drafts import DraftSetting, MakesPart

_SKIP = "self:skip=N (a number of layers) or self:skip=auto"


def check_self(value: str) -> None:
    """Raise PacelineError unless `value`, behind "self:", is a format, skip=N or skip=auto."""
    if value in FORMATS or value == "skip=auto":
        return
    if not value:
        raise PacelineError(f"draft self needs to know how: self:int8, self:int4, {_SKIP}")
    kind, _, count = value.partition("=")
    if kind != "skip":
        raise unknown("draft", f"self:{value}", [*(f"self:{x}" for x in FORMATS), "self:skip=auto"])
    if not (count.isascii() and count.isdigit() and len(count) < 10 and int(count)):
        raise PacelineError(f"draft 'self:{value}': use {_SKIP}; N is a whole number from 1 on")


def make_self(value: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    """Drafts of `target` as `value` says, over its own cache wherever that suits both."""
    kind, _, count = value.partition("=")
    model = _skipping(target, count) if kind == "skip" else _copy(kind, target, models).model
    return over(target, model, setting)


def over(target: Loaded, model: Part, setting: DraftSetting) -> MakesPart:
    """Drafts of `model`, which has the target's vocabulary."""
    shared = same_cache(target.model, model)

    def reads(batch: int, length: int, cached: CachedModel) -> Grows:
        if shared:
            model.reach(cached.cache.length)
            return Shared(cached, model)
        return CachedModel(model, batch, length, cached.vocab)

    vocab = min(target.tokenizer.size, target.model.vocab_size)
    size = setting.shape.size(target.model, vocab, lambda cached: reads(1, cached.length, cached))

    def make(batch: int, length: int, target: CachedModel, pace: PaceFor | None = None) -> Drafter:
        each = reads(batch, length, target)
        return model_drafter(each, setting.shape, size(), setting.temperature, pace)

    return make


def _copy(dtype: str, target: Loaded, models: Models) -> Copy:
    with uncollected():
        copy = quantised(
            target.model,
            target.dtype,
            resolve(target.name),
            dtype,
            progress=models.progress,
            note=models.note,
        )
    name = f"self:{dtype}"
    if copy.dtype != dtype:
        models.note(f"{name} is in {copy.dtype} here: 4 bits are for CPUs with the native kernels")
    if copy.model is target.model:
        models.note(
            f"{name} is {target.name} itself, which is in {copy.dtype} already: a draft step costs "
            "as much as it saves; give --dtype fp16, or choose another draft"
        )
        return copy
    models.note(f"{name} adds {_size(copy.added)}")
    theirs = target.model.nbytes  # type: ignore[attr-defined]  # `quantised` saw to it
    if copy.model.nbytes >= theirs:
        models.note(
            f"{name} is no smaller than {target.name} in {target.dtype} ({_size(theirs)} a step): "
            "it cannot be faster; give --dtype fp16, or choose another draft"
        )
    return copy


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 50_000_000 else megabytes(count)


def _skipping(target: Loaded, count: str) -> Part:
    """The target without some of its layers: `count` of them, or those that a search found."""
    layers = layer_count(target.model)
    if count == "auto":
        dropped = _found(target, layers)
    else:
        most = len(skippable(layers))
        if int(count) > most:
            fix = f"use self:skip={most} or fewer" if most else "choose another draft"
            raise PacelineError(
                f"self:skip={count}: {target.name} has {layers} layers, of which {most} can be "
                f"left out; {fix}"
            )
        dropped = spread(layers, int(count))
    return skip_layers(target.model, set(range(layers)) - set(dropped))


def _found(target: Loaded, layers: int) -> list[int]:
    found = saved_skip(target.fingerprint or fingerprint(resolve(target.name)))
    if found is None or found.layers != layers:
        raise PacelineError(
            f"self:skip=auto: no search has been made for {target.name}; "
            f"run paceline distill skip --model {target.name}"
        )
    return found.dropped


def fingerprint(path: Path) -> str:
    """Names the checkpoint at `path` by its bytes. Raises PacelineError for one that is not read
    here but by transformers."""
    checkpoint = open_checkpoint(path)
    if checkpoint is None:
        raise PacelineError(f"{path} runs through transformers: its layers cannot be left out")
    return checkpoint.fingerprint
