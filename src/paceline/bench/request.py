"""What a bench is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.bench import sweep
from paceline.bench.suites import BUILTIN, Prompt, fingerprint, suite
from paceline.build import check_threads, check_window
from paceline.build.drafts import Spec
from paceline.build.verify import make_verifier
from paceline.build.windows import ADAPTIVE, make_window
from paceline.core.params import SamplingParams
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT

_TOKENS, _QUICK_TOKENS = 256, 96
_REPEATS, _QUICK_REPEATS = 3, 1


@dataclass(frozen=True)
class Request:
    """A bench. `sources`: see `suite`; `sweep`: see `sweep.parse`; `alpha`: what the card's τ is
    predicted from; `max_tokens` and `repeats`: None: 256 and 3, in a `quick` one 96 and 1. Raises
    PacelineError for a value that means nothing."""

    sources: Sequence[str] = (BUILTIN,)
    model: str = DEFAULT
    draft: str = "auto"
    k: int = 8
    window: str = ADAPTIVE
    verify: str = "auto"
    temperature: float = 0.0
    max_tokens: int | None = None
    repeats: int | None = None
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    quick: bool = False
    limit: int | None = None
    categories: Sequence[str] = ()
    sweep: Sequence[str] = ()
    peers: Sequence[str] = ()
    alpha: float | None = None

    def __post_init__(self) -> None:
        check_window(self.k)
        if self.draft != "auto":
            Spec(self.draft)
        make_window(self.window, self.k)
        make_verifier(self.verify)
        if self.repeats is not None and self.repeats < 1:
            raise PacelineError(f"--repeats must be at least 1, not {self.repeats}")
        if self.alpha is not None and not 0 <= self.alpha <= 1:
            raise PacelineError(f"--alpha is a chance, from 0 to 1, not {self.alpha:g}")
        if self.peers and (self.temperature or self.sweep):
            raise PacelineError("--peers compares greedy answers: leave out --temperature, --sweep")
        if self.threads is not None:
            check_threads(self.threads)
        self.params({})

    @property
    def tokens(self) -> int:
        """Of an answer at most."""
        default = _QUICK_TOKENS if self.quick else _TOKENS
        return default if self.max_tokens is None else self.max_tokens

    @property
    def times(self) -> int:
        """How often each side answers a prompt."""
        default = _QUICK_REPEATS if self.quick else _REPEATS
        return default if self.repeats is None else self.repeats

    def check(self) -> None:
        """Raise PacelineError for prompts and grids that mean nothing, where there are no
        prompts, and for peers that are not installed."""
        if not self.prompts or not self.cells:
            raise PacelineError("there are no prompts to measure")
        if self.peers:
            from paceline.bench.peers import installed

            installed(self.peers)

    @property
    def prompts(self) -> list[Prompt]:
        """Read anew each time."""
        return suite(self.sources, quick=self.quick, limit=self.limit, categories=self.categories)

    @property
    def cells(self) -> list[sweep.Cell]:
        """What is measured for each prompt."""
        return sweep.parse(self.sweep)

    def params(self, cell: sweep.Cell) -> SamplingParams:
        """Of the answers in a cell."""
        temperature = cell.get("temperature", self.temperature)
        return SamplingParams(max_tokens=self.tokens, temperature=temperature)

    def asked(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        """All that the figures depend on, for JSON."""
        return {
            "model": self.model,
            "draft": self.draft,
            "k": self.k,
            "window": self.window,
            "verify": self.verify,
            "temperature": self.temperature,
            "max_tokens": self.tokens,
            "repeats": self.times,
            "dtype": self.dtype,
            "device": self.device,
            "peers": list(self.peers),
            "sweep": [dict(cell) for cell in self.cells],
            "prompts": fingerprint(prompts),
        }
