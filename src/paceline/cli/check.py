"""`paceline check`."""

from __future__ import annotations

import json
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options as o
from paceline.cli.errors import Failed
from paceline.cli.terminal import say

if TYPE_CHECKING:
    from paceline.check.greedy import Greedy
    from paceline.check.run import Report


def check(
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="Your target; without one the verifier alone."),
    ] = None,
    draft: o.Draft = "auto",
    verify: o.Verify = "auto",
    lenience: o.Lenience = 1.0,
    self_test: Annotated[
        bool, typer.Option("--self-test", help="Break the verifier on purpose: is it seen?")
    ] = False,
    prompts: Annotated[int, typer.Option(help="Prompts that are answered.")] = 12,
    contexts: Annotated[int, typer.Option(help="Places in the answers to sample at.")] = 8,
    rounds: Annotated[int, typer.Option(help="Sampled rounds at each of them.")] = 4000,
    k: o.K = 6,
    seed: Annotated[int, typer.Option(help="Same seed, same draws.")] = 0,
    dtype: o.Dtype = "auto",
    device: o.Device = "auto",
    threads: o.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Prove that the output is the model's own: exit code 0 if it is, 1 if a law is broken."""
    from paceline.check.run import Request, check
    from paceline.models.progress import rich_progress

    request = Request(
        model=model,
        draft=draft,
        verify=verify,
        lenience=lenience,
        self_test=self_test,
        prompts=prompts,
        contexts=contexts,
        rounds=rounds,
        k=k,
        seed=seed,
        dtype=dtype,
        device=device,
        threads=threads,
    )
    with rich_progress(in_bytes=False) as (progress, note):
        report = check(request, progress, note)
    if as_json:
        print(json.dumps(report.to_dict(), ensure_ascii=False))
    else:
        _print(report)
    if not report.ok:
        lossy = "" if report.lossless else f"; {report.setting} is lossy"
        raise Failed(f"the output is not the model's own ({', '.join(report.broken)}){lossy}")


def _print(report: Report) -> None:
    print("exact: the law of three tokens on a tiny model, every outcome enumerated")
    for (verifier, draft), group in groupby(report.exact, lambda each: (each.verifier, each.draft)):
        cases = list(group)
        worst = max(cases, key=lambda each: each.error)
        what = f"{sum(each.outcomes for each in cases)} outcomes, off by {worst.error:.0e} at most"
        where = "" if worst.ok else f" ({worst.processor}, tokens {list(worst.worst)})"
        _line(f"{verifier}, {draft}", what + where, all(each.ok for each in cases))
    if report.greedy is not None:
        _print_greedy(report.greedy)
    if report.sampled:
        rounds = report.request.rounds
        print(f"sampled: {rounds} rounds a line through the verifier, against p")
    for each in report.sampled:
        fit = each.fit
        what = (
            f"χ² {fit.statistic:.0f} ({fit.freedom} free), p {fit.p_value:.2g}, "
            f"Holm {each.adjusted:.2g}, TV {fit.distance:.3f} (chance {fit.expected:.3f})"
        )
        label = f"{each.where}: {each.tokens} token{'s' * (each.tokens > 1)}, {each.form}"
        _line(label, what, each.ok)
    if report.sampled:
        open_ones = [each.detectable for each in report.sampled if each.fit.freedom]
        _print_detectable(max(open_ones, default=1.0))
    if report.power:
        print("power: verifiers broken on purpose")
    for each in report.power:
        caught = f"caught: {', '.join(each.caught_by)}" if each.caught_by else "passes"
        values = [f"{x:.0e}" for x in (each.one, each.two) if x is not None]
        what = f"{caught} (law off by {each.error:.0e}; p {' and '.join(values)})"
        _line(each.breakage, what, each.ok)
    if report.power:
        _print_detectable(max(each.detectable for each in report.power))
    if report.ok:
        say("all hold")


def _print_greedy(greedy: Greedy) -> None:
    print("greedy: drafted answers against plain ones")
    what = f"{greedy.tokens} tokens, {greedy.tau:.2f} a round"
    _line(f"{greedy.identical} of {greedy.prompts} answers identical", what, greedy.ok)
    for each in greedy.divergences:
        print(
            f"  {each.prompt[:30]!r}, token {each.at + 1}: plain {each.plain!r} "
            f"({each.plain_logit:.6g}), drafted {each.drafted!r} ({each.drafted_logit:.6g}), "
            f"{'a tie within rounding' if each.near_tie else 'no tie'}"
        )


def _print_detectable(distance: float) -> None:
    print(f"  sampling sees a bias of TV {distance:.3f} or more 9 times in 10, enumeration all")


def _line(label: str, what: str, ok: bool) -> None:
    print(f"  {'ok    ' if ok else 'BROKEN'} {label:<50} {what}")
