"""The figures as files."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import records as made
from paceline import PacelineError
from paceline.bench import plots
from paceline.bench.recorded import load
from paceline.errors import MissingExtra
from paceline.page.canvas import palette

ROOT = Path(__file__).parent.parent.parent
SVG = "{http://www.w3.org/2000/svg}"
NAMES = {"speedup", "tau", "alpha", "rounds", "time", "cost", "length", "along", "rates", "peers"}


@pytest.fixture
def records(tmp_path):
    return made.write(tmp_path / "r.jsonl", made.whole(5))


def test_each_figure_is_a_file_that_stands_alone(tmp_path, records) -> None:
    files = plots.write(records, tmp_path / "a" / "b")
    assert {path.name for path in files} == {f"{name}.svg" for name in NAMES}
    known = {*palette().values(), "none"}
    for path in files:
        root = ElementTree.fromstring(path.read_text(encoding="utf-8"))
        assert root.tag == f"{SVG}svg"
        inks = {e.get(name) for e in root.iter() for name in ("fill", "stroke") if e.get(name)}
        assert inks <= known
        assert not [e for e in root.iter() if e.get("class")]
        ground = root.find(f"{SVG}rect")
        assert ground is not None
        assert (ground.get("width"), ground.get("fill")) == (root.get("width"), palette()["paper"])


def test_they_say_what_the_page_says(tmp_path, records) -> None:
    """The same words and numbers, in the same order."""
    plots.write(records, tmp_path)
    for name, canvas in plots.draw(load(records)).items():
        alone = ElementTree.fromstring((tmp_path / f"{name}.svg").read_text(encoding="utf-8"))
        within = ElementTree.fromstring(canvas.svg())
        assert [*alone.itertext()] == [*within.itertext()]


def test_a_sweep_brings_maps(tmp_path) -> None:
    records = made.write(tmp_path / "s.jsonl", made.sweep(prompts=2))
    names = {path.name for path in plots.write(records, tmp_path, prefix="x-")}
    assert {"x-sweep-1.svg", "x-speedup.svg"} <= names


def test_an_empty_bench_has_no_figures_but_its_card(tmp_path) -> None:
    records = made.write(tmp_path / "e.jsonl", [made.header()])
    assert [path.name for path in plots.write(records, tmp_path)] == ["cost.svg"]


def test_pngs_need_an_extra_and_nothing_is_written_without_it(
    tmp_path, records, monkeypatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=re.escape("pip install 'paceline[bench]'")):
        plots.write(records, tmp_path / "out", png=True)
    assert not (tmp_path / "out").exists()


def test_pngs_are_drawn_where_they_can_be(tmp_path, records) -> None:
    pytest.importorskip("matplotlib")
    files = plots.write(records, tmp_path, png=True)
    pngs = [path for path in files if path.suffix == ".png"]
    assert {path.stem for path in pngs} == NAMES
    for path in pngs:
        width = int.from_bytes(path.read_bytes()[16:20])
        assert width == pytest.approx((440 + 2 * 8) * 2.2, abs=1)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, records) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PacelineError, match=r"--plots .* cannot be written"):
        plots.write(records, tmp_path / "file" / "sub")


class TestReadme:
    @pytest.fixture
    def script(self, monkeypatch):
        monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks")])
        return import_module("readme_figures")

    def test_its_table_names_commit_and_machine(self, tmp_path, records, script) -> None:
        results, figures = tmp_path / "results", tmp_path / "figures"
        results.mkdir()
        records.rename(results / "qwen.jsonl")
        readme = tmp_path / "README.md"
        readme.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
        args = ["--results", str(results), "--figures", str(figures), "--readme", str(readme)]
        script.main(args)
        text = readme.read_text(encoding="utf-8")
        assert text.startswith("before\n<!-- bench -->\n`qwen2.5-coder-1.5b` (native), ")
        assert text.endswith("\n<!-- /bench -->\nafter\n")
        assert "on Intel Xeon Platinum 8481C, 2 threads; commit 0123abc4567def, 2026-11-30" in text
        assert "old" not in text
        assert len(re.findall(r"^\| (code|edit|all prompts) \|", text, re.MULTILINE)) == 3
        assert (figures / "qwen-speedup.svg").exists()
        script.main(args)
        assert readme.read_text(encoding="utf-8") == text

    def test_without_records_or_marks_it_says_so(self, tmp_path, records, script) -> None:
        with pytest.raises(PacelineError, match=r"no \*\.jsonl in"):
            script.main(["--results", str(tmp_path / "none")])
        readme = tmp_path / "README.md"
        readme.write_text("no marks")
        args = ["--results", str(tmp_path), "--figures", str(tmp_path), "--readme", str(readme)]
        with pytest.raises(PacelineError, match="needs <!-- bench -->"):
            script.main(args)
