"""An answer on the page: what it shows is what the server said."""

from __future__ import annotations

import json
import time

import pytest

pytest.importorskip("playwright")

from playground import ORIGINS, QUESTION, ask, card_of, change, contrast, shown, type_in
from playwright.sync_api import expect


def test_the_answer_is_the_servers_each_token_in_the_colour_of_its_origin(page):
    change(page, ignore_eos=True, max_tokens=60)
    answer = ask(page)
    assert answer.text
    assert answer.sent["messages"] == [{"role": "user", "content": QUESTION}]
    assert page.locator("token-text").text_content() == answer.text
    assert shown(page) == [[t["text"], t["origin"]] for t in answer.tokens if t["text"]]
    marked = page.locator("token-text u").evaluate_all(
        "marks => marks.every(m => m.className === m.parentElement.dataset.origin)"
    )
    assert marked


def test_origins_differ_in_colour_and_in_the_line_under_them(page):
    looks = page.locator(".legend b").evaluate_all(
        "names => names.map(n => [n.className, getComputedStyle(n)]).map("
        "([n, s]) => [n, s.color, s.textDecorationLine + s.textDecorationStyle])"
    )
    assert [name for name, _, _ in looks] == list(ORIGINS)
    assert len({colour for _, colour, _ in looks}) == 4
    assert len({line for _, _, line in looks}) == 4


def test_the_figures_are_the_servers(page):
    change(page, ignore_eos=True, max_tokens=300)  # in more than one event, or there is no rate
    answer = ask(page)
    tau, alpha = answer.speculation["tau"], answer.speculation["alpha"]
    assert answer.speculation["drafted"] == sum(answer.drafted) > 0
    assert page.text_content("#tau") == f"{tau:.2f}"
    assert page.text_content("#alpha") == ("–" if alpha is None else f"{alpha:.2f}")
    assert page.text_content("#k") == str(answer.drafted[-1])
    for origin in ORIGINS:
        count = sum(token["origin"] == origin for token in answer.tokens)
        assert page.text_content(f"[data-count={origin}]").startswith(f"{count} ·")
    status = page.request.get(f"{page.url}status").json()
    assert page.text_content("#plain-rate") == f"{status['plain_tokens_per_second']:.1f}"
    assert float(page.text_content("#rate")) > 0
    chart = page.locator("round-chart svg").get_attribute("aria-label")
    assert chart.startswith(f"K was {answer.drafted[-1]} in the last round")


def test_a_token_shows_p_q_and_what_was_proposed(page):
    change(page, ignore_eos=True, max_tokens=60)
    tokens = [token for token in ask(page).tokens if token["text"]]
    drafted = (i for i, token in enumerate(tokens) if token["q"] is not None)
    at = next(i for i in drafted if tokens[i]["text"].strip())
    card = page.locator("token-card")
    expect(card).to_be_hidden()
    page.locator("token-text > span").nth(at).hover()
    expect(card).to_be_visible()
    assert card.locator(".value").all_text_contents() == card_of(tokens[at])
    assert card.locator("b").text_content() == tokens[at]["origin"]
    page.mouse.move(1, 1)
    expect(card).to_be_hidden()


def test_the_keyboard_steps_through_the_tokens(page):
    change(page, ignore_eos=True, max_tokens=60)
    tokens = [token for token in ask(page).tokens if token["text"]]
    values = page.locator("token-card .value")
    page.focus("token-text")
    for key, at in (("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("End", -1)):
        page.keyboard.press(key)
        expect(values).to_have_text(card_of(tokens[at]))
        expect(page.locator("#said")).to_contain_text(f"p {tokens[at]['p']:.3f}")
    page.keyboard.press("Escape")
    expect(page.locator("token-card")).to_be_hidden()


# Done in the page as the first token is shown: a tiny model may be through before a click arrives.
ON_FIRST_TOKEN = """() => new MutationObserver((_, observer) => {
  if (!document.querySelector("token-text span")) return;
  observer.disconnect();
  %s;
}).observe(document.querySelector("chat-log"), { childList: true, subtree: true })"""
STOP = {
    "button": "document.getElementById('stop').click()",
    "Escape": "document.activeElement.dispatchEvent("
    "new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }))",
}


@pytest.mark.parametrize("way", STOP)
def test_stopping_ends_the_request(page, way):
    change(page, ignore_eos=True, max_tokens=400)
    page.evaluate(ON_FIRST_TOKEN % STOP[way])
    type_in(page, "a long answer")
    expect(page.locator(".facts")).to_contain_text("stopped")
    expect(page.locator("#send")).to_be_visible()
    assert 0 < len(shown(page)) < 400
    deadline = time.monotonic() + 10
    while page.request.get(f"{page.url}status").json()["running"]:
        assert time.monotonic() < deadline


def test_what_a_model_says_is_text_never_markup(page):
    text = "<img src=x onerror=alert(1)> <b>bold</b> & [link](x)"
    token = {"text": text, "origin": "plain", "p": 0.5, "q": None, "proposed": None}
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
    choice["speculation"] = {"drafted": [0], "tokens": [token]}
    body = f"data: {json.dumps({'choices': [choice]})}\n\ndata: [DONE]\n\n"
    page.route("**/v1/chat/completions", lambda route: route.fulfill(body=body))
    type_in(page, text)
    expect(page.locator("token-text")).to_have_text(text)
    expect(page.locator(".asked")).to_have_text(text)
    assert page.locator("article img, article b, article a").count() == 0


def test_a_phone_shows_it_without_scrolling_sideways(visit):
    page = visit(viewport={"width": 360, "height": 740}, has_touch=True)
    change(page, ignore_eos=True, max_tokens=40)
    ask(page, "word" * 100)
    page.locator("token-text > span").first.tap()
    expect(page.locator("token-card")).to_be_visible()
    page.click("#open-settings")
    expect(page.locator("#close-settings")).to_be_focused()
    expect(page.locator("[name=temperature]")).to_be_in_viewport()
    page.keyboard.press("Escape")
    expect(page.locator("#open-settings")).to_be_focused()
    wide = page.locator("body *").evaluate_all(
        "all => all.filter(e => e.getBoundingClientRect().right > innerWidth).map(e => e.outerHTML)"
    )
    assert wide == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    expect(page.locator("#send")).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(visit, scheme):
    page = visit(color_scheme=scheme)
    behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
    colours = page.locator("h1, #model, #keys, .legend *, .welcome p").evaluate_all(
        "all => [...new Set(all.map(e => getComputedStyle(e).color))]"
    )
    assert len(colours) >= 5
    assert min(contrast(colour, behind) for colour in colours) >= 4.5
