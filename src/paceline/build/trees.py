"""Drafts that are trees: what stands behind `--nodes` and `--branches`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from paceline.build.costs import MAX_TIMED, measure
from paceline.core.cached import SLACK, CachedModel
from paceline.core.protocols import Branching, Drafter, Model, Pace
from paceline.drafters.branches import Branches, Wide
from paceline.drafters.grow import TreeSize
from paceline.drafters.model import ModelDrafter
from paceline.drafters.sampling import MOST, Grows, Reads, growing
from paceline.errors import PacelineError

PaceFor = Callable[[float], Pace]
"""Gives the pace of a drafter that asks at each step, and would by itself end a draft at that
confidence; 0: never."""
MAX_BRANCHES = SLACK // 4


@dataclass(frozen=True)
class Shape:
    """The shape of a draft. `branches`: so many continuations of it, side by side. `nodes`: it
    grows where it is sure, to so many tokens, or ("auto") to as many as pay; None: it does not.

    Raises PacelineError for what is out of reach, and for both at once.
    """

    branches: int = 1
    nodes: int | Literal["auto"] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.branches <= MAX_BRANCHES:
            raise PacelineError(f"--branches must be from 1 to {MAX_BRANCHES}, not {self.branches}")
        if isinstance(self.nodes, int) and not 1 <= self.nodes <= MOST:
            raise PacelineError(f"--nodes must be auto, or from 1 to {MOST}, not {self.nodes}")
        if self.nodes is not None and self.branches > 1:
            raise PacelineError("--nodes and --branches are two ways to draft a tree: choose one")

    @classmethod
    def read(cls, branches: int, nodes: int | str | None) -> Shape:
        """From what the user typed. Raises PacelineError for what is no whole number."""
        if type(branches) is not int:
            raise PacelineError(f"--branches must be a whole number, not {branches!r}")
        if nodes is None or nodes == "auto":
            return cls(branches, nodes)  # type: ignore[arg-type]
        text = str(nodes)
        if isinstance(nodes, bool) or not (text.removeprefix("-").isdecimal() and text.isascii()):
            raise PacelineError(f"--nodes must be auto or a whole number, not {nodes!r}")
        return cls(branches, int(text))

    @property
    def is_tree(self) -> bool:
        """Whether it can be anything but a chain."""
        return self.branches > 1 or self.nodes is not None

    def tokens(self, k: int) -> int:
        """How many tokens a draft has at most whose paths have `k`."""
        if self.nodes is None:
            return min(MOST, self.branches * k)
        return MAX_TIMED if self.nodes == "auto" else self.nodes

    def check(self, model: Model, name: str) -> None:
        """Raise PacelineError if `model`, called `name`, cannot read such drafts."""
        if self.is_tree and not isinstance(model, Branching):
            raise PacelineError(
                f"{name} runs through transformers and reads no trees: "
                "leave out --nodes and --branches"
            )

    def size(
        self, model: Model, vocab: int, over: Callable[[CachedModel], Grows]
    ) -> Callable[[], TreeSize | None]:
        """How large a tree may grow, to be asked for each drafter that is made. Where that depends
        on costs they are measured once: of `model`, and of the draft that `over` builds for it."""
        if self.nodes is None:
            return lambda: None
        known: list[TreeSize] = []

        def size() -> TreeSize:
            if not known:
                nodes = measure(model, vocab, over) if self.nodes == "auto" else self.nodes
                known.append(TreeSize(nodes))  # type: ignore[arg-type]
            return known[0]

        return size


def model_drafter(
    reads: Reads,
    shape: Shape,
    size: TreeSize | None,
    temperature: float | None,
    pace: PaceFor | None,
) -> Drafter:
    """Drafts of a model that `reads`, in that shape and of that size; chains at a pace."""
    if shape.branches > 1:
        return Branches(Wide(growing(reads)), shape.branches, temperature)
    return ModelDrafter(reads, temperature, size, pace(0.0) if pace and size is None else None)
