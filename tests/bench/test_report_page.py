"""The page and its figures: made-up records, every number worked out another way."""

from __future__ import annotations

import json
import math
import random
import re
from statistics import geometric_mean, median
from xml.etree import ElementTree

import pytest

from bench import records as made
from paceline.bench import report
from paceline.bench.estimates import ratio
from paceline.errors import PacelineError

HOSTILE = "</script></style><script>alert(1)</script>&\"'<b>\x00\x1b\ud800]]>"


def text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def opened(tmp_path, lines) -> ElementTree.Element:
    """The page of these records, read as XML."""
    page = tmp_path / "page.html"
    report.write(made.write(tmp_path / "records.jsonl", lines), page)
    return ElementTree.fromstring(page.read_text(encoding="utf-8"))


def figure(page: ElementTree.Element, title: str) -> ElementTree.Element:
    return next(svg for svg in page.iter("svg") if text(svg.find("title")) == title)  # type: ignore[arg-type]


def told(svg: ElementTree.Element) -> list[str]:
    """What its shapes say to whoever points at them."""
    return [text(title) for shape in svg for title in shape.iter("title") if shape.tag != "title"]


def rows(page: ElementTree.Element, *columns: str) -> list[list[str]]:
    """The body of the table with these columns first."""
    for table in page.iter("table"):
        head = [text(cell) for cell in table.iter("th")]
        if tuple(head[: len(columns)]) == columns:
            return [[text(cell) for cell in row.iter("td")] for row in table.iter("tr")][1:]
    raise AssertionError(f"no table with {columns}")


@pytest.fixture(scope="module")
def lines():
    return made.whole()


@pytest.fixture(scope="module")
def page(tmp_path_factory, lines):
    return opened(tmp_path_factory.mktemp("whole"), lines)


def measured(lines, category=None):
    return [
        line
        for line in lines
        if line["kind"] == "prompt" and line["plain"] and category in (None, line["category"])
    ]


def gain(line) -> float:
    return line["speculative"]["tokens_per_second"] / line["plain"]["tokens_per_second"]


def test_speedups_are_geometric_means_over_prompts(page, lines) -> None:
    found = {row[0]: row for row in rows(page, "category", "n", "plain, tokens/s")}
    assert list(found) == [*made.CATEGORIES, "all prompts"]
    for name, row in found.items():
        those = measured(lines, None if name == "all prompts" else name)
        mean = geometric_mean(gain(line) for line in those)
        assert row[1] == str(len(those))
        plain = median(line["plain"]["tokens_per_second"] for line in those)
        assert row[2] == f"{plain:.1f}"
        value, low, high = map(float, re.findall(r"[\d.]+", row[4]))
        assert value == round(mean, 2)
        assert low < value < high
        assert row[6] == f"{sum(gain(line) < 1 for line in those)} of {len(those)}"
        assert row[7] == f"{sum(line['same_tokens'] for line in those)} of {len(those)}"


def test_a_prompt_is_a_dot_at_the_place_of_its_speedup(page, lines) -> None:
    svg = figure(page, "Speedup by category")
    places = {text(dot): float(dot.get("cx", "")) for dot in svg.iter("circle")}
    known = [
        (gain(line), places[f"{line['prompt']}: {gain(line):.2f}x"]) for line in measured(lines)
    ]
    (a, at_a), (b, at_b) = min(known), max(known)
    for speedup, x in known:  # a straight line in the logarithm
        share = math.log(speedup / a) / math.log(b / a)
        assert x == pytest.approx(at_a + share * (at_b - at_a), abs=0.2)


def test_intervals_are_those_of_a_log_normal_sample() -> None:
    """Where theory knows the answer: 1.96 standard errors around the mean of the logarithms."""
    dice = random.Random(3)
    logs = [dice.gauss(0.5, 0.3) for _ in range(400)]
    found = ratio([math.exp(each) for each in logs])
    assert found is not None
    mean = sum(logs) / 400
    error = math.sqrt(sum((each - mean) ** 2 for each in logs)) / 400
    assert math.log(found.value) == pytest.approx(mean)
    assert math.log(found.low or 0) == pytest.approx(mean - 1.96 * error, abs=0.004)
    assert math.log(found.high or 0) == pytest.approx(mean + 1.96 * error, abs=0.004)


