"""`paceline advise --what-if` as it prints."""

from __future__ import annotations

import json

import pytest

from paceline.cli.advise_what_if import what_if
from paceline.errors import PacelineError


def bars(out: str) -> dict[int, str]:
    """The lines of the curve by K."""
    lines = [line.split() for line in out.splitlines() if "x  █" in line]
    return {int(cells[0]): " ".join(cells[1:]) for cells in lines}


def test_the_curve(capsys) -> None:
    what_if(alpha=0.8, c=0.05)
    out = capsys.readouterr().out
    curve = bars(out)
    assert list(curve) == list(range(1, 17))
    assert curve[8] == f"4.33 1.00 3.09x {'█' * 40} best"
    assert [k for k, line in curve.items() if "best" in line] == [8]
    assert curve[1] == "1.80 1.00 1.71x " + "█" * 22 + "▏"  # 40 · 1.714 / 3.092 = 22.2
    assert out.splitlines()[0] == "α 0.8, c 0.05, o 0, r(n) = 1"
    assert out.splitlines()[-1].startswith("use K=8, 3.09x: ")


def test_a_bar_of_40_is_no_gain_where_nothing_pays(capsys) -> None:
    what_if(alpha=0.0, c=1.0, k="1:3")
    out = capsys.readouterr().out
    assert bars(out)[1] == "1.00 1.00 0.50x " + "█" * 20 + " best"
    assert out.splitlines()[-1].startswith("do not speculate")


def test_a_machine_is_named_with_its_limits(capsys) -> None:
    what_if(alpha=0.8, gpu="h100", target="54B", draft_size="8B:4", k="4")
    out = capsys.readouterr().out
    assert "target 54B in 16 bits, draft 8B in 4 bits; batch 1, context 1024" in out
    assert "2 x h100, tensor parallel (one does not hold 112.4 GB)" in out
    assert bars(out)[4].startswith("3.36 1.00 2.92x")
    what_if(alpha=0.8, gpu="h200", target="54B", draft_size="8B:4", k="4")
    assert "h200, 112.4 GB taken" in capsys.readouterr().out


def test_json(capsys) -> None:
    what_if(alpha=0.8, c=0.05, k="1:4", as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert [round(point["speedup"], 2) for point in found["curve"]] == [1.71, 2.22, 2.57, 2.80]
    assert found["best"]["k"] == 4
    assert found["break_even_alpha"] == pytest.approx(0.05)


def test_bad_input_prints_nothing_but_the_fix(capsys) -> None:
    for bad, fix in (
        ({"alpha": None, "c": 0.1}, "--alpha"),
        ({"alpha": 0.5}, "add --c"),
        ({"alpha": 0.5, "gpu": "h100", "target": "7", "draft_size": "1B"}, "write 7B"),
        ({"alpha": 0.5, "gpu": "b200", "target": "7B", "draft_size": "1B"}, "give one of h100"),
    ):
        with pytest.raises(PacelineError, match=fix):
            what_if(**bad)
    assert capsys.readouterr().out == ""
