"""A trace as one page that needs nothing from elsewhere, not even a script.

A token of the answer says how it was made when it is pointed at or has the focus, and leads to its
round; a round opens to its whole draft.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.cli.trace import figures, summary, words
from paceline.page import html
from paceline.page.html import words as safe
from paceline.text.decisions import Rule
from paceline.text.trace import Node, RoundTrace, Said, Trace

_HEAD = ("token", "decision", "p", "q", "margin", "sure")
_KEY = (
    ("accepted", "accepted"),
    ("recovered", "recovered: in place of a refused one"),
    ("bonus", "bonus: behind a whole draft"),
    ("plain", "plain: nothing was drafted"),
    ("refused", "refused"),
    ("unused", "not needed"),
)


def page(trace: Trace) -> str:
    """The page: HTML that is XML, too."""
    header = trace.header
    title = f"Trace of {header.get('model', '?')}"
    body = (
        f"<h1>{safe(title)}</h1>",
        f'<p class="made">{safe(words.settings(header))}<br/>{safe(words.made(header))}</p>',
        *(f'<p class="note">Note: {safe(note)}.</p>' for note in trace.notes),
        _figures(trace),
        _answer(trace),
        html.section("Drafted and accepted tokens, round by round", figures.drafts(trace)),
        html.section("Where the time went", figures.times(trace)),
        figures.alphas(trace),
        _losses(trace),
        _rounds(trace),
    )
    inks = html.sheet("paceline.page", "figures.css")
    return html.document(title, "".join(body), inks, html.sheet("paceline.cli.trace", "page.css"))


def _figures(trace: Trace) -> str:
    stats, rate = trace.stats, summary.rate(trace)
    given: list[tuple[str, str]] = [
        ("tokens", str(stats.emitted)),
        ("rounds", str(stats.rounds)),
        ("tokens/s", "?" if rate is None else f"{rate:.1f}"),
    ]
    if stats.drafted and stats.alpha is not None:
        given += [("τ", f"{stats.tau:.2f}"), ("α", f"{stats.alpha:.2f}")]
        given += [("drafted", str(stats.drafted)), ("accepted", str(stats.accepted))]
    cells = "".join(f"<div><dt>{safe(k)}</dt><dd>{safe(v)}</dd></div>" for k, v in given)
    return f'<section class="wide"><dl class="cards">{cells}</dl></section>'


def _answer(trace: Trace) -> str:
    """The prompt, and the answer's tokens as links to their rounds."""
    made = "".join(
        _link(trace.header, each, i, said)
        for each in trace.rounds
        for i, said in enumerate(each.emitted)
    )
    key = "".join(f'<li><span class="{name}">a</span> {safe(text)}</li>' for name, text in _KEY)
    prompt = safe(str(trace.header.get("prompt", "")))
    count = safe(str(trace.header.get("prompt_tokens")))
    return (
        f'<section class="wide"><h2>The answer</h2><details><summary>Prompt ({count} tokens)'
        f'</summary><div class="text">{prompt}</div></details>'
        f'<div class="text answer">{made}</div><ul class="key">{key}</ul>'
        "<p>Point at a token, or give it the focus, to see how it was made; it leads to its round."
        "</p></section>"
    )


def _link(header: Mapping[str, Any], each: RoundTrace, i: int, said: Said) -> str:
    """A token: what became certain with it; its own text where that is nothing yet."""
    tip = safe("\n".join(_story(header, each, i, said)))
    shown = said.shown or words.token(said.text, said.id)
    faint = "" if said.shown else " faint"
    first = " first" if not i else ""
    tail = "<br/>" * shown.endswith("\n")  # else nothing of it is seen at the end of a line
    return (
        f'<a class="{said.origin}{faint}{first}" href="#r{each.number}" data-tip="{tip}">'
        f"{safe(shown.removesuffix(chr(10)))}{tail}</a>"
    )


def _story(header: Mapping[str, Any], each: RoundTrace, i: int, said: Said) -> list[str]:
    """How a token was made, a line each."""
    lenience = float(header.get("lenience", 1.0))
    lines = [f"{words.token(said.text, said.id)}  {said.origin}, p {words.chance(said.p)}"]
    lines.append(f"round {each.number}, token {i + 1} of {len(each.emitted)}")
    path = [node for node in each.nodes if node.state == "accepted"]
    if i < len(path):
        node, who = path[i], words.by(header, each)
        lines.append(f"drafted{' by ' + who if who else ''} with q {words.chance(node.q)}")
        lines.append(words.verdict(node, each.rule, lenience))
    elif each.rejected and said.origin == "recovered":
        lines.append(words.refused(each.rejected[:1], each.rule, lenience))
    return [line for line in lines if line]


