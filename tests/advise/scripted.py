"""A report with made-up figures."""

from __future__ import annotations

from paceline.advise.bottleneck import Bottleneck
from paceline.advise.costs import Passes
from paceline.advise.rows import Heat, Part, Row, Trial
from paceline.advise.run import Asked, Report
from paceline.advise.sentence import Advice, advise

PASSES = Passes(1, 64, {1: 0.040, 2: 0.044, 5: 0.060, 9: 0.100}, {1: 0.0, 2: 0.0, 5: 0.0, 9: 0.0})
FOUR = Passes(4, 32, {1: 0.050, 5: 0.150}, {1: 0.0, 5: 0.0})


def trial(measured: float, predicted: float) -> Trial:
    """Ten tokens that plain decoding says in a second."""
    return Trial(10, 1 / measured, 1.0, 1 / predicted, 1.0, True)


def row(
    draft: str,
    code: float,
    chat: float,
    error: float = 0.0,
    memory: int | None = 0,
    curve: dict[int, float] | None = None,
    resolved: str | None = None,
    batch: float | None = None,
) -> Row:
    """A drafter with these predicted speedups, all off by `error`; all text together has the mean
    of both unless `curve` says otherwise."""
    mean = (code + chat) / 2
    curve = curve or {1: mean * 0.9, 4: mean, 8: mean * 0.8}
    best = max(curve, key=lambda k: curve[k])
    kinds = {
        name: Part(2.0, value, trial(value / (1 + error), value))
        for name, value in (("code", code), ("chat", chat))
    }
    return Row(
        draft,
        resolved or draft,
        memory=memory,
        c=0.05,
        k=best,
        alpha=0.5,
        alpha_at=(0.5, 0.25, 1.0),
        tested_at=(40, 20, 2),
        tau=2.0,
        curve=curve,
        kinds=kinds,
        lengths={"to_100": Part(2.0, mean), "beyond_100": Part(1.5, mean * 0.8)},
        heat=Heat(0.7, 0.6, 0.5, mean * 0.9),
        batches={} if batch is None else {4: (1, batch)},
    )


def none() -> Row:
    """Plain decoding."""
    return Row("none", "none", memory=0)


def choose(*rows: Row) -> Advice:
    """The advice on these rows."""
    return advise([none(), *rows], PASSES, "my-model", ["--dtype", "int8"])


def report(*rows: Row, model: str = "my-model", passes: tuple[Passes, ...] = (PASSES,)) -> Report:
    """Everything around these rows."""
    bound = Bottleneck(
        100, 0.030, 0.002, 0.006, 0.001, 0.001, 1_000_000_000, 6_000_000, 40e9, "a sum of 256 MiB"
    )
    advice = choose(*rows)
    asked = [Asked("code", 60, 128), Asked("chat", 50, 110)]
    everyone = [none(), *rows]
    return Report(model, "int8", "cpu", 2, bound, 0.002, passes, asked, 3, everyone, advice, 61.5)
