"""The page and the JSON of made-up figures."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from advise.scripted import FOUR, PASSES, report, row
from paceline.advise import tables
from paceline.advise.report import page, write
from paceline.advise.rows import Row
from paceline.errors import PacelineError
from paceline.page.plot import Line, plot
from paceline.page.scale import ticks

NASTY = "head:<b>\"&'"


def text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.fixture
def whole() -> ElementTree.Element:
    failed = Row("model:gone", "model:gone", error="no such model: <gone>")
    made = report(
        row(NASTY, 1.8, 1.4, batch=1.1),
        row("lookup:5", 1.2, 0.9, batch=0.8),
        failed,
        model="a<b>&c",
        passes=(PASSES, FOUR),
    )
    return ElementTree.fromstring(page(made))


def test_it_is_well_formed_and_names_every_drafter_as_it_is(whole: ElementTree.Element) -> None:
    assert text(next(whole.iter("h1"))) == "Advice for a<b>&c"
    said = text(whole)
    for word in (NASTY, "lookup:5", "none", "model:gone: no such model: <gone>", "4 rows"):
        assert word in said
    assert not list(whole.iter("b"))


def test_it_needs_nothing_from_elsewhere(whole: ElementTree.Element) -> None:
    assert not {"script", "link", "img", "iframe"} & {element.tag for element in whole.iter()}
    [style] = whole.iter("style")
    assert "url(" not in (style.text or "")
    assert not [e for e in whole.iter() if "href" in e.attrib or "src" in e.attrib]


def test_its_tables_hold_the_figures(whole: ElementTree.Element) -> None:
    rows = {
        text(cells[0]): [text(cell) for cell in cells[1:]]
        for cells in (list(tr) for tr in whole.iter("tr"))
        if len(cells) == 9
    }
    assert rows["lookup:5"] == [
        "1.05x", "1.20x +0%", "0.90x +0%", "4", "2.00", "0.50", "0.050", "0.00 GB",
    ]  # fmt: skip
    assert rows["none"][0] == "1.00x"


def test_its_plots_hold_the_points(whole: ElementTree.Element) -> None:
    """r(n) and its roofline for one row and for four; speedups of two drafters and plain decoding;
    α where enough tokens were tested."""
    plots = [svg for svg in whole.iter("svg") if svg.find("title") is not None]
    assert [text(svg.find("title")) for svg in plots] == [  # type: ignore[arg-type]
        "r(n)", "Speedup against K", "α by position",
    ]  # fmt: skip
    points = [[text(dot) for dot in svg.iter("circle")] for svg in plots]
    assert points[0][:2] == [
        "1 row, tokens in a pass, n 1: 1.00", "1 row, tokens in a pass, n 2: 1.10",
    ]  # fmt: skip
    assert f"{NASTY}, K 4: 1.60x" in points[1]
    assert points[2][:2] == [
        f"{NASTY}, position in the draft 1: 0.50", f"{NASTY}, position in the draft 2: 0.25",
    ]  # fmt: skip
    assert len(points[2]) == 4  # the third position was tested twice: that proves nothing
    assert [len(list(svg.iter("polyline"))) for svg in plots] == [4, 3, 2]


def test_a_page_without_drafters_is_whole() -> None:
    made = report(Row("head:h", "head:h", error="no such head"))
    titles = [text(h2) for h2 in ElementTree.fromstring(page(made)).iter("h2")]
    assert titles == [
        "Where the time goes", "What scoring several tokens costs", "Drafters",
        "How it was measured",
    ]  # fmt: skip


def test_it_is_written_or_refused(tmp_path) -> None:
    made = report(row("lookup:5", 1.2, 0.9))
    write(made, str(tmp_path / "a.html"))
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page(made)
    with pytest.raises(PacelineError, match="cannot be written"):
        write(made, str(tmp_path / "no" / "a.html"))


def test_the_json_is_what_it_says() -> None:
    failed = Row("model:gone", "model:gone", error="no such model")
    made = report(row("lookup:5", 1.2, 0.9, error=0.25, batch=0.8), failed, passes=(PASSES, FOUR))
    found = json.loads(json.dumps(made.to_dict()))
    assert set(found) == {
        "model", "dtype", "device", "threads", "bottleneck", "passes", "prompts", "prompts_given",
        "drafters", "advice", "seconds",
    }  # fmt: skip
    assert found["bottleneck"]["token_ms"] == pytest.approx(40.0)
    assert found["bottleneck"]["parts_ms"]["head"] == pytest.approx(6.0)
    assert found["bottleneck"]["mbu"] == pytest.approx(1.006e9 / 0.040 / 40e9)
    one, four = found["passes"]
    assert (one["batch"], one["r"]["9"], one["verdict"]) == (1, 2.5, "memory-bound")
    assert four["batch"] == 4
    assert four["r"]["5"] == pytest.approx(3.0)
    assert found["prompts"][1] == {"kind": "chat", "prompt": 50, "answer": 110}
    plain, lookup, gone = found["drafters"]
    assert (plain["draft"], plain["expected"], plain["k"]) == ("none", 1.0, 0)
    assert gone == {
        "draft": "model:gone", "resolved": "model:gone", "error": "no such model", "notes": [],
    }  # fmt: skip
    assert set(lookup) == {
        "draft", "resolved", "error", "notes", "memory_bytes", "c", "k", "alpha", "alpha_at",
        "tested_at", "tau", "curve", "predicted", "trial", "expected", "kinds", "lengths",
        "temperature", "batches",
    }  # fmt: skip
    assert lookup["curve"] == pytest.approx({"1": 0.945, "4": 1.05, "8": 0.84})
    assert lookup["kinds"]["code"]["predicted"] == 1.2
    assert lookup["kinds"]["code"]["trial"]["measured"] == pytest.approx(0.96)
    assert lookup["kinds"]["code"]["trial"]["error"] == pytest.approx(0.25)
    assert lookup["trial"]["tokens"] == 20
    assert lookup["batches"]["4"]["k"] == 1
    assert found["advice"]["draft"] == "none"


def test_a_busy_machine_is_told_from_a_quiet_one() -> None:
    assert tables.busy(report(row("lookup:5", 1.2, 0.9, error=0.05))) is None
    said = tables.busy(report(row("lookup:5", 1.2, 0.9, error=0.25)))
    assert said is not None
    assert "up to 25%" in said


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1, 5) == [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    assert ticks(0.61, 1.52, 4) == [0.75, 1.0, 1.25, 1.5]
    assert ticks(1, 8, 8, whole=True) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert ticks(1, 3, 8, whole=True) == [1, 2, 3]
    assert ticks(2, 2, 5) == [2]


def test_a_single_point_can_be_plotted() -> None:
    drawn = plot("one", [Line("a", [(4.0, 1.0)], 0)], "K", "speedup")
    numbers = [float(n) for n in re.findall(r'(?:cx|cy|x1|y1|x|y)="([-\d.]+)"', drawn)]
    assert all(-10 <= n <= 460 for n in numbers)
