"""Drafters by name: what stands behind `--draft`. A new one is a line in `DRAFTERS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from paceline.build import suffix_draft
from paceline.build.heads import check_head, make_head, shipped
from paceline.build.models import Loaded, Models
from paceline.build.self_drafts import check_self, make_self
from paceline.build.translated import make_translated
from paceline.build.trees import PaceFor, Shape, model_drafter
from paceline.core.cached import CachedModel
from paceline.core.protocols import Branching, Controller, Drafter, Paces
from paceline.drafters.branches import Branches
from paceline.drafters.by_row import Each
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.none import NoDraft
from paceline.drafters.paced import Paced
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.errors import PacelineError, unknown
from paceline.models.native import NativeTransformer

AUTO = "lookup:5"  # costs next to nothing where it finds nothing, and needs no second model
SURE = "lookup:3-5"  # where another follows, that guesses better than a short match does


@dataclass(frozen=True)
class DraftSetting:
    """What all drafters are asked for. `temperature`: at which a draft model draws; None = the
    request's own. `suffix_corpus`: earlier outputs of the same model. `shape`: chains, or trees of
    what can draft them."""

    temperature: float | None = None
    suffix_corpus: SuffixCorpus | None = None
    shape: Shape = field(default_factory=Shape)


class MakesPart(Protocol):
    """Builds one of the drafters that a name stands for; see `MakesDrafter`. `pace`: None if a
    draft is to go as far as it is asked to."""

    def __call__(
        self, batch: int, length: int, target: CachedModel, pace: PaceFor | None = None
    ) -> Drafter: ...


@dataclass(frozen=True)
class Kind:
    """A word on `--draft`. `check(value)` refuses, with a PacelineError, what may not stand behind
    its colon; `make` loads what it takes."""

    check: Callable[[str], object]
    make: Callable[[str, DraftSetting, Loaded, Models], MakesPart]


@dataclass(frozen=True)
class Maker:
    """Builds what a name stands for: a `MakesDrafter`. `parts`: its drafters, in order, of which
    the first has the number `first`; `draft`: see `Paces.pace`."""

    parts: Sequence[MakesPart]
    first: int = 0
    draft: str | None = None

    def __call__(
        self, batch: int, length: int, target: CachedModel, controller: Controller | None = None
    ) -> Drafter:
        """The drafter, at the pace of `controller` if that has one."""
        each = [
            self._paced(make, i, batch, length, target, controller)
            if isinstance(controller, Paces)
            else make(batch, length, target)
            for i, make in enumerate(self.parts, self.first)
        ]
        return each[0] if len(each) == 1 else FirstOf(*each)

    def _paced(
        self,
        make: MakesPart,
        index: int,
        batch: int,
        length: int,
        target: CachedModel,
        controller: Paces,
    ) -> Drafter:
        pace = partial(controller.pace, index, draft=self.draft)
        return Paced(make(batch, length, target, pace), pace(), index)


class Makers:
    """Builds what several names stand for: a `MakesDrafter`. Requests that name none have the
    first. `parts`: the drafters of all of them, in the order of their numbers."""

    def __init__(self, each: Mapping[str, Maker]) -> None:
        self._each: dict[str, Maker] = {}
        self.parts: list[MakesPart] = []
        for name, maker in each.items():
            draft = name if self._each else None
            self._each[name] = Maker(maker.parts, len(self.parts), draft)
            self.parts += maker.parts

    def __call__(
        self, batch: int, length: int, target: CachedModel, controller: Controller | None = None
    ) -> Drafter:
        """See `Maker`."""
        made = {name: m(batch, length, target, controller) for name, m in self._each.items()}
        return Each(made)


class Spec:
    """A drafter's name, taken apart: "lookup:3+model:X" is [("lookup", "3"), ("model", "X")].

    Raises PacelineError for a word or a value that means nothing.
    """

    def __init__(self, text: str) -> None:
        self.parts: list[tuple[str, str]] = []
        for part in text.split("+"):
            kind, _, value = part.partition(":")
            if kind not in DRAFTERS:
                raise unknown("draft", part, ["auto", *DRAFTERS])
            self.parts.append((kind, value))
        for kind, value in self.parts:
            DRAFTERS[kind].check(value)
            if kind == "none" and len(self.parts) > 1:
                raise PacelineError(f"draft {text!r}: none stands alone")

    @property
    def kinds(self) -> list[str]:
        """The words, in order."""
        return [kind for kind, _ in self.parts]

    def maker(self, setting: DraftSetting, target: Loaded, models: Models) -> Maker:
        """Loads what the drafters take; what builds them. Raises PacelineError for what cannot be
        had, also where trees are asked for and none of them drafts any."""
        if setting.shape.is_tree and not {*self.kinds} & {"none", *_GROW}:
            raise PacelineError(
                f"{self} drafts chains alone: --nodes and --branches are for model:, self:, head: "
                "and suffix"
            )
        setting.shape.check(target.model, target.name)
        each = [DRAFTERS[kind].make(value, setting, target, models) for kind, value in self.parts]
        return Maker(each)

    def __str__(self) -> str:
        return "+".join(f"{kind}:{value}" if value else kind for kind, value in self.parts)


def resolve(text: str, target: Loaded) -> str:
    """The drafter's name with "auto" in terms of what suits `target`."""
    if text != "auto":
        return text
    if target.dtype == "fp16" and isinstance(target.model, NativeTransformer):
        return f"{SURE}+self:int4"  # of a quarter of the bytes, and nearly always right
    head = shipped(target)
    return AUTO if head is None else f"{SURE}+head:{head}"