def test_alpha_and_tau_of_one_prompt_are_those_that_it_recorded(tmp_path) -> None:
    line = made.prompt(random.Random(5), "code", 1)
    side = line["speculative"]
    page = opened(tmp_path, [made.header(), line])
    [row] = rows(page, "category", "n", "TTFT, ms: plain")
    ttft = 1e3 * median(side["ttft_s"])
    assert row[3] == f"{ttft:.0f} / {ttft:.0f}"
    assert row[6:] == [
        f"{side['tau']:.2f}", f"{side['alpha']:.2f}", f"{side['drafted'] / side['rounds']:.1f}",
    ]  # fmt: skip
    said = [each for each in told(figure(page, "α by position in the draft")) if "tested" in each]
    assert len(said) > 2
    for i, each in enumerate(said):
        assert each.startswith(f"position {i + 1}: α {side['alpha_at'][i]:.2f},")


def test_shares_of_rounds_add_up_to_tau(tmp_path) -> None:
    line = made.prompt(random.Random(5), "chat", 1)
    line["speculative"] |= {"round_log": [[2, 2, 3, 1.0], [2, 1, 2, 1.0], [2, 0, 1, 1.0]] * 8}
    line["speculative"] |= {"tokens": 48, "rounds": 24}
    found = told(figure(opened(tmp_path, [made.header(), line]), "α by position in the draft"))
    assert [each for each in found if "accepted" in each] == [
        "position 1: accepted in 66.7% of rounds", "position 2: accepted in 33.3% of rounds",
    ]  # fmt: skip
    alphas = [re.findall(r"α ([\d.]+), (\d+) tested", each)[0] for each in found if "α" in each]
    assert alphas == [("0.67", "24"), ("0.50", "16")]


def test_what_lies_behind_the_end_of_an_answer_was_never_tested(tmp_path) -> None:
    """One token accepted, and it was the last: of the second nothing is known."""
    line = made.prompt(random.Random(5), "chat", 1)
    line["speculative"] |= {"round_log": [[2, 1, 1, 1.0]] * 8, "tokens": 8, "rounds": 8}
    found = told(figure(opened(tmp_path, [made.header(), line]), "α by position in the draft"))
    assert [each for each in found if "tested" in each] == ["position 1: α 1.00, 8 tested"]


def test_times_are_seconds_over_tokens(page, lines) -> None:
    said = told(figure(page, "Where the time goes"))
    those = measured(lines, "edit")
    tokens = sum(line["speculative"]["tokens"] for line in those)
    for part in ("target", "draft", "overhead"):
        ms = 1e3 * sum(line["speculative"][f"{part}_s"] for line in those) / tokens
        assert f"edit, speculative, {part}: {ms:.2f} ms a token" in said


def test_k_over_time_shows_every_round_of_the_fastest_and_slowest(page, lines) -> None:
    said = told(figure(page, "K over time"))
    for line in (max(measured(lines), key=gain), min(measured(lines), key=gain)):
        name, log = line["prompt"], line["speculative"]["round_log"]
        assert [each for each in said if each.startswith(f"{name}, ")] == [
            f"{name}, round {i}: drafted {d}, accepted {a}" for i, (d, a, *_) in enumerate(log, 1)
        ]


def test_peers_are_held_against_our_tokens_per_second(page, lines) -> None:
    ours = {line["prompt"]: line["speculative"]["tokens_per_second"] for line in measured(lines)}
    found = {tuple(row[:3]): row for row in rows(page, "engine", "mode", "category")}
    assert len(found) == 5 * 8
    theirs = [
        line
        for line in lines
        if line["kind"] == "peer" and line["engine"] == "openvino" and not line["error"]
    ]
    mean = geometric_mean(ours[line["prompt"]] / line["tokens_per_second"] for line in theirs)
    row = found["openvino", "plain", "all prompts"]
    assert row[3] == "68"  # one of 69 ran out of memory
    assert row[5].startswith(f"{mean:.2f}x (")
    assert row[6] == f"{sum(not line['same_tokens'] for line in theirs)} of 68"
    assert ["openvino", "plain", "bits 4, threads 2"] in rows(page, "engine", "mode", "settings")


def test_errors_are_told_and_counted(page) -> None:
    assert rows(page, "what", "error") == [
        ["long-10 (long)", "RuntimeError: the prompt is longer than the context"],
        ["openvino plain: long-1", "out of memory"],
    ]


def test_a_sweep_is_a_map_and_its_fastest_cell_is_owned_up_to(tmp_path) -> None:
    lines = made.sweep()
    page = opened(tmp_path, lines)
    cells: dict[tuple, list[float]] = {}
    for line in measured(lines):
        cells.setdefault((line["cell"]["k"], line["cell"]["draft"]), []).append(gain(line))
    means = {cell: geometric_mean(each) for cell, each in cells.items()}
    said = told(figure(page, "Speedup by K and draft"))
    assert sorted(said) == sorted(
        f"K {k}, draft {draft}: {mean:.2f}x, n = 4" for (k, draft), mean in means.items()
    )
    k, draft = max(means, key=means.__getitem__)
    head = text(next(page.iter("header")))
    assert f"the figures of draft {draft}, k {k}, the fastest of 15 settings" in head
    assert f"{means[k, draft]:.2f}x" in head


