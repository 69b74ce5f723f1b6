"""What a visitor of the page does, and what there is to see."""

from __future__ import annotations

import json
import re
from types import SimpleNamespace

from playwright.sync_api import expect

ORIGINS = ("accepted", "recovered", "bonus", "plain")
QUESTION = "one two three one two three one two three one"


def change(page, **fields):
    """Send what the page sends, but with these fields."""

    def send(route):
        route.continue_(post_data=json.dumps(route.request.post_data_json | fields))

    page.route("**/v1/chat/completions", send)


def type_in(page, text):
    page.fill("#message", text)
    page.press("#message", "Enter")


def ask(page, text=QUESTION):
    """Ask, wait for the end; the request and what its events added up to."""
    turns = page.locator("article").count()
    with page.expect_request("**/v1/chat/completions") as request:
        type_in(page, text)
    expect(page.locator("article footer p")).to_have_count(turns + 1)
    lines = page.evaluate("heard.at(-1)").split("\n")
    events = [line[6:] for line in lines if line.startswith("data: ")]
    chunks = [json.loads(event) for event in events if event != "[DONE]"]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    made = [choice["speculation"] for choice in choices if "speculation" in choice]
    return SimpleNamespace(
        sent=request.value.post_data_json,
        text="".join(choice["delta"].get("content") or "" for choice in choices),
        tokens=[token for one in made for token in one["tokens"]],
        drafted=[k for one in made for k in one["drafted"]],
        speculation=chunks[-1]["usage"]["speculation"],
    )


def shown(page):
    """(text, origin) of the tokens of the last answer on the page."""
    spans = page.locator("article:last-of-type token-text > span")
    return spans.evaluate_all("spans => spans.map(s => [s.textContent, s.dataset.origin])")


def card_of(token):
    """The figures that the card must show for a token."""
    figures = [f"{token['p']:.3f}"]
    return figures if token["proposed"] is None else [*figures, f"{token['q']:.3f}"]


def contrast(a, b):
    """As WCAG 2 defines it, of two CSS colours `rgb(r, g, b)`."""
    lights = sorted(_luminance(colour) for colour in (a, b))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour):
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