def lookup_sizes(value: str) -> tuple[int, int]:
    """The longest and the shortest n-gram of lookup:LONGEST and lookup:SHORTEST-LONGEST; 5 and 1 if
    there is none."""
    first, dash, last = (value or "5").partition("-")
    sizes = (last, first) if dash else (first, "1")
    if not all(size.isascii() and size.isdigit() for size in sizes):
        raise PacelineError(f"lookup:{value}: give a number of tokens, N, or two, as in 3-5")
    longest, shortest = map(int, sizes)
    if not 1 <= shortest <= longest <= 64:
        raise PacelineError(f"lookup:{value}: the n-gram must have 1 to 64 tokens")
    return longest, shortest


def _no_value(value: str) -> None:
    if value:
        raise PacelineError(f"draft 'none:{value}': none stands alone")


def _needs_name(value: str) -> None:
    if not value:
        raise PacelineError("draft model needs a name: model:NAME")


def _none(value: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    return lambda batch, length, target, pace=None: NoDraft()


def _lookup(value: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    return lambda batch, length, target, pace=None: Lookup(*lookup_sizes(value))


def _model(value: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    differs = target.tokenizer.same_tokens(models.tokenizer(value))
    if differs.first is not None:
        return make_translated(value, setting, target, models)
    if differs.message:
        models.note(f"{value} drafts for {target.name}: {differs.message}")
    draft = models(value)
    vocab = min(target.tokenizer.size, draft.tokenizer.size, target.model.vocab_size)
    branches = setting.shape.branches
    apart = branches > 1 and not isinstance(draft.model, Branching)  # a cache row for each
    if not apart:
        setting.shape.check(draft.model, value)

    def reads(batch: int, length: int) -> CachedModel:
        return CachedModel(draft.model, batch, length, vocab)

    size = setting.shape.size(target.model, vocab, lambda cached: reads(1, cached.length))

    def make(batch: int, length: int, target: CachedModel, pace: PaceFor | None = None) -> Drafter:
        if apart:
            return Branches(reads(batch * branches, length), branches, setting.temperature)
        own = reads(batch, length)
        return model_drafter(own, setting.shape, size(), setting.temperature, pace)

    return make


_GROW = {"model", "self", "head", "suffix"}  # what drafts trees
DRAFTERS: dict[str, Kind] = {
    "none": Kind(_no_value, _none),
    "lookup": Kind(lookup_sizes, _lookup),
    "model": Kind(_needs_name, _model),
    "suffix": Kind(suffix_draft.check, suffix_draft.make),
    "self": Kind(check_self, make_self),
    "head": Kind(check_head, make_head),
}
