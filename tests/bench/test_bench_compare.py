"""Two benches side by side, on numbers that are known."""

from __future__ import annotations

import json
import math

import pytest

from paceline.bench.compare import compare
from paceline.errors import PacelineError


def side(rate: float) -> dict[str, object]:
    return {"tokens": 10, "tokens_per_second": rate, "seconds": [1.0], "rounds": 5}


def write(path, rates, commit="c", cpu="x", cell=None) -> str:
    """`rates`: by (category, prompt), plain and speculative."""
    lines = [{"kind": "run", "run": "r", "commit": commit, "hardware": {"cpu": cpu, "cores": 2}}]
    lines += [
        {
            "kind": "prompt", "run": "r", "prompt": prompt, "category": category,
            "cell": cell or {}, "plain": side(plain), "speculative": side(drafted), "error": None,
        }
        for (category, prompt), (plain, drafted) in rates.items()
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_paired_ratios_and_their_interval(tmp_path):
    names = [("code", f"p{i}") for i in range(8)] + [("chat", "q")]
    gains = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 0.5]
    a = write(tmp_path / "a", dict.fromkeys(names, (10, 20)))
    # a machine that is twice as fast: tokens/s show it, speedups do not
    b = write(tmp_path / "b", {n: (20, 40 * g) for n, g in zip(names, gains, strict=True)})
    found = compare(a, b)
    mean = math.prod(gains[:8]) ** (1 / 8)
    assert found.speedups["code"].value == pytest.approx(mean)
    assert found.speed["code"].value == pytest.approx(2 * mean)
    assert found.speedups["chat"].value == pytest.approx(0.5)
    assert found.speedups["chat"].low is None  # one prompt tells nothing about others
    assert found.speedups["all"].n == 9
    # the interval of a mean of logs: about 1.96 standard errors to either side
    logs = [math.log(gain) for gain in gains[:8]]
    middle = sum(logs) / 8
    error = math.sqrt(sum((x - middle) ** 2 for x in logs)) / 8
    low, high = found.speedups["code"].low, found.speedups["code"].high
    assert low == pytest.approx(mean * math.exp(-1.96 * error), rel=0.03)
    assert high == pytest.approx(mean * math.exp(1.96 * error), rel=0.03)
    assert compare(a, b) == found  # always drawn alike
    back = compare(b, a)
    assert back.speedups["all"].value == pytest.approx(1 / found.speedups["all"].value)


def test_the_same_bench_twice_is_one_with_no_doubt(tmp_path):
    a = write(tmp_path / "a", {("code", str(i)): (10, 10 + i) for i in range(5)})
    same = compare(a, a)
    assert (same.speed["all"].low, same.speed["all"].high) == pytest.approx((1, 1))
    assert same.notes == []
    assert same.alone == 0


def test_what_differs_beside_is_said_and_what_has_no_partner_does_not_count(tmp_path):
    a = write(tmp_path / "a", {("code", "1"): (10, 20), ("code", "2"): (10, 20)})
    b = write(tmp_path / "b", {("code", "1"): (10, 30), ("x", "3"): (1, 1)}, "d", "y")
    found = compare(a, b)
    assert found.alone == 2
    assert found.speed["all"].n == 1
    assert found.notes == ["the hardware differs: cpu x, then y", "commit differs: c, then d"]
    swept = write(tmp_path / "c", {("code", "1"): (10, 30)}, cell={"k": 4})
    with pytest.raises(PacelineError, match="no prompt in common"):
        compare(a, swept)
    with pytest.raises(PacelineError, match="does not exist"):
        compare(a, tmp_path / "nowhere")
