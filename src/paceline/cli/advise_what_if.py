"""`paceline advise --what-if`: a plain table with bars, or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from paceline.errors import PacelineError

if TYPE_CHECKING:
    from paceline.advise.what_if import Curve

_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


def what_if(
    *,
    alpha: float | None,
    c: float | None = None,
    k: str = "1:16",
    gpu: str | None = None,
    target: str | None = None,
    draft_size: str | None = None,
    context: int = 1024,
    batch: int = 1,
    overhead: float = 0.0,
    as_json: bool = False,
) -> None:
    """Print the speedup against K of a planned pair; no model is loaded.

    `alpha`: α, 0 to 1. `c`: a draft step over T(1); None: from `gpu`, `target` and `draft_size`.
    `k`: "4" or "1:16". `gpu`: h100, h200, a100, rtx4090 or cpu; None: r(n) = 1. `target`,
    `draft_size`: "7B", or "7B:4" for 4 bits a weight. `context`: tokens behind each of `batch`
    rows. `overhead`: o, the rest of a round over T(1). `as_json`: one JSON object instead.
    Raises PacelineError for bad input, before anything is printed.
    """
    from paceline.advise.roofline import parse_size
    from paceline.advise.what_if import Request, work_out

    if alpha is None:
        raise PacelineError("--what-if needs the chance that a drafted token is accepted: --alpha")
    curve = work_out(
        Request(
            alpha=alpha,
            c=c,
            k=k,
            gpu=gpu,
            target=parse_size(target) if target is not None else None,
            draft=parse_size(draft_size) if draft_size is not None else None,
            context=context,
            batch=batch,
            overhead=overhead,
        )
    )
    if as_json:
        print(json.dumps(curve.to_dict(), ensure_ascii=False))
    else:
        print("\n".join(_lines(curve)))


def _lines(curve: Curve) -> list[str]:
    request, roofline = curve.request, curve.request.roofline
    head = f"α {request.alpha:g}, c {curve.costs.c:.3g}, o {request.overhead:g}"
    lines = [head if roofline else f"{head}, r(n) = 1"]
    if roofline is not None:
        pair = f"target {roofline.target}"
        pair += f", draft {roofline.draft}" if roofline.draft else ""
        lines.append(f"{pair}; batch {roofline.batch}, context {roofline.context}")
        memory = f"{roofline.memory / 1e9:.1f} GB"
        machine = f"{roofline.gpu.name}, {memory} taken"
        if roofline.gpus > 1:
            one = f"one does not hold {memory}"
            machine = f"{roofline.gpus} x {roofline.gpu.name}, tensor parallel ({one})"
        t1 = 1e3 * roofline.seconds(roofline.target, 1)
        lines.append(f"{machine}; T(1) at least {t1:.3g} ms by the roofline")
    lines += ["", "  K  tokens  r(K+1)  speedup"]
    longest = max(1.0, curve.best.speedup)
    for point in curve.points:
        mark = " best" if point is curve.best and len(curve.points) > 1 else ""
        lines.append(
            f"{point.k:>3}  {point.tokens:6.2f}  {point.r:6.2f}  {point.speedup:6.2f}x  "
            f"{_bar(point.speedup / longest)}{mark}"
        )
    return [*lines, "", curve.sentence]


def _bar(share: float) -> str:
    full, eighths = divmod(round(share * _WIDTH * 8), 8)
    return "█" * full + _EIGHTHS[eighths].strip()