def _losses(trace: Trace) -> str:
    base, lost = summary.worth(trace), summary.losses(trace)
    if base is None or not lost:
        return ""
    rows = [[f"{loss.round}", words.ms(loss.seconds), loss.why] for loss in lost]
    said = f"Against plain decoding, {words.ms(base.seconds)} ms a token, {base.how}."
    table = html.table(("round", "ms lost", "why"), rows)
    return html.section("The rounds that lost most", table, said)


def _rounds(trace: Trace) -> str:
    rules = dict.fromkeys(each.rule for each in trace.rounds if each.nodes)
    said = "".join(f"<p><b>{rule}</b>: {safe(words.RULES[rule])}.</p>" for rule in rules)
    body = "".join(_round(trace.header, each) for each in trace.rounds)
    return f'<section class="wide rounds"><h2>Round by round</h2>{said}{body}</section>'


def _round(header: Mapping[str, Any], each: RoundTrace) -> str:
    seconds = each.seconds
    parts = (("draft", seconds.draft), ("target", seconds.target), ("rest", seconds.overhead))
    times = ", ".join(f"{name} {words.ms(s)} ms" for name, s in parts)
    who = words.by(header, each)
    counts = f"{each.accepted} of {each.drafted} accepted" if each.nodes else "nothing drafted"
    lines = [f"{counts}{' of ' + who if who else ''}. K: {words.why(header, each)}."]
    if each.ended_at is not None:
        lines.append(f"The next token, of confidence {words.chance(each.ended_at)}, was left out.")
    lines.append(f"Time: {times}.")
    if each.finish:
        lines.append(f"The answer ended here: {each.finish}.")
    body = "".join(html.paragraph(text) for text in lines)
    return (
        f'<details id="r{each.number}"><summary><span class="n">{each.number}</span>'
        f'<span class="chips">{_chips(each)}</span><span class="ms">{words.ms(each.total_s)} ms'
        f"</span></summary>{body}{_nodes(header, each)}{_last(each)}</details>"
    )


def _chips(each: RoundTrace) -> str:
    """Accepted tokens, refused ones, those not needed, and the target's own."""
    order = {"accepted": 0, "rejected": 1, "unused": 2}
    drafted = sorted(each.nodes, key=lambda node: order[node.state])
    kinds = {"accepted": "accepted", "rejected": "refused", "unused": "unused"}
    chips = [(kinds[node.state], words.token(node.text, node.id)) for node in drafted]
    chips += [(s.origin, words.token(s.text, s.id)) for s in each.emitted[each.accepted :]]
    return " ".join(f'<span class="chip {kind}">{safe(text)}</span>' for kind, text in chips)


def _nodes(header: Mapping[str, Any], each: RoundTrace) -> str:
    if not each.nodes:
        return ""
    lenience = float(header.get("lenience", 1.0))
    depth: list[int] = []
    for node in each.nodes:
        depth.append(depth[node.parent] + 1 if node.parent >= 0 else 0)
    tree = any(node.parent != i - 1 for i, node in enumerate(each.nodes))
    rows = "".join(
        _node(node, each.rule, lenience, depth[i] if tree else 0)
        for i, node in enumerate(each.nodes)
    )
    top = "".join(f"<th>{name}</th>" for name in _HEAD)
    return f'<table class="nodes"><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>'


def _node(node: Node, rule: Rule, lenience: float, depth: int) -> str:
    kind = {"accepted": "accepted", "rejected": "refused", "unused": "unused"}[node.state]
    margin = words.margin(node, rule)
    cells = (
        words.verdict(node, rule, lenience),
        words.chance(node.p),
        words.chance(node.q),
        "" if margin is None else f"{margin:+.3f}",
        "" if node.sure is None else words.chance(node.sure),
    )
    shown = "".join(
        f'<td data-head="{name}">{safe(text)}</td>'
        for name, text in zip(_HEAD[1:], cells, strict=True)
    )
    chip = f'<span class="chip {kind}">{safe(words.token(node.text, node.id))}</span>'
    return f'<tr><td class="token" style="padding-left: {depth}rem">{chip}</td>{shown}</tr>'


def _last(each: RoundTrace) -> str:
    """The target's own token."""
    parts: list[str] = []
    for said in each.emitted[each.accepted :]:
        shown = safe(words.token(said.text, said.id))
        chip = f'<span class="chip {said.origin}">{shown}</span>'
        parts.append(f"<p>Then {chip} of the target, {said.origin}, p {words.chance(said.p)}.</p>")
    return "".join(parts)
