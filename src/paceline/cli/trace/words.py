"""What a trace says, in words: for the terminal and the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.text.decisions import Rule
from paceline.text.trace import Node, RoundTrace

RULES: dict[Rule, str] = {
    "greedy": "a drafted token is accepted if it is what the target says; the gap is how much "
    "likelier that is, as a difference of logs",
    "rejection": "a drafted token is accepted if a uniform number u is below p/q",
    "block": "the draft is cut behind the last token whose u is below h, the chance that it is kept"
    " up to there; h belongs to the whole block, not to the token alone, so a token far below q may"
    " stand in a block that was kept, and no margin of one token decides",
    "candidates": "several candidates a position, one by one: each is accepted if its u is below "
    "the chance that is left for it after those before it were refused",
    "kseq": "several draws a position: each is accepted if u is below p/(r q), with r as small as "
    "the law of the target allows",
    "typical": "a drafted token is accepted if its p is above a bar that is low where the target is"
    " unsure; this is lossy",
    "coupled": "the target's draw is fixed by the seed and the position; a drafted token is "
    "accepted if it is that one",
}
_SEEN = {code: chr(0x2400 + code) for code in range(32)} | {127: "␡"}
_MARKS = _SEEN | {ord("\n"): "↵", ord("\t"): "⇥"}
_LINES = _SEEN | {ord("\n"): "\n", ord("\t"): "\t"}


def token(text: str, id: int) -> str:
    """A token on one line, its spaces seen; its number where it has no text."""
    shown = text.translate(_MARKS)
    inner = shown.strip(" ")
    if not inner:
        return "·" * len(shown) or f"#{id}"
    lead, _, rest = shown.partition(inner)
    return "·" * len(lead) + inner + "·" * len(rest)


def lines(text: str) -> str:
    """Text as it is, but for characters that would steer a terminal."""
    return text.translate(_LINES)


def chance(value: float | None) -> str:
    """A probability."""
    if value is None or math.isnan(value):
        return "?"
    if 0 < value < 0.0005:
        return f"{value:.0e}"
    if 0.9995 <= value < 1:
        return f"{math.floor(value * 1e5) / 1e5:.5f}"
    return f"{value:.3f}"


def ms(seconds: float) -> str:
    """Milliseconds."""
    return f"{seconds * 1e3:.1f}" if seconds < 0.0995 else f"{seconds * 1e3:.0f}"


def drafter(header: Mapping[str, Any], index: int) -> str:
    """The drafter of that number."""
    names = str(header.get("draft", "")).split("+")
    return names[index] if 0 <= index < len(names) else f"drafter {index}"


def by(header: Mapping[str, Any], each: RoundTrace) -> str:
    """Who drafted; nothing where nobody did, or it is not known which of several."""
    if not each.nodes or each.by is None or each.by < 0:
        names = str(header.get("draft", "")).split("+")
        return names[0] if each.nodes and len(names) == 1 else ""
    return drafter(header, each.by)


def verdict(node: Node, rule: Rule, lenience: float = 1.0) -> str:
    """Why a drafted token was accepted or refused, in numbers."""
    if node.state == "unused":
        return "not needed"
    passed = node.state == "accepted"
    says = "" if node.said is None else token(node.says or "", node.said)
    if rule == "greedy":
        if passed and node.id == node.said:
            return "what the target says"
        gap = "?" if node.gap is None else f"{node.gap:.2f}"
        slack = f"; {-math.log(lenience):.2f} are forgiven" if lenience < 1 else ""
        return f"the target says {says}, {gap} nats likelier{slack}"
    if rule == "coupled":
        return f"the target's draw is {says}"
    if node.need is None:
        return ""
    if rule == "typical":
        return f"p {chance(node.p)} {'>' if passed else '≤'} bar {chance(node.need)}"
    name = {"rejection": "p/q", "block": "h", "candidates": "chance", "kseq": "p/(r q)"}[rule]
    if rule == "rejection" and lenience < 1:
        name = f"p/({lenience:g} q)"
    if node.u is None:
        return ""
    return f"u {chance(node.u)} {'<' if node.u < node.need else '≥'} {name} {chance(node.need)}"


def margin(node: Node, rule: Rule) -> float | None:
    """By how much a token passed its test (> 0) or failed it, in what the test is made in: for u a
    probability, for greedy nats, for typical a probability. None: there is no such number, as of a
    block, where the test is of all tokens up to there."""
    if node.state == "unused" or rule == "block":
        return None
    if rule == "greedy":
        return None if node.gap is None else -node.gap
    if rule == "typical":
        return None if node.need is None else node.p - node.need
    return None if node.u is None or node.need is None else node.need - node.u


def why(header: Mapping[str, Any], each: RoundTrace) -> str:
    """Why so many tokens were drafted."""
    choice = each.choice
    if choice is None:
        window = str(header.get("window", ""))
        if not each.nodes:
            return "nothing drafts" if header.get("draft") == "none" else "nothing proposed"
        return f"{window} window"
    if not choice.decided:
        return "the window is kept: the run has a seed" if _seeded(header) else "no room for more"
    if choice.tried is not None:
        return f"a try: {drafter(header, choice.tried)} does not pay, as far as is known"
    plain = f"{choice.plain:.1f}"
    offers = {i: offer for i, offer in choice.offers.items() if offer[1]}
    index = -1 if each.by is None else each.by
    if each.nodes and index in offers:
        rate, _ = offers[index]
        return f"{drafter(header, index)} {rate:.1f} > plain {plain} tokens/s"
    if each.nodes:
        return f"{by(header, each)} costs next to nothing"
    if index in offers and offers[index][0] > choice.plain:
        unsure = "" if each.ended_at is None else f" (sure: {chance(each.ended_at)})"
        return f"{drafter(header, index)} was asked and not sure enough{unsure}"
    if not offers:
        return f"nothing to offer against plain {plain} tokens/s"
    best = max(offers, key=lambda i: offers[i][0])
    return f"plain {plain} ≥ {drafter(header, best)} {offers[best][0]:.1f} tokens/s"


def _seeded(header: Mapping[str, Any]) -> bool:
    sampling = header.get("sampling")
    return isinstance(sampling, Mapping) and sampling.get("seed") is not None


def settings(header: Mapping[str, Any]) -> str:
    """How the run was made, on one line."""
    sampling = header.get("sampling")
    temperature = sampling.get("temperature") if isinstance(sampling, Mapping) else None
    heat = "greedy" if not temperature else f"temperature {temperature}"
    parts = [
        header.get("dtype"),
        f"draft {header.get('draft')}",
        f"K at most {header.get('k')}",
        f"{header.get('window')} window",
        f"verify {header.get('verify')}",
        heat,
        "deterministic" if header.get("deterministic") else None,
        f"lenience {header.get('lenience')}" if header.get("lenience", 1) != 1 else None,
        "lossy" if header.get("lossless") is False else None,
    ]
    return " · ".join(str(part) for part in parts if part)


def made(header: Mapping[str, Any]) -> str:
    """With what, where and when it was made."""
    versions, hardware = header.get("versions"), header.get("hardware")
    parts = [
        f"paceline {header.get('paceline')}",
        f"commit {header['commit']}" if header.get("commit") else None,
        f"torch {versions.get('torch')}" if isinstance(versions, Mapping) else None,
        hardware.get("cpu") if isinstance(hardware, Mapping) else None,
        header.get("date"),
    ]
    return " · ".join(str(part) for part in parts if part)


def refused(nodes: Sequence[Node], rule: Rule, lenience: float = 1.0) -> str:
    """The refusals of a round: the first, and how many more there were."""
    if not nodes:
        return ""
    node = nodes[0]
    more = f" (and {len(nodes) - 1} more)" if len(nodes) > 1 else ""
    pq = f"p {chance(node.p)}, q {chance(node.q)}"
    return f"{token(node.text, node.id)} refused: {pq}; {verdict(node, rule, lenience)}{more}"
