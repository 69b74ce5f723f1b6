"""A trace on a terminal: the answer, round by round, and what it comes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from paceline.cli.trace import summary, words
from paceline.text.trace import RoundTrace, Trace

ORIGINS = {"accepted": "green", "recovered": "yellow", "bonus": "cyan", "plain": ""}
_ELSEWHERE = 160  # columns where nobody says how many there are
_NARROW = 100
_PROMPT = 200  # characters of the prompt that are shown
_UNUSED = 6  # unused tokens of a draft that are shown


def show(trace: Trace) -> None:
    """Print it; coloured only where a person looks, and marked elsewhere."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_ELSEWHERE)
    plain = not console.is_terminal or console.no_color
    header = trace.header
    console.print(Text(str(header.get("model", "?")), style="bold"), end="  ")
    console.print(Text(words.settings(header)))
    console.print(Text(words.made(header), style="dim"))
    prompt = words.lines(" ".join(str(header.get("prompt", "")).split()))
    short = prompt if len(prompt) <= _PROMPT else prompt[:_PROMPT] + "…"
    console.print(Text(f"prompt ({header.get('prompt_tokens')} tokens): {short}", style="dim"))
    console.print()
    console.print(_answer(trace))
    console.print(_rounds(trace, plain, console.width < _NARROW))
    console.print(Text(_key(plain), style="dim"))
    for rule in dict.fromkeys(each.rule for each in trace.rounds if each.nodes):
        console.print(Text(f"{rule}: {words.RULES[rule]}.", style="dim"))
    console.print()
    _summary(console, trace)
    for note in trace.notes:
        console.print(Text(f"note: {note}", style="yellow"))


def _answer(trace: Trace) -> Text:
    return Text.assemble(
        *(
            (words.lines(token.shown), ORIGINS[token.origin])
            for each in trace.rounds
            for token in each.emitted
        )
    )


def _key(plain: bool) -> str:
    if plain:
        return "a b accepted · ~c~ refused · (d) not needed · +e recovered · *f bonus · g plain"
    return "green accepted · struck refused · (grey) not needed · yellow recovered · cyan bonus"


def _rounds(trace: Trace, plain: bool, narrow: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("round", "at", "n/K"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("tokens", ratio=4, overflow="fold")
    table.add_column("the first refusal", ratio=4, overflow="fold")
    if not narrow:
        table.add_column("why so many", ratio=3, overflow="fold")
        table.add_column("ms: draft + target + rest", justify="right", no_wrap=True)
    for each in trace.rounds:
        table.add_row(*_row(trace.header, each, plain, narrow))
    return table


def _row(
    header: Mapping[str, Any], each: RoundTrace, plain: bool, narrow: bool
) -> list[str | Text]:
    lenience = float(header.get("lenience", 1.0))
    cells: list[str | Text] = [
        str(each.number),
        str(each.position),
        f"{each.accepted}/{each.drafted}" if each.nodes else "-",
        tokens(each, plain),
        Text(words.refused(each.rejected, each.rule, lenience)),
    ]
    if narrow:
        return cells
    seconds = each.seconds
    parts = [words.ms(s) for s in (seconds.draft, seconds.target, seconds.overhead)]
    return [*cells, Text(words.why(header, each), style="dim"), " + ".join(parts)]


def tokens(each: RoundTrace, plain: bool) -> Text:
    """The tokens of a round: those that were accepted, refused and not needed, and the target's."""
    parts: list[Text] = []
    unused = [node for node in each.nodes if node.state == "unused"]
    for node in each.nodes:
        if node.state == "accepted":
            parts.append(Text(words.token(node.text, node.id), style="green"))
    for node in each.rejected:
        shown = words.token(node.text, node.id)
        parts.append(Text(f"~{shown}~") if plain else Text(shown, style="red strike"))
    if unused:
        first = " ".join(words.token(node.text, node.id) for node in unused[:_UNUSED])
        more = f" +{len(unused) - _UNUSED}" if len(unused) > _UNUSED else ""
        parts.append(Text(f"({first}{more})", style="bright_black"))
    for said in each.emitted[each.accepted :]:
        mark = {"recovered": "+", "bonus": "*"}.get(said.origin, "") if plain else ""
        shown = mark + words.token(said.text, said.id)
        parts.append(Text(shown, style=f"{ORIGINS[said.origin]} bold".strip()))
    if each.finish:
        parts.append(Text(f"[{each.finish}]", style="dim"))
    return Text(" ").join(parts)


def _summary(console: Console, trace: Trace) -> None:
    stats, grid = trace.stats, Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    rate = summary.rate(trace)
    fast = "" if rate is None else f", {rate:.1f} tokens/s behind the first round"
    grid.add_row("in all", f"{stats.emitted} tokens in {stats.rounds} rounds{fast}")
    if stats.drafted and stats.alpha is not None:
        counts = f"{stats.accepted} of {stats.drafted} drafted accepted"
        grid.add_row("τ, α", f"{stats.tau:.2f}, {stats.alpha:.2f} ({counts})")
        each = zip(stats.alpha_at, stats.tested, strict=True)
        at = " · ".join(f"{i}: {a:.2f} ({n})" for i, (a, n) in enumerate(each, 1))
        grid.add_row("α by position", f"{at}  (how often it was tested)")
    windows = " · ".join(f"{k}: {n}" for k, n in summary.windows(trace).items())
    grid.add_row("drafted tokens", f"{windows}  (rounds)")
    whole = stats.draft_s + stats.target_s + stats.overhead_s
    parts = {"draft": stats.draft_s, "target": stats.target_s, "rest": stats.overhead_s}
    shares = (f"{name} {s:.2f} s ({s / whole:.0%})" for name, s in parts.items() if whole)
    grid.add_row("time", " · ".join(shares))
    base = summary.worth(trace)
    for i, loss in enumerate(summary.losses(trace)):
        lost = Text(f"round {loss.round}: {words.ms(loss.seconds)} ms; {loss.why}")
        grid.add_row("lost most" if not i else "", lost)
    if base is not None:
        grid.add_row("", f"against plain decoding, {words.ms(base.seconds)} ms a token, {base.how}")
    console.print(grid)
