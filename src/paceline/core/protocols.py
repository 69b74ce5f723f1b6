"""What the loop asks of its parts. An implementation is one file and knows none of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from paceline.core.types import Draft, Output, Round, Verdict

if TYPE_CHECKING:
    from paceline.core.noise import Noise
    from paceline.core.sequences import Sequences
    from paceline.core.target import Target


class Model(Protocol):
    """A causal language model over static, right-padded caches.

    `vocab_size`: width of the logits. `context`: the longest sequence it was made for, in tokens.
    One that is `Branching` reads trees too.
    """

    vocab_size: int
    context: int
    device: torch.device

    def new_cache(self, batch: int, length: int) -> Any:
        """Room for `batch` rows of `length` positions; the contents mean nothing yet."""
        ...

    def forward(
        self, tokens: Tensor, at: Sequence[int], cache: Any, *, row: int = 0, logits: bool = True
    ) -> Output:
        """Read `tokens` [B, T] int64 into rows `row`..`row`+B-1 of the cache, row b from position
        `at[b]` on, and score them.

        Position j of row b attends to cache positions 0..at[b]+j and to nothing else, so entries
        behind the last one read are never seen and may be overwritten at any time: rolling back is
        no operation. Needs at[b] + T <= the cache's length. `logits=False` skips the output layer.
        """
        ...


@runtime_checkable
class Ragged(Protocol):
    """A `Model` that reads rows of different lengths, wherever they lie in the cache, without
    padding: its `forward`, and its `best` if it has one, take two further keywords. `rows[b]`: row
    of the cache that row b of the tokens is read into, each another (None: `row` and those behind
    it). `counts[b]`: only so many of its tokens are read, 0 allowed (None: all); what comes out
    for the others is undefined."""

    ragged: bool


@runtime_checkable
class Copies(Protocol):
    """A `Model` whose cache entries can be copied from row to row."""

    def copy(self, cache: Any, source: int, row: int, count: int) -> None:
        """Make the first `count` entries of `row` those of `source`."""
        ...


@runtime_checkable
class Ranks(Protocol):
    """A `Model` that can also tell the likeliest tokens without writing the logits down."""

    def best(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Any,
        *,
        row: int = 0,
        limit: int | None = None,
    ) -> Output:
        """Like `forward`, but `Output.top` instead of the logits: their argmax among the first
        `limit` ids (None: all), the lowest id on a tie; -1 where one of those is NaN or the largest
        is infinite."""
        ...


@runtime_checkable
class Tapped(Protocol):
    """A `Model` whose states in between can be had: what a trained head reads."""

    def tapped(self, layers: Sequence[int]) -> Model:
        """The same model, on the same weights and caches, whose `Output.hidden` [B, T, n * D]
        holds side by side the states that enter these layers (ascending; the number of layers
        itself: the state that leaves the last, before the final norm)."""
        ...


@runtime_checkable
class Branching(Protocol):
    """A `Model` that reads trees: its `forward`, and its `best` if it has one, take a further
    keyword, `parents` [B, M] int64 on the CPU, M >= T.

    The pass then reads the last T of M nodes. Node j of row b follows node `parents[b, j]` < j (-1:
    what is committed); its cache entry is at base + j and its position is base + the number of its
    ancestors, where base = at[b] - (M - T). It attends to cache positions 0..base-1, to its
    ancestors' entries and to its own, so siblings do not see each other. On a CPU it comes out, to
    the bit, as if its ancestors had been committed and it had been read alone behind them.
    """

    def forward(
        self,
        tokens: Tensor,
        at: Sequence[int],
        cache: Any,
        *,
        row: int = 0,
        logits: bool = True,
        parents: Tensor | None = None,
    ) -> Output:
        """See `Model.forward`; `parents` None: a chain."""
        ...

    def move(self, cache: Any, row: int, source: Sequence[int], start: int) -> None:
        """Make the cache entries `source` of `row` those of positions `start`, `start` + 1, …; each
        source is at or behind the place that it goes to."""
        ...


class Matcher(Protocol):
    """A grammar beside the output of one request: a cache over its tokens, and never told of what
    was rejected."""

    def allowed(
        self, output: Sequence[int], draft: Sequence[int], parents: Sequence[int]
    ) -> Tensor:
        """Which ids may follow `output`, and which each drafted token: [len(draft) + 1, V'] bool on
        the CPU. Token t follows token `parents[t]` < t (-1: the output). Behind what the grammar
        does not allow everything is: its p is 0, so nothing there is ever reached."""
        ...

    def complete(self, output: Sequence[int]) -> bool:
        """Whether `output` matches, nothing may follow it, and there is no end token to say so:
        the request then ends as it is."""
        ...


class Grammar(Protocol):
    """What an output must match."""

    def start(self) -> Matcher:
        """For one request, which has put out nothing yet."""
        ...


class Drafter(Protocol):
    """Proposes tokens. Sees committed tokens and is told nothing else: no reset, no rollback."""

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """At most `k[b]` tokens for each running row b and none for the others."""
        ...


@runtime_checkable
class Syncs(Protocol):
    """A `Drafter`, or what one reads with, that can read what is committed a part at a time."""

    def sync(self, seqs: Sequences, budget: int | None = None) -> int:
        """See `CachedModel.sync`."""
        ...


class Verifier(Protocol):
    """A pure function: no model, cache, clock or random state. `lossless`: the output follows p."""

    lossless: bool

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """Accept a prefix of each row's draft, then add one token of the target."""
        ...


@runtime_checkable
class NeedsLogits(Protocol):
    """A `Verifier` that says whether it needs more of greedy rows than their likeliest tokens:
    their logits."""

    needs_logits: bool


class Controller(Protocol):
    """Chooses the window."""

    def window(self, seqs: Sequences) -> Sequence[int]:
        """How many tokens to draft this round, row by row; 0 is plain decoding."""
        ...

    def observe(self, round: Round) -> None:
        """Learn from what happened."""
        ...


class Pace(Protocol):
    """What a controller tells one drafter while a draft is made. All rows of a round are asked for
    at once, as the target reads them in one pass. Asked between `Controller.window` and
    `Controller.observe`."""

    def limits(self, k: Sequence[int]) -> Sequence[int]:
        """How many tokens at most the drafter may propose for each row, of `k[b]`; 0: it is not to
        be asked."""
        ...

    def measure(self, logits: Tensor) -> Tensor:
        """How sure the drafter is where its logits are `logits` [B, V']: one number [B] each."""
        ...

    def further(
        self, rows: Sequence[int], drafted: int, sure: Sequence[Sequence[float]]
    ) -> Sequence[int]:
        """Those of `rows` whose drafts, of `drafted` tokens so far, go on. `sure[b]`: the measure
        for each of these tokens; where it holds one more, for the token that would be drawn next.
        So it is asked twice a token: before the drafter computes, and before it draws. A token
        that has been drawn stays: to drop it would change the law of what is drafted."""
        ...

    def lengths(
        self, rows: Sequence[int], sure: Sequence[Sequence[float]], lengths: Sequence[int]
    ) -> Sequence[int]:
        """How many tokens [B] to keep of the drafts of `rows`, which are `lengths` long; of drafts
        that were not drawn."""
        ...


@runtime_checkable
class Paces(Protocol):
    """A `Controller` that has a say while drafts are made."""

    def pace(self, index: int, confidence: float | None = None, draft: str | None = None) -> Pace:
        """What it tells the drafter of that number (from 0, in the order in which they are asked).
        `confidence`: given for one that asks at each step whether to go `further`; where it would
        end a draft by itself, 0: nowhere. `draft`: it drafts for the requests that name that; None:
        for those that name no other."""
        ...
