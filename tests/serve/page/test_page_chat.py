"""The chat on the page: kept, cleared, set up, and what happens when the server says no."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright")

from playground import QUESTION, ask, change, shown, type_in
from playwright.sync_api import expect


def test_a_reload_keeps_the_chat_which_goes_on(page):
    change(page, ignore_eos=True, max_tokens=20)
    first = ask(page)
    before = shown(page), page.text_content(".facts"), page.text_content("#tau")
    page.reload()
    expect(page.locator(".facts")).to_have_count(1)
    assert (shown(page), page.text_content(".facts"), page.text_content("#tau")) == before
    assert ask(page, "go on").sent["messages"] == [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "go on"},
    ]


def test_clearing_forgets_the_chat_and_can_be_undone(page):
    change(page, ignore_eos=True, max_tokens=20)
    ask(page)
    before = shown(page)
    page.click("#clear")
    expect(page.locator("article")).to_have_count(0)
    page.click("#undo")
    expect(page.locator("article")).to_have_count(1)
    assert shown(page) == before
    page.click("#clear")
    assert page.evaluate("localStorage.getItem('paceline.chat')") is None
    page.reload()
    expect(page.locator(".welcome")).to_be_visible()


def test_settings_are_sent_and_kept(page):
    status = page.request.get(f"{page.url}status").json()
    given = {"temperature": 0.5, "max_tokens": 7, "seed": 3, "num_speculative_tokens": 2}
    for name, value in given.items():
        page.fill(f"[name={name}]", str(value))
    page.select_option("[name=draft]", status["drafts"][-1])
    page.select_option("[name=verify]", "rejection")
    page.fill("[name=system]", "Be short.")
    page.reload()
    expect(page.locator("[name=verify]")).to_have_value("rejection")
    sent = ask(page).sent
    assert {name: sent[name] for name in given} == given
    assert (sent["draft"], sent["verify"]) == (status["drafts"][-1], "rejection")
    assert sent["messages"][0] == {"role": "system", "content": "Be short."}


def test_fields_left_as_the_server_is_set_are_not_sent(page):
    change(page, max_tokens=5)
    left = {"draft", "verify", "seed", "num_speculative_tokens"}
    assert left.isdisjoint(ask(page).sent)


@pytest.mark.parametrize("width", [1200, 360])
def test_a_setting_that_cannot_be_is_gone_to_and_nothing_is_sent(visit, width):
    page = visit(viewport={"width": width, "height": 740})
    temperature = page.locator("[name=temperature]")
    temperature.evaluate("field => { field.value = '9'; }")
    type_in(page, "hello")
    expect(temperature).to_be_focused()
    expect(temperature).to_be_in_viewport()
    expect(page.locator("#message")).to_have_value("hello")
    assert page.locator("article").count() == 0


def refuse(page, status, message, headers=None):
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(status=status, json={"error": error}, headers=headers or {}),
    )


def test_errors_of_the_server_are_shown_in_its_words(page):
    change(page, temperature=-1)
    with page.expect_response("**/v1/chat/completions") as response:
        type_in(page, "hello")
    assert response.value.status == 400
    said = response.value.json()["error"]["message"]
    expect(page.locator(".problem")).to_contain_text(said[1:])
    page.unroute("**/v1/chat/completions")
    change(page, max_tokens=5)
    page.click("text=Try again")
    expect(page.locator(".facts")).to_be_visible()
    expect(page.locator("article")).to_have_count(1)


@pytest.mark.parametrize(
    ("status", "message", "headers", "shown_too"),
    [
        (429, "the queue is full", {"Retry-After": "7"}, "There should be room in 7 s."),
        (400, "this model has no chat template", None, "POST /v1/completions has such a model"),
    ],
)
def test_errors_say_what_helps(page, status, message, headers, shown_too):
    refuse(page, status, message, headers)
    type_in(page, "hello")
    expect(page.locator(".problem")).to_contain_text(message[1:])
    expect(page.locator(".problem")).to_contain_text(shown_too)
    expect(page.locator("#said")).to_contain_text(message[1:])


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(page):
    def guard(route):
        if route.request.headers.get("authorization") == "Bearer right":
            route.continue_()
        else:
            route.fulfill(status=401, json={"error": {"message": "no key"}})

    for path in ("**/status", "**/v1/chat/completions"):
        page.route(path, guard)
    page.reload()
    for key in ("wrong", "right"):
        page.fill("#key", key)
        page.press("#key", "Enter")
        if key == "wrong":
            expect(page.locator("#key-note")).to_contain_text("refuses this key")
    expect(page.locator("#key-form")).to_be_hidden()
    page.fill("[name=max_tokens]", "5")
    ask(page)
    assert page.evaluate("Object.values(sessionStorage)") == ["right"]
    assert "right" not in page.evaluate("JSON.stringify(localStorage)")
