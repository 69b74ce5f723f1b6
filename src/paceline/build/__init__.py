"""The composition root: names to parts. Nothing else knows all implementations."""

from __future__ import annotations

import numbers
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from paceline.build.drafts import DraftSetting, Makers, Spec, resolve
from paceline.build.models import Loaded, Models, Note, Progress
from paceline.build.suffix_draft import open_corpus
from paceline.build.trees import Shape
from paceline.build.verify import VERIFIERS, make_verifier
from paceline.build.windows import ADAPTIVE, Tuned, make_window
from paceline.controllers.adaptive import Adaptive
from paceline.core.cached import SLACK
from paceline.core.protocols import Verifier
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.verifiers.by_row import Each

if TYPE_CHECKING:
    from typing import Self

MAX_K = SLACK // 2  # a cache has room for so many drafted tokens behind the longest sequence


class LLM(Generator):
    """A model ready to generate, faster and with the same output.

    `model`: a catalog name, a Hugging Face id or folder, or a .gguf file. `draft`: "none",
    "lookup:N" (what followed the last N tokens before), "suffix" (what followed them most often),
    "model:NAME" (a smaller model of any vocabulary), "self:int4" and the like (the target itself,
    made cheaper), "head:DIR" (trained to draft for it), "A+B" (the first that proposes something),
    or "auto"; `others`: more of these, for requests that name one (`SamplingParams.draft`).
    `suffix_corpus`: a file that keeps outputs for "suffix" from call to call. `k`:
    drafted tokens a round at most, 0 (plain decoding) to 32; of a tree, one behind the other.
    `window`: how many of them, "adaptive" (what pays, timed on this machine) or "fixed". `nodes`:
    drafts grow into trees where they are sure, of that many tokens, or ("auto") as many as pay.
    `branches`: that many continuations of a draft model, merged into one tree. `verify`: "auto",
    "rejection", "block", "kseq", "specinfer", or "typical", which is lossy, as `lenience` < 1 is.
    `deterministic`: the same tokens on every run, with every draft and K, alone or in a batch, also
    at a temperature; without a seed the seed is 0. `dtype`: "native" (a GGUF file's own weights),
    "int4", "int8", "fp16", "bf16", "fp32" or "auto"; `device`: "cpu", "cuda" or "auto".
    `draft_temperature`: at which a draft model draws; None = the request's own. `context`: the most
    tokens of prompt and output together; None = what the model was made for. `threads`: CPU
    threads; None = one a core. Where all models run on the native kernels, torch is set to one
    thread for the whole process: its own would spin against theirs. `progress(done, total, what)`
    and `note(line)` hear what happens meanwhile. Raises PacelineError for anything that the user
    can put right.
    """

    def __init__(
        self,
        model: str = DEFAULT,
        *,
        draft: str = "auto",
        others: Sequence[str] = (),
        k: int = 8,
        window: str = ADAPTIVE,
        verify: str = "auto",
        lenience: float = 1.0,
        deterministic: bool = False,
        nodes: int | str | None = None,
        branches: int = 1,
        draft_temperature: float | None = None,
        suffix_corpus: str | None = None,
        dtype: str = "auto",
        device: str = "auto",
        context: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
        note: Note | None = None,
    ) -> None:
        setting = _Setting(
            draft,
            tuple(others),
            k,
            window,
            verify,
            lenience,
            deterministic,
            draft_temperature,
            Shape.read(branches, nodes),
        )
        if suffix_corpus is not None and not setting.has("suffix"):
            raise PacelineError("a suffix corpus is for --draft suffix, alone or in A+B")
        if threads is not None:
            check_threads(threads)
            torch.set_num_threads(threads)
        self._open = Models(dtype, device, threads, progress, note)
        loaded = self._open(model)
        self._corpus = open_corpus(suffix_corpus, loaded) if suffix_corpus else None
        self._set(loaded, setting, context, progress)

    def with_draft(
        self,
        draft: str,
        *,
        k: int | None = None,
        window: str | None = None,
        nodes: int | str | None = None,
        branches: int = 1,
    ) -> Self:
        """The same loaded model with another drafter (and K, and window): a generator of its own.
        It drafts chains unless `nodes` or `branches` say otherwise."""
        other = object.__new__(type(self))
        other._open, other._corpus = self._open, self._corpus
        shape, k = Shape.read(branches, nodes), self._setting.k if k is None else k
        window = self._setting.window if window is None else window
        setting = replace(self._setting, draft=draft, others=(), k=k, window=window, shape=shape)
        other._set(self._loaded, setting, self.context, self._progress)
        return other

    def _set(
        self, loaded: Loaded, setting: _Setting, context: int | None, progress: Progress | None
    ) -> None:
        self._loaded, self._setting = loaded, setting
        specs = [Spec(resolve(draft, loaded)) for draft in (setting.draft, *setting.others)]
        parts = setting.parts(specs, loaded, self._open, self._corpus)
        super().__init__(parts, context, progress)
        if not self.lossless:
            self._open.note(f"{setting.loss}: the output is not distributed as the model's own")

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
        return self.parts.drafts[0]

    @property
    def drafts(self) -> Sequence[str]:
        """What a request may name as its draft: the drafter first, then the others, and "none"."""
        return self.parts.drafts

    @property
    def k(self) -> int:
        """The largest window."""
        return self.parts.k


