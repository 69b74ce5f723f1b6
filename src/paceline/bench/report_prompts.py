"""Every prompt's answer, its tokens coloured by origin."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from paceline.bench.recorded import Pair
from paceline.page.html import words

ORIGINS = {
    "accepted": "drafted, and accepted by the target",
    "recovered": "the target's own, in place of a drafted token that it rejected",
    "bonus": "the target's own, behind a draft that was accepted whole",
    "plain": "the target's own, where nothing was drafted",
}


def answers(pairs: Sequence[Pair]) -> str:
    """By category, the fastest first; the first is open, others open on a click."""
    legend = "".join(
        f'<li><b class="{name}">{name}</b> {words(said)}</li>' for name, said in ORIGINS.items()
    )
    kinds = sorted(pairs, key=lambda pair: (pair.category, -pair.speedup))
    groups = "".join(
        f"<h3>{words(name)}</h3>{''.join(_answer(pair, pair is kinds[0]) for pair in group)}"
        for name, group in groupby(kinds, key=lambda pair: pair.category)
    )
    return f'<ul class="origins">{legend}</ul><div class="answers">{groups}</div>'


def _answer(pair: Pair, shown: bool) -> str:
    side = pair.drafted
    said = f"{pair.speedup:.2f}x, τ {_number(side.tau)}, α {_number(side.alpha)}, "
    said += f"{side.tokens} tokens"
    said += "" if pair.same is not False else "; not plain decoding's tokens"
    body = _tokens(side.made) or "<p>Its tokens were not written down.</p>"
    if pair.same is False and pair.plain.made:
        body += f"<p>Plain decoding's:</p>{_tokens(pair.plain.made)}"
    head = f"<summary><span>{words(pair.prompt)}</span> <small>{said}</small></summary>"
    opened = ' open="open"' if shown else ""
    return f"<details{opened}>{head}{body}</details>"


def _tokens(made: Sequence[tuple[str, str]]) -> str:
    if not made:
        return ""
    return f'<div class="tokens">{"".join(_spelt(*each) for each in made)}</div>'


def _spelt(text: str, origin: str) -> str:
    """The space around a word is no part of what is coloured, nor underlined."""
    word = text.strip()
    if not word or origin not in ORIGINS:
        return words(text)
    before, after = text.split(word, 1)
    return f'{words(before)}<i class="{origin}">{words(word)}</i>{words(after)}'


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
