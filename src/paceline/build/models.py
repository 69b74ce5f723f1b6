"""Models by name, each one loaded once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from paceline import kernels
from paceline.core.protocols import Model
from paceline.models.gguf import GgufCheckpoint
from paceline.models.load import load, uncollected
from paceline.models.native import NativeTransformer
from paceline.models.pull import resolve
from paceline.text.tokenizer import Tokenizer

Progress = Callable[[int, int, str], None]
Note = Callable[[str], None]


@dataclass(frozen=True)
class Loaded:
    """A model in memory with its tokenizer. `name`: what the user called it; `dtype`: the weight
    format that it runs in; `fingerprint` names the bytes of a GGUF file (None: it is a
    folder)."""

    name: str
    model: Model
    tokenizer: Tokenizer
    dtype: str
    fingerprint: str | None = None


class Models:
    """Loads models by name, each one once."""

    def __init__(
        self,
        dtype: str,
        device: str,
        threads: int | None,
        progress: Progress | None,
        note: Note | None,
    ) -> None:
        self.threads = threads
        self._how = (dtype, device, progress, note)
        self._engine = None  # all models share its threads
        if kernels.available():
            self._engine = kernels.load().Engine(threads or kernels.default_threads())
        self._loaded: dict[str, Loaded] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._sources: dict[str, Path | GgufCheckpoint] = {}
        self.note: Note = note or (lambda line: None)
        self.progress = progress

    def __call__(self, name: str) -> Loaded:
        if name not in self._loaded:
            with uncollected():
                self._load(name)
        return self._loaded[name]

    def _load(self, name: str) -> None:
        dtype, device, progress, note = self._how
        tokenizer = self.tokenizer(name)  # first: what it refuses is refused in no time
        source = self._source(name)
        model, picked = load(
            source,
            dtype=dtype,
            device=device,
            progress=progress,
            note=note,
            engine=self._engine,
        )
        fingerprint = source.fingerprint if isinstance(source, GgufCheckpoint) else None
        self._loaded[name] = Loaded(name, model, tokenizer, picked, fingerprint)
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