@dataclass(frozen=True)
class _Setting:
    """How to speculate, by name; a name or a value that means nothing is refused at once."""

    draft: str
    others: tuple[str, ...]
    k: int
    window: str
    verify: str
    lenience: float
    deterministic: bool
    draft_temperature: float | None
    shape: Shape

    def __post_init__(self) -> None:
        check_window(self.k)
        for draft in (self.draft, *self.others):
            if draft != "auto":
                Spec(draft)
        self._verifier()
        if self.lenience != 1 and self.shape.is_tree:
            raise PacelineError("--lenience loosens chains: leave out --nodes and --branches")
        make_window(self.window, self.k)
        if self.draft_temperature is not None and not 0 <= self.draft_temperature < float("inf"):
            raise PacelineError(
                f"the draft temperature must be at least 0, not {self.draft_temperature}"
            )

    def has(self, kind: str) -> bool:
        """Whether a drafter of that kind is asked for by name."""
        drafts = (self.draft, *self.others)
        return any(draft != "auto" and kind in Spec(draft).kinds for draft in drafts)

    def parts(
        self, specs: Sequence[Spec], target: Loaded, models: Models, corpus: SuffixCorpus | None
    ) -> Parts:
        """The parts that these names stand for; `specs`: what the drafts are for this target."""
        setting = DraftSetting(self.draft_temperature, corpus, self.shape)
        named = {str(spec): spec for spec in specs}
        make = Makers({name: s.maker(setting, target, models) for name, s in named.items()})
        plain = not self.k or all(spec.kinds == ["none"] for spec in specs)
        controller, tuned = make_window("fixed" if plain else self.window, self.k), None
        if isinstance(controller, Adaptive):
            pair = [models.threads, *named, self.draft_temperature]
            tuned = Tuned(self.k, target, make, self.shape, pair, models.note)
            controller = tuned.controller

        def ended(outputs: list[list[int]]) -> None:
            if corpus is not None:
                _remember(corpus, models.note, outputs)
            if tuned is not None:
                tuned.save()

        others = {} if self.deterministic else {name: make_verifier(name) for name in VERIFIERS}
        return Parts(
            target.model,
            target.tokenizer,
            partial(make, controller=controller),
            Each(self._verifier(), others),
            controller,
            ended,
            tuned.prepare if tuned else None,
            self.deterministic,
            self.k,
            drafts=list(dict.fromkeys([*named, "none"])),
            verifiers=list(others),
            lossy=[name for name, verifier in others.items() if not verifier.lossless],
        )

    def _verifier(self) -> Verifier:
        return make_verifier(self.verify, self.lenience, self.deterministic)

    @property
    def loss(self) -> str:
        """What makes it lossy."""
        return f"lenience {self.lenience:g}" if self.lenience < 1 else f"verifier {self.verify}"


def _remember(corpus: SuffixCorpus, note: Note, outputs: list[list[int]]) -> None:
    """Add to the corpus. An answer is not lost because the file cannot be written."""
    for ids in outputs:
        corpus.add(ids)
    try:
        corpus.save()
    except PacelineError as error:
        note(str(error))


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
