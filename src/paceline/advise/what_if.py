"""A pair that nobody has downloaded yet: speedup against K, by closed forms (`core.theory`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.advise.roofline import PRESETS, Roofline, Size
from paceline.core.theory import expected_tokens, speedup
from paceline.errors import PacelineError

MOST = 64  # the largest K that is worked out
_HALVINGS = 60


@dataclass(frozen=True)
class Request:
    """What is planned. Raises PacelineError for a value that means nothing.

    `alpha`: α, the same at every position. `c`: one draft step over T(1); None: from the roofline.
    `k`: windows, "4" or "1:16". `gpu`: a name in `roofline.PRESETS`, which then gives r(n) for
    `target` (and c for `draft`) at so many rows in a `batch` with `context` tokens each; None:
    r(n) = 1. `overhead`: o, the rest of a round over T(1).
    """

    alpha: float
    c: float | None = None
    k: str = "1:16"
    gpu: str | None = None
    target: Size | None = None
    draft: Size | None = None
    context: int = 1024
    batch: int = 1
    overhead: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise PacelineError(f"--alpha must be from 0 to 1, not {self.alpha:g}")
        if self.c is not None and not 0 <= self.c < math.inf:
            raise PacelineError(f"--c must be at least 0 (a draft step over T(1)), not {self.c:g}")
        if not 0 <= self.overhead < math.inf:
            raise PacelineError(f"--overhead must be at least 0, not {self.overhead:g}")
        if self.batch < 1:
            raise PacelineError(f"--batch must be at least 1, not {self.batch}")
        if self.context < 0:
            raise PacelineError(f"--context must be at least 0, not {self.context}")
        if self.gpu is None:
            self._check_without_gpu()
        elif self.gpu not in PRESETS:
            raise PacelineError(
                f"--gpu {self.gpu} is not known: give one of {', '.join(PRESETS)}, or --c alone"
            )
        elif self.target is None:
            raise PacelineError(f"--gpu {self.gpu} needs the target's size: add --target, say 7B")
        elif self.c is None and self.draft is None:
            raise PacelineError("c is missing: add --draft-size, say 0.5B:4, or --c, say 0.05")
        parse_windows(self.k)

    def _check_without_gpu(self) -> None:
        if self.target is not None or self.draft is not None or self.batch > 1:
            raise PacelineError(
                "sizes and --batch count on a machine only: add --gpu, one of " + ", ".join(PRESETS)
            )
        if self.c is None:
            raise PacelineError(
                "c is missing: add --c, say 0.05, or --gpu, --target and --draft-size to have it "
                "from a roofline"
            )

    @property
    def roofline(self) -> Roofline | None:
        """The machine with both models; None without a `gpu`."""
        if self.gpu is None or self.target is None:
            return None
        return Roofline(PRESETS[self.gpu], self.target, self.draft, self.batch, self.context)


@dataclass(frozen=True)
class Costs:
    """What a round costs in units of T(1): `r[n - 1]` = r(n), c a draft step, o the rest."""

    c: float
    r: tuple[float, ...]
    overhead: float = 0.0

    def of(self, k: int) -> float:
        """r(K+1) + K c + o."""
        return self.r[k] + k * self.c + self.overhead

    def speedup(self, alpha: float, k: int) -> float:
        """Tokens a second over plain decoding."""
        return speedup(alpha, k, self.c, self.r[k], self.overhead)

    def best(self, alpha: float, windows: Sequence[int]) -> int:
        """The window with the largest speedup; the smallest one on a tie."""
        return max(windows, key=lambda k: (self.speedup(alpha, k), -k))

    @property
    def break_even(self) -> float:
        """The α from which K = 1 pays: 1 + α > r(2) + c + o. Above 1: it never does."""
        return self.of(1) - 1


@dataclass(frozen=True)
class Point:
    """One K: tokens a round, r(K+1), and the speedup over plain decoding."""

    k: int
    tokens: float
    r: float
    speedup: float


@dataclass(frozen=True)
class Curve:
    """Speedup against K, and what follows from it."""

    request: Request
    costs: Costs
    points: tuple[Point, ...]
    best: Point

    @property
    def pays(self) -> bool:
        """Whether the best K is faster than plain decoding."""
        return self.best.speedup > 1

    @property
    def bound(self) -> float:
        """1 / (1 - α): no K gives more at r(n) ≥ 1, not even with a draft that costs nothing."""
        alpha = self.request.alpha
        return math.inf if alpha == 1 else 1 / (1 - alpha)

    @property
    def sentence(self) -> str:
        """Which K to use, or that none pays, and why."""
        best, costs, even = self.best, self.costs, self.costs.break_even
        parts = [f"scoring {best.r:.2f}", f"drafting {best.k * costs.c:.2f}"]
        parts += [f"overhead {costs.overhead:.2f}"] if costs.overhead else []
        why = (
            f"a round of K={best.k} brings {best.tokens:.2f} tokens and takes "
            f"{costs.of(best.k):.2f} plain steps ({', '.join(parts)})"
        )
        first = f"K=1 pays above α {even:.2f}" if even < 1 else "K=1 pays at no α"
        if self.pays:
            return f"use K={best.k}, {best.speedup:.2f}x: {why}; {first}"
        all_k = parse_windows(self.request.k)[0] == 1
        no = "do not speculate" if all_k else f"not with K={self.request.k}"
        return f"{no}, at best {best.speedup:.2f}x: {why}; {first}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        roofline = self.request.roofline
        machine = None
        if roofline is not None:
            machine = {
                "gpu": roofline.gpu.name,
                "gpus": roofline.gpus,
                "memory_gb": roofline.memory / 1e9,
                "target": _size(roofline.target),
                "draft": _size(roofline.draft),
                "batch": roofline.batch,
                "context": roofline.context,
                "t1_ms": 1e3 * roofline.seconds(roofline.target, 1),
            }
        return {
            "alpha": self.request.alpha,
            "c": self.costs.c,
            "overhead": self.costs.overhead,
            "machine": machine,
            "curve": [_point(point) for point in self.points],
            "best": _point(self.best),
            "pays": self.pays,
            "break_even_alpha": self.costs.break_even,
            "bound": None if math.isinf(self.bound) else self.bound,
            "sentence": self.sentence,
        }


def parse_windows(text: str) -> range:
    """`4` or `1:16` as windows, 1 to 64. Raises PacelineError."""
    first, colon, last = text.partition(":")
    try:
        windows = range(int(first), int(last if colon else first) + 1)
    except ValueError:
        raise PacelineError(f"--k {text}: write one window (4) or a range (1:16)") from None
    if not windows or windows[0] < 1 or windows[-1] > MOST:
        raise PacelineError(f"--k {text}: give windows from 1 to {MOST}, the smaller one first")
    return windows


def costs_of(request: Request) -> Costs:
    """What rounds of the request's windows cost."""
    longest = max(2, parse_windows(request.k)[-1] + 1)
    roofline = request.roofline
    if roofline is None:
        r, c = (1.0,) * longest, request.c
    else:
        r = tuple(roofline.r(n) for n in range(1, longest + 1))
        c = roofline.c if request.c is None else request.c
    if c is None:
        raise ValueError("a request without c needs a draft")
    return Costs(float(c), r, request.overhead)


