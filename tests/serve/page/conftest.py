"""A browser, and a visitor who sees the page for the first time."""

from __future__ import annotations

import pytest

# The browser keeps no body that may not be stored, so the page keeps a copy: `heard`, promises.
HEAR = """
window.heard = [];
const plain = window.fetch;
window.fetch = async (...asked) => {
  const response = await plain(...asked);
  window.heard.push(response.clone().text().catch(() => null));
  return response;
};
"""
ANSWERS = ("status", "completions")  # how the paths end that may answer with an error


@pytest.fixture
def visit(server, browser):
    """Open the page in a browser that was never here. Afterwards: nothing in the console but
    answers that were errors, every file was there, and no other host was asked."""
    from playwright.sync_api import expect

    contexts, wrong, hosts = [], [], set()

    def heard(message):
        if message.type in ("error", "warning") and "Failed to load" not in message.text:
            wrong.append(message.text)

    def answered(response):
        if response.status >= 400 and not response.url.endswith(ANSWERS):
            wrong.append(f"{response.status} {response.url}")

    def open_page(**options):
        context = browser.new_context(**{"viewport": {"width": 1200, "height": 800}, **options})
        context.set_default_timeout(20_000)
        contexts.append(context)
        context.add_init_script(HEAR)
        page = context.new_page()
        page.on("console", heard)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
        page.on("response", answered)
        page.goto(server.url)
        expect(page.locator("#model")).to_contain_text("·")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []
    assert hosts == {server.url.split("/")[2]}


@pytest.fixture
def page(visit):
    return visit()
