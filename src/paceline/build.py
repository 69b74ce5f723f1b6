"""The composition root: names to parts. Nothing else knows all implementations."""

from __future__ import annotations

import numbers
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from paceline import kernels
from paceline.controllers.fixed import Fixed
from paceline.core.cached import SLACK, CachedModel
from paceline.core.protocols import Controller, Drafter, Model, Verifier
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.none import NoDraft
from paceline.errors import PacelineError, unknown
from paceline.models.catalog import DEFAULT
from paceline.models.gguf import GgufCheckpoint
from paceline.models.load import load, uncollected
from paceline.models.native import NativeTransformer
from paceline.models.pull import resolve
from paceline.text.llm import Generator, MakesDrafter, Parts
from paceline.text.tokenizer import Tokenizer
from paceline.verifiers.rejection import Rejection

if TYPE_CHECKING:
    from typing import Self

Progress = Callable[[int, int, str], None]
Note = Callable[[str], None]
MAX_K = SLACK // 2  # a cache has room for so many drafted tokens behind the longest sequence
AUTO = "lookup:5"  # costs next to nothing where it finds nothing, and needs no second model


@dataclass(frozen=True)
class Loaded:
    """A model in memory with its tokenizer. `name`: what the user called it; `dtype`: the weight
    format that it runs in."""

    name: str
    model: Model
    tokenizer: Tokenizer
    dtype: str


class LLM(Generator):
    """A model ready to generate, faster and with the same output.

    `model`: a catalog name, a Hugging Face id or folder, or a .gguf file. `draft`: "none",
    "lookup:N" (what followed the last N tokens before), "model:NAME" (a smaller model of the same
    vocabulary), "A+B" (the first that proposes something), or "auto". `k`: drafted tokens a round,
    0 (plain decoding) to 32. `dtype`: "native" (a GGUF file's own weights), "int4", "int8", "fp16",
    "bf16", "fp32" or "auto"; `device`: "cpu", "cuda" or "auto". `draft_temperature`: at which a
    draft model draws; None = the request's own. `context`: the most tokens of prompt and output
    together; None = what the model was made for. `threads`: CPU threads; None = one a core. Where
    all models run on the native kernels, torch is set to one thread for the whole process: its own
    would spin against theirs. `progress(done, total, what)` and `note(line)` hear what happens
    meanwhile. Raises PacelineError for anything that the user can put right.
    """

    def __init__(
        self,
        model: str = DEFAULT,
        *,
        draft: str = "auto",
        k: int = 6,
        window: str = "fixed",
        verify: str = "auto",
        draft_temperature: float | None = None,
        dtype: str = "auto",
        device: str = "auto",
        context: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        note: Note | None = None,
    ) -> None:
        setting = _Setting(draft, k, window, verify, draft_temperature)
        if threads is not None:
            check_threads(threads)
            torch.set_num_threads(threads)
        self._open = _Models(dtype, device, threads, progress, note)
        self._set(self._open(model), setting, context, progress)

    def with_draft(self, draft: str, *, k: int | None = None) -> Self:
        """The same loaded model with another drafter (and K): a generator of its own."""
        other = object.__new__(type(self))
        other._open = self._open
        setting = replace(self._setting, draft=draft, k=self._setting.k if k is None else k)
        other._set(self._loaded, setting, self.context, self._progress)
        return other

    def _set(
        self, loaded: Loaded, setting: _Setting, context: int | None, progress: Progress | None
    ) -> None:
        self._loaded, self._setting = loaded, setting
        super().__init__(setting.parts(loaded, self._open), context, progress)

    @property
    def name(self) -> str:
        """The model, as the user called it."""
        return self._loaded.name

    @property
    def dtype(self) -> str:
        """The weight format it runs in."""
        return self._loaded.dtype

    @property
    def draft(self) -> str:
        """The drafter, "auto" resolved."""
        return str(_Spec(self._setting.draft))


class _Models:
    """Loads models by name, each one once."""

    def __init__(
        self,
        dtype: str,
        device: str,
        threads: int | None,
        progress: Progress | None,
        note: Note | None,
    ) -> None:
        self._how = (dtype, device, progress, note)
        self._engine = None  # all models share its threads
        if kernels.available():
            self._engine = kernels.load().Engine(threads or kernels.default_threads())
        self._loaded: dict[str, Loaded] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._sources: dict[str, Path | GgufCheckpoint] = {}
        self.note: Note = note or (lambda line: None)

    def __call__(self, name: str) -> Loaded:
        if name not in self._loaded:
            with uncollected():
                self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> None:
        dtype, device, progress, note = self._how
        tokenizer = self.tokenizer(name)  # first: what it refuses is refused in no time
        model, picked = load(
            self._source(name),
            dtype=dtype,
            device=device,
            progress=progress,
            note=note,
            engine=self._engine,
        )
        self._loaded[name] = Loaded(name, model, tokenizer, picked)
        self._sources.pop(name)
        if all(isinstance(each.model, NativeTransformer) for each in self._loaded.values()):
            torch.set_num_threads(1)  # torch's threads would spin against the engine's

    def tokenizer(self, name: str) -> Tokenizer:
        """The tokenizer of a model, without its weights."""
        if name not in self._tokenizers:
            source = self._source(name)
            self._tokenizers[name] = (
                Tokenizer.from_folder(source)
                if isinstance(source, Path)
                else Tokenizer.from_gguf(source.metadata)
            )
        return self._tokenizers[name]

    def _source(self, name: str) -> Path | GgufCheckpoint:
        """Where a model's folder is, or its opened file: the tokenizer and the weights are both in
        it, and reading the vocabulary takes a while."""
        if name not in self._sources:
            path = resolve(name)
            self._sources[name] = GgufCheckpoint(path) if path.is_file() else path
        return self._sources[name]


