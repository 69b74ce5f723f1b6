"""`generate --trace` and `paceline trace`: on the terminal, as JSON, and as a page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paceline.cli import run
from paceline.cli.trace.page import page
from paceline.text.trace_file import read

HOT = ("--temperature", "0.7", "--seed", "3", "--ignore-eos")
PROMPT = 'abcabcabcabc <b>&"quoted"</b>'


@pytest.fixture(scope="module")
def trace(tiny, tmp_path_factory) -> Path:
    """Of a run of the tiny model that drafts for itself, so most tokens are accepted."""
    path = tmp_path_factory.mktemp("trace") / "t.jsonl"
    draft = f"lookup:2+model:{tiny}"
    args = ["generate", PROMPT, "-m", tiny, "--draft", draft, "--window", "fixed", "--k", "3"]
    args += ["--draft-temperature", "2", "-n", "40", "--trace", str(path), *HOT]
    assert run(args) == 0
    return path


def test_it_says_how_the_run_was_made(trace, tiny) -> None:
    header = read(str(trace)).header
    wanted = {
        "model": tiny, "k": 3, "window": "fixed", "verify": "auto", "seed": 3, "prompt": PROMPT,
        "draft": f"lookup:2+model:{tiny}", "lenience": 1.0, "lossless": True,
    }  # fmt: skip
    assert {name: header[name] for name in wanted} == wanted
    assert (header["sampling"]["temperature"], header["sampling"]["max_tokens"]) == (0.7, 40)
    assert {"python", "torch"} <= set(header["versions"])


def test_a_trace_changes_nothing(trace, tiny, capsys) -> None:
    args = ["generate", PROMPT, "-m", tiny, "--draft", f"lookup:2+model:{tiny}", "--json"]
    args += ["--window", "fixed", "--k", "3", "--draft-temperature", "2", "-n", "40", *HOT]
    capsys.readouterr()
    assert run(args) == 0
    plain = json.loads(capsys.readouterr().out)
    found = read(str(trace))
    assert plain["token_ids"] == [t.id for each in found.rounds for t in each.emitted]
    assert plain["text"] == found.text
    for name in ("rounds", "drafted", "accepted", "alpha"):
        assert plain["stats"][name] == getattr(found.stats, name)


def test_the_summary(trace, capsys) -> None:
    assert run(["trace", str(trace), "--json"]) == 0
    out, found = json.loads(capsys.readouterr().out), read(str(trace))
    assert out["tokens"] == 40
    assert out["tau"] == 40 / len(found.rounds)
    assert out["accepted"] == sum(each.accepted for each in found.rounds) > 0
    assert sum(out["windows"].values()) == out["rounds"] == len(found.rounds)
    assert sum(out["seconds"].values()) == pytest.approx(sum(r.total_s for r in found.rounds))
    lost = [each["seconds"] for each in out["lost"]]
    assert lost == sorted(lost, reverse=True)
    assert out["finish_reason"] == "length"


def test_the_terminal_shows_every_round_and_every_first_refusal(trace, capsys) -> None:
    assert run(["trace", str(trace)]) == 0
    out, found = capsys.readouterr().out, read(str(trace))
    assert found.text.split("\n")[0].rstrip()[:20] in out
    rounds = [int(n) for n in re.findall(r"^ +(\d+) +\d+ +(?:\d/\d|-) ", out, re.MULTILINE)]
    assert rounds == [each.number for each in found.rounds]
    refused = sum(bool(each.rejected) for each in found.rounds)
    assert len(re.findall(r"refused: p", out.split("in all")[0])) == refused > 0
    assert "\x1b" not in out


def test_a_torn_trace_is_shown_with_a_note(trace, tmp_path, capsys) -> None:
    torn = tmp_path / "torn.jsonl"
    torn.write_bytes(trace.read_bytes()[:-400])
    assert run(["trace", str(torn)]) == 0
    out = capsys.readouterr().out
    assert "note: the last line was torn and is left out" in out
    assert "note: the run was cut short" in out


def test_what_cannot_be_read_or_written_is_one_line_and_2(trace, tiny, tmp_path, capsys) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("hello\n")
    nowhere = str(tmp_path / "no" / "t")
    for args in (
        ["trace", str(bad)],
        ["trace", nowhere],
        ["trace", str(tmp_path)],
        ["trace", str(trace), "--html", nowhere],
        ["generate", "a", "-m", tiny, "--trace", nowhere],
        ["generate", "a", "-m", tiny, "--trace", str(tmp_path)],
    ):
        capsys.readouterr()
        assert run(args) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert re.fullmatch(r"paceline: [^\n]+\n", said.err)


def test_a_run_that_fails_leaves_an_older_trace_alone(trace, tmp_path) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(trace.read_bytes())
    assert run(["generate", "a", "-m", str(tmp_path / "nothing"), "--trace", str(kept)]) == 2
    assert kept.read_bytes() == trace.read_bytes()


def test_the_page_needs_nothing_from_elsewhere_and_holds_everything(trace) -> None:
    found = read(str(trace))
    odd = replace(found, header={**found.header, "prompt_tokens": "<i>", "dtype": "<i>"})
    assert not list(ElementTree.fromstring(page(odd)).iter("i"))
    root = ElementTree.fromstring(page(found))
    assert not {"script", "link", "img", "iframe"} & {element.tag for element in root.iter()}
    assert "url(" not in "".join(style.text or "" for style in root.iter("style"))
    links = list(root.iter("a"))
    tokens = [t for each in found.rounds for t in each.emitted]
    assert [a.attrib["class"].split()[0] for a in links] == [t.origin for t in tokens]
    ids = {e.attrib["id"] for e in root.iter("details") if "id" in e.attrib}
    assert {a.attrib["href"].removeprefix("#") for a in links} == ids
    rows = [tr for table in root.iter("table") if table.attrib.get("class") == "nodes"
            for tr in table.iter("tr")]  # fmt: skip
    heads = sum(bool(each.nodes) for each in found.rounds)
    assert len(rows) - heads == sum(len(each.nodes) for each in found.rounds)
    assert not list(root.iter("b"))[1:]  # the rule's name alone: the prompt's <b> is text


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_on_a_phone(browser, trace, tmp_path, scheme) -> None:
    """Nothing in the console, nothing asked of the network, nothing wider than the screen, text of
    12 px at least; a token tells its story to whoever reaches it by keyboard, and its link opens
    nothing else."""
    out = tmp_path / "t.html"
    assert run(["trace", str(trace), "--html", str(out)]) == 0
    phone = browser.new_page(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    said: list[str] = []
    phone.on("console", lambda message: said.append(message.text))
    phone.on("pageerror", lambda error: said.append(str(error)))
    phone.on("request", lambda request: said.append(request.url))
    phone.goto(out.as_uri())
    for summary in phone.locator("summary").all():
        summary.click()
    assert said == [out.as_uri()]
    assert phone.evaluate("document.documentElement.scrollWidth") == 360
    sizes = phone.evaluate(
        "[...document.querySelectorAll('td, p, a, dd, dt, summary')]"
        ".map(e => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12
    phone.keyboard.press("Tab")
    phone.locator(".answer a").first.focus()
    shown = "getComputedStyle(document.activeElement, '::after')"
    tip, left, right = phone.evaluate(f"(s => [s.content, s.left, s.right])({shown})")
    assert "round 1, token 1" in tip
    assert (left, right) == ("8px", "8px")
    phone.close()