def test_answers_are_their_tokens_by_origin(page, lines) -> None:
    opened = {text(d.find("summary/span")): d for d in page.iter("details")}  # type: ignore[arg-type]
    assert set(opened) == {line["prompt"] for line in measured(lines)}
    for name in ("code-3", "chat-2"):
        made_of = next(line for line in measured(lines) if line["prompt"] == name)["speculative"]
        shown = next(d for d in opened[name].iter("div") if d.get("class") == "tokens")
        assert "".join(shown.itertext()) == "".join(each for each, _ in made_of["made"])
        assert [i.get("class") for i in shown.iter("i")] == [
            origin for each, origin in made_of["made"] if each.strip()
        ]


def test_hostile_text_is_text(tmp_path) -> None:
    line = made.prompt(random.Random(1), HOSTILE, 1) | {"prompt": HOSTILE}
    line["speculative"]["made"][0][0] = HOSTILE
    peers = made.peers(random.Random(1), [line])
    for each in peers:
        each |= {"engine": HOSTILE, "settings": {HOSTILE: HOSTILE}}
    failed = made.failed(HOSTILE, 2, HOSTILE)
    head = made.header(model=HOSTILE, argv=[HOSTILE], draft=HOSTILE)
    path = tmp_path / "records.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (head, line, failed, *peers)))
    report.write(path, tmp_path / "page.html")
    page = ElementTree.fromstring((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert not [*page.iter("script")]
    assert {b.get("class") for b in page.iter("b")} <= {
        None,
        *("accepted", "recovered", "bonus", "plain"),
    }
    assert HOSTILE.translate({0: "\ufffd", 0x1B: "\ufffd", 0xD800: "\ufffd"}) in {
        "".join(each.itertext()) for each in page.iter("span")
    }


def bare(line):
    """With nothing in it that could be missing."""
    side = {"tokens": 12, "tokens_per_second": 9.5}
    return line | {"plain": side, "speculative": side, "same_tokens": None, "cell": None}


LEAN = {
    "nothing": [],
    "all errors": [made.failed("code", n, "no room") for n in (1, 2)],
    "one prompt": [made.prompt(random.Random(1), "code", 1)],
    "one category": [made.prompt(random.Random(n), "code", n) for n in range(6)],
    "bare": [bare(made.prompt(random.Random(1), "code", n)) for n in (1, 2, 3)],
    "nothing drafted": [
        made.prompt(random.Random(1), "code", 1)
        | {"speculative": made.side(random.Random(2), 40, None)}
    ],
}


@pytest.mark.parametrize("name", LEAN)
@pytest.mark.parametrize("card", [True, False])
def test_what_is_missing_is_left_out(tmp_path, name, card) -> None:
    head = made.header() if card else {"kind": "run", "run": "r1"}
    page = opened(tmp_path, [head, *LEAN[name]])
    titles = [text(h2) for h2 in page.iter("h2")]
    assert ("By category" in titles) == (name not in ("nothing", "all errors"))
    assert ("Errors" in titles) == (name == "all errors")
    assert {"Against other engines", "What the settings change"}.isdisjoint(titles)
    assert "nan" not in text(page).lower().split()
    figures = [text(svg.find("title")) for svg in page.iter("svg")]  # type: ignore[arg-type]
    assert ("r(n): what scoring n tokens costs" in figures) == card
    if name == "one prompt":
        assert "(n = 1)" not in text(page)
        assert "cannot be told" in text(page)


def test_it_needs_nothing_from_elsewhere(page) -> None:
    assert not {"script", "link", "img", "iframe"} & {element.tag for element in page.iter()}
    [style] = page.iter("style")
    assert "url(" not in (style.text or "")
    assert not [e for e in page.iter() if "href" in e.attrib or "src" in e.attrib]


def test_it_is_written_or_refused(tmp_path) -> None:
    records = made.write(tmp_path / "r.jsonl", [made.header()])
    with pytest.raises(PacelineError, match=r"--report .* cannot be written"):
        report.write(records, tmp_path / "no" / "a.html")
    with pytest.raises(PacelineError, match=r"gone\.jsonl"):
        report.write(tmp_path / "gone.jsonl", tmp_path / "a.html")