class _Spec:
    """A drafter's name, taken apart: "lookup:3+none" is [("lookup", "3"), ("none", "")]."""

    def __init__(self, text: str) -> None:
        text = AUTO if text == "auto" else text
        self.parts: list[tuple[str, str]] = []
        for part in text.split("+"):
            kind, _, value = part.partition(":")
            if kind not in _DRAFTERS:
                raise unknown("draft", part, ["auto", *_DRAFTERS])
            self.parts.append((kind, value))
        for kind, value in self.parts:
            if kind == "lookup":
                lookup_size(value)
            elif kind == "model" and not value:
                raise PacelineError("draft model needs a name: model:NAME")
            elif kind == "none" and (value or len(self.parts) > 1):
                raise PacelineError(f"draft {text!r}: none stands alone")

    def __str__(self) -> str:
        return "+".join(f"{kind}:{value}" if value else kind for kind, value in self.parts)


@dataclass(frozen=True)
class _Setting:
    """How to speculate, by name; a name or a value that means nothing is refused at once."""

    draft: str
    k: int
    window: str
    verify: str
    draft_temperature: float | None

    def __post_init__(self) -> None:
        check_window(self.k)
        _Spec(self.draft)
        if self.verify not in _VERIFIERS:
            raise unknown("verifier", self.verify, _VERIFIERS)
        if self.window not in _WINDOWS:
            raise unknown("window", self.window, _WINDOWS)
        if self.draft_temperature is not None and not 0 <= self.draft_temperature < float("inf"):
            raise PacelineError(
                f"the draft temperature must be at least 0, not {self.draft_temperature}"
            )

    def parts(self, target: Loaded, models: _Models) -> Parts:
        """The parts that these names stand for."""
        makers = [
            _DRAFTERS[kind](value, self, target, models) for kind, value in _Spec(self.draft).parts
        ]

        def make(batch: int, length: int) -> Drafter:
            each = [maker(batch, length) for maker in makers]
            return each[0] if len(each) == 1 else FirstOf(*each)

        verifier, controller = _VERIFIERS[self.verify](), _WINDOWS[self.window](self.k)
        return Parts(target.model, target.tokenizer, make, verifier, controller)


def check_window(k: object) -> None:
    """Raise PacelineError unless `k` is a whole number from 0 to MAX_K."""
    if isinstance(k, bool) or not isinstance(k, numbers.Integral) or not 0 <= int(k) <= MAX_K:
        raise PacelineError(f"k must be a whole number from 0 to {MAX_K}, not {k!r}")


def check_threads(threads: int) -> None:
    """Raise PacelineError unless so many threads make sense on this machine: more than its
    processors only wait for one another, thousands exhaust it."""
    most = 4 * (os.cpu_count() or 1)
    if not 1 <= threads <= most:
        raise PacelineError(f"threads must be from 1 to {most} here, not {threads}")


def lookup_size(value: str) -> int:
    """The N of lookup:N; 5 if there is none."""
    if not value:
        return 5
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 64:
        raise PacelineError(f"lookup:{value}: the n-gram must have 1 to 64 tokens")
    return int(value)


def _none(value: str, setting: _Setting, target: Loaded, models: _Models) -> MakesDrafter:
    return lambda batch, length: NoDraft()


def _lookup(value: str, setting: _Setting, target: Loaded, models: _Models) -> MakesDrafter:
    return lambda batch, length: Lookup(lookup_size(value))


def _model(value: str, setting: _Setting, target: Loaded, models: _Models) -> MakesDrafter:
    differs = target.tokenizer.same_tokens(models.tokenizer(value))
    if differs.first is not None:
        raise PacelineError(
            f"{value} cannot draft for {target.name}: {differs.message}; "
            "choose a draft model with the same tokenizer"
        )
    if differs.message:
        models.note(f"{value} drafts for {target.name}: {differs.message}")
    draft = models(value)
    vocab = min(target.tokenizer.size, draft.tokenizer.size, target.model.vocab_size)

    def make(batch: int, length: int) -> Drafter:
        cached = CachedModel(draft.model, batch, length, vocab)
        return ModelDrafter(cached, setting.draft_temperature)

    return make


_DRAFTERS: dict[str, Callable[[str, _Setting, Loaded, _Models], MakesDrafter]] = {
    "none": _none,
    "lookup": _lookup,
    "model": _model,
}
_VERIFIERS: dict[str, Callable[[], Verifier]] = {"auto": Rejection, "rejection": Rejection}
_WINDOWS: dict[str, Callable[[int], Controller]] = {"fixed": Fixed}
