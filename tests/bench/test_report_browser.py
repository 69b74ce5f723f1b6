"""The page in a real browser: drawn, readable, and silent."""

from __future__ import annotations

import pytest

from bench import records as made
from paceline.bench import report

# The contrast of every text with the ground behind it, by WCAG's formula; the least of them, and
# where. Grounds are those of HTML: no text of a figure but a heat map's lies on anything else.
CONTRAST = """
() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
  };
  let least = [99, ""];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || element.tagName === "title") continue;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [light(ink), light(ground(element))].sort((a, b) => b - a);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < least[0]) least = [contrast, walk.currentNode.data];
  }
  return least;
}
"""
SIZES = """
() => [...document.querySelectorAll("svg text, p, td, th, dd, dt, summary, figcaption")]
  .filter((each) => each.getClientRects().length)
  .map((each) => {
    const svg = each.closest("svg");
    const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
    return parseFloat(getComputedStyle(each).fontSize) * scale;
  })
"""
OUTSIDE = """
() => [...document.querySelectorAll("svg text")].filter((each) => {
  const box = each.getBoundingClientRect(), whole = each.closest("svg").getBoundingClientRect();
  return box.left < whole.left - 1 || box.right > whole.right + 1 || box.bottom > whole.bottom + 1;
}).map((each) => each.textContent)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    lines = made.whole(6) + made.sweep()[1:]
    run = lines[0]["run"]
    records = made.write(folder / "records.jsonl", [line | {"run": run} for line in lines])
    report.write(records, folder / "page.html")
    return (folder / "page.html").as_uri()


@pytest.fixture
def visit(browser, address):
    """Open it at a width; nothing may be said in the console, and nothing else be asked for."""
    contexts, wrong = [], []

    def open_page(width, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda asked: asked.url == address or wrong.append(asked.url))
        page.goto(address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


def test_every_figure_is_drawn(visit) -> None:
    page = visit(1200)
    titles = page.locator("figure svg > title").all_text_contents()
    assert {
        "Speedup by category", "τ by category", "α by position in the draft", "K over time",
        "Where the time goes", "r(n): what scoring n tokens costs", "Speedup along an answer",
        "Speedup against output length", "Tokens/s against output length",
        "Speedup by K and draft", "Against other engines",
    } == set(titles)  # fmt: skip
    for svg in page.locator("figure svg").all():
        box = svg.bounding_box()
        assert box is not None
        assert min(box["width"], box["height"]) > 100
        shapes = svg.locator("circle, rect, polyline, line")
        drawn = [each for each in shapes.all()[:40] if (b := each.bounding_box()) and b["x"] > 0]
        assert len(drawn) > 5


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_sticks_out(visit, width) -> None:
    page = visit(width)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(OUTSIDE) == []


def test_it_can_be_read_on_a_phone(visit) -> None:
    assert min(visit(360).evaluate(SIZES)) > 10


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit, scheme) -> None:
    page = visit(1200, scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    contrast, where = page.evaluate(CONTRAST)
    assert contrast >= 4.5, where


def test_print_is_dark_on_white_and_its_tables_stay_tables(visit) -> None:
    page = visit(680, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CONTRAST)[0] >= 4.5
    assert page.evaluate("document.documentElement.scrollWidth") == 680
    assert page.locator("thead").first.is_visible()