def work_out(request: Request) -> Curve:
    """Speedup for each K, E[tokens] / (r(K+1) + K c + o), and the best of them."""
    costs, windows = costs_of(request), parse_windows(request.k)
    points = {
        k: Point(k, expected_tokens(request.alpha, k), costs.r[k], costs.speedup(request.alpha, k))
        for k in windows
    }
    return Curve(request, costs, tuple(points.values()), points[costs.best(request.alpha, windows)])


def needed_alpha(gain: float, costs: Costs, windows: Sequence[int]) -> tuple[float, int] | None:
    """The smallest α with which one of the windows reaches this speedup, and that window; None
    where even α = 1 does not. By bisection: a speedup never falls as α grows."""

    def reaches(alpha: float) -> bool:
        return costs.speedup(alpha, costs.best(alpha, windows)) >= gain

    if not reaches(1.0):
        return None
    low, high = 0.0, 1.0
    if reaches(low):
        return low, costs.best(low, windows)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high, costs.best(high, windows)


def _point(point: Point) -> dict[str, Any]:
    return {"k": point.k, "tokens": point.tokens, "r": point.r, "speedup": point.speedup}


def _size(size: Size | None) -> dict[str, float] | None:
    return None if size is None else {"params_b": size.params, "bits": size.bits}
