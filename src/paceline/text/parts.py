"""All that generating text takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Drafter, Model, Verifier
from paceline.errors import PacelineError, unknown
from paceline.text.tokenizer import Tokenizer


class MakesDrafter(Protocol):
    """Builds a drafter for that many rows of that many tokens, beside `target`."""

    def __call__(self, batch: int, length: int, target: CachedModel) -> Drafter: ...


@dataclass(frozen=True)
class Parts:
    """All that generating takes. `make_drafter` is called anew when more room is needed. `ended`
    hears what was generated, a list of ids a request, when a call is over. `prepare(batch)` is
    called before a loop of so many rows first runs. `coupled`: see `Sequences`. `k`: the largest
    window. `drafts` and `verifiers`: what a request may ask for by name; the first of the drafts
    is what it has if it does not; `lossy`: those of the verifiers that are."""

    model: Model
    tokenizer: Tokenizer
    make_drafter: MakesDrafter
    verifier: Verifier
    controller: Controller
    ended: Callable[[list[list[int]]], None] | None = None
    prepare: Callable[[int], None] | None = None
    coupled: bool = False
    k: int = 0
    drafts: Sequence[str] = ("none",)
    verifiers: Sequence[str] = ()
    lossy: Sequence[str] = ()

    def check(self, params: SamplingParams) -> None:
        """Raise PacelineError for a request that asks for what is not there."""
        if params.k is not None and params.k > self.k:
            raise PacelineError(f"k must be at most {self.k} here, not {params.k}")
        if params.draft is not None and params.draft not in self.drafts:
            raise unknown("draft", params.draft, self.drafts)
        if params.verify is not None and params.verify not in self.verifiers:
            if not self.verifiers:
                raise PacelineError("verify cannot be chosen by a request here")
            raise unknown("verifier", params.verify, self.verifiers)

    def lossless(self, params: SamplingParams) -> bool:
        """Whether the output of such a request is distributed as the target's own."""
        if params.verify is None:
            return self.verifier.lossless
        return params.verify not in self.lossy
