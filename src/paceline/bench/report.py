"""`paceline bench --report`: the records of a bench as one page, with everything in it."""

from __future__ import annotations

import shlex
from pathlib import Path

from paceline.bench import figures, heat, length_figures, lengths, report_tables
from paceline.bench.estimates import Estimate
from paceline.bench.findings import ALL, groups, rivals, times
from paceline.bench.recorded import Recorded, load
from paceline.bench.report_prompts import answers
from paceline.bench.report_tables import Rows
from paceline.bench.summary import words as summary
from paceline.errors import PacelineError
from paceline.page.canvas import Canvas
from paceline.page.html import document, section, sheet, table, words

_INTERVAL = "Intervals are 95%, by a bootstrap over prompts (2000 draws, fixed seed)."


def write(records: str | Path, html: str | Path) -> None:
    """Write the page of a record file. Raises PacelineError for what is no such file, and where
    the page cannot be written."""
    made = page(load(Path(records)))
    try:
        Path(html).write_text(made, encoding="utf-8")
    except OSError as error:
        raise PacelineError(f"--report {html} cannot be written: {error.strerror}") from None


def page(recorded: Recorded) -> str:
    """The page: HTML that is XML, too."""
    return _Page(recorded).whole()


class _Page:
    """Numbers figures and tables in the order in which they are asked for."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded = recorded
        self._groups = groups(recorded)
        self._figures = self._tables = 0

    def whole(self) -> str:
        title = f"{self._recorded.word('model') or 'A bench'}: speculative against plain decoding"
        body = (
            self._head(title), self._results(), self._acceptance(), self._time(), self._length(),
            self._sweep(), self._peers(), _reading(), self._answers(), self._how(),
            self._failures(),
        )  # fmt: skip
        sheets = (sheet("paceline.page", "figures.css"), sheet("paceline.bench", "report.css"))
        return document(title, "".join(body), *sheets)

    def _head(self, title: str) -> str:
        recorded = self._recorded
        hardware, commit = recorded.part("hardware"), recorded.word("commit")
        draft, dtype = recorded.word("draft"), recorded.word("dtype")
        where = (
            f"draft {draft}" if draft else "", f"{dtype} weights" if dtype else "",
            str(hardware.get("gpu") or hardware.get("cpu") or ""),
            f"{hardware['threads']} threads" if hardware.get("threads") else "",
            f"commit {commit}" if commit else "", recorded.word("date")[:10],
        )  # fmt: skip
        line = " · ".join(part for part in where if part)
        return (
            f'<header><h1>{words(title)}</h1><p class="where">{words(line)}</p>'
            f'<p class="found">{words(self._found())}</p>{self._keys()}</header>'
        )

    def _found(self) -> str:
        recorded = self._recorded
        said = [summary(recorded)]
        if recorded.choice > 1:
            chosen = ", ".join(f"{name} {value}" for name, value in recorded.cell)
            said.append(
                f"These are the figures of {chosen}, the fastest of {recorded.choice} settings "
                "that were tried: chosen afterwards, so expect a little less elsewhere."
            )
        if recorded.pairs:
            worst = min(recorded.pairs, key=lambda pair: pair.speedup)
            said.append(f"The slowest prompt, {worst.prompt}, ran at {worst.speedup:.2f}x.")
        return " ".join(said)

    def _keys(self) -> str:
        if not self._groups:
            return ""
        group = self._groups[-1]
        _, rows = report_tables.rates([group])
        _, n, plain, drafted, _, _, slower, same = rows[0]
        speedup, whole, tau = group.speedup, group.whole, group.tau
        keys = [
            (f"{speedup.value:.2f}x", "the tokens/s of plain decoding", _between(speedup)),
            (drafted, "tokens/s, median", f"plain {plain}; n = {n}"),
            (
                f"{whole.value:.2f}x" if whole else "–", "with the reading of the prompt",
                _between(whole),
            ),
            (f"{tau.value:.2f}" if tau else "–", "tokens a round, τ", _between(tau)),
            (slower.split(" ")[0], f"of {n} prompts slower than plain", f"same tokens: {same}"),
        ]  # fmt: skip
        each = "".join(
            f'<div><dt>{words(name)}</dt><dd class="value">{words(value)}</dd>'
            f"<dd>{words(more)}</dd></div>"
            for value, name, more in keys
        )
        return f'<dl class="keys">{each}</dl>'

    def _results(self) -> str:
        if not self._groups:
            return ""
        drawn = self._figure(
            figures.speedups(self._groups),
            "A dot is a prompt: tokens/s with the draft over tokens/s without it, both the median "
            f"of the repeats. Below the name the geometric mean. {_INTERVAL}",
        )
        drawn += self._figure(
            figures.taus(self._groups),
            "τ: tokens that a pass of the target brings, its own one counted. A dot is a prompt; "
            "the mean weighs every round alike.",
        )
        body = f'<div class="pair">{drawn}</div>'
        body += self._table(
            report_tables.rates(self._groups),
            "Tokens/s behind the first round, median over prompts; speedup as the geometric mean "
            "over prompts, with its 95% interval where n is 5 or more; once more with the time to "
            "read the prompt; and on how many prompts the draft did harm.",
        )
        body += self._table(
            report_tables.latencies(self._groups),
            "Time to first token and time per output token, p50 / p90 over prompts; τ, α and K "
            "over all rounds.",
        )
        return section("By category", body)

    def _acceptance(self) -> str:
        drawn = self._figure(
            figures.alphas(self._groups),
            "α: of the tokens drafted at a position and tested, the share accepted, with its 95% "
            "interval. Bars: the share of all rounds in which a token was accepted there; with "
            "1 for the target's own they add up to τ.",
        )
        drawn += self._figure(
            figures.windows(self._recorded.pairs),
            "The fastest prompt, one in the middle and the slowest, first repeat: what was "
            "drafted in each round (line) and what of it was accepted (filled).",
        )
        return _section("What is drafted, and what of it is accepted", drawn)

    def _time(self) -> str:
        drawn = self._figure(
            figures.parts(times(self._groups)),
            "All seconds of a part over all tokens, without the reading of prompts. The target's "
            "part shrinks as one pass brings τ tokens; drafting and overhead come on top.",
        )
        drawn += self._figure(
            figures.costs(self._recorded.r),
            "What one pass over n tokens takes, over a pass of one, measured before the bench. "
            "The nearer to 1, the cheaper it is to be wrong.",
        )
        return _section("Where the time goes", drawn)

    def _length(self) -> str:
        pairs = self._recorded.pairs
        if not pairs:
            return ""
        drawn = self._figure(
            length_figures.gains(pairs),
            "A dot is a prompt. The trend, of 5 or more, is straight in the logarithms of both; "
            "categories are mixed here, the text keeps them apart. Dashed: token 100.",
        )
        drawn += self._figure(
            length_figures.along(lengths.stretches(pairs)),
            "Within the answers of 120 tokens or more: plain decoding's time for a stretch over "
            "speculative decoding's. At the foot: how many answers have the whole stretch.",
        )
        drawn += self._figure(
            length_figures.rates(pairs), "Tokens/s of every prompt, both ways. Dashed: token 100."
        )
        said = f'<p class="answer">{words(lengths.answer(pairs))}</p>'
        return section("Does the gain grow with the length of the output?", _grid(said + drawn))

    def _sweep(self) -> str:
        cells = self._recorded.cells
        counts = sorted({len(pairs) for pairs in cells.values()})
        n = (
            "–".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
            if cells
            else ""
        )
        drawn = "".join(
            self._figure(each, f"Geometric mean over {n} prompts a field; bold: the fastest.")
            for each in heat.maps(cells)
        )
        return _section("What the settings change", drawn)

    def _peers(self) -> str:
        if not self._recorded.peers:
            return ""
        together, each = rivals(self._recorded, together=True), rivals(self._recorded)
        drawn = self._figure(
            figures.peers(together),
            "Ours with the draft over each engine and mode, prompt by prompt, in the same run; "
            "right of 1: we are faster.",
        )
        if len({rival.category for rival in each}) > 1:
            each = sorted([*each, *together], key=lambda r: (r.engine, r.mode, r.category == ALL))
        settings = self._table(
            report_tables.settings(together), "In what settings each engine ran."
        )
        body = _grid(drawn + settings) + self._table(
            report_tables.peers(each),
            "n: prompts that both answered. Theirs: the median; ours ÷ theirs: the geometric "
            "mean. Tokens may differ where weights or kernels do: that is noted, no failure.",
        )
        return section("Against other engines", body)

    def _answers(self) -> str:
        pairs = self._recorded.pairs
        return section("The answers", answers(pairs)) if pairs else ""

    def _how(self) -> str:
        facts = "".join(
            f"<div><dt>{words(name)}</dt><dd>{words(value)}</dd></div>"
            for name, value in report_tables.facts(self._recorded)
        )
        argv = self._recorded.run.get("argv")
        command = shlex.join(map(str, argv)) if isinstance(argv, list) else ""
        body = f'<dl class="facts">{facts}</dl>'
        return section(
            "How it was measured", body + (f"<pre>{words(command)}</pre>" * bool(command))
        )

    def _failures(self) -> str:
        failed = [*self._recorded.failures, *self._recorded.refused]
        if not failed:
            return ""
        said = f"{len(failed)} measured nothing and are in no figure above."
        return section("Errors", self._table(report_tables.failures(failed), said))

    def _figure(self, canvas: Canvas | None, said: str) -> str:
        if canvas is None:
            return ""
        self._figures += 1
        name = f"<b>Figure {self._figures}. {words(canvas.title)}.</b> {words(said)}"
        return f"<figure>{canvas.svg()}<figcaption>{name}</figcaption></figure>"

    def _table(self, rows: Rows, said: str) -> str:
        self._tables += 1
        name = f'<p class="caption"><b>Table {self._tables}.</b> {words(said)}</p>'
        return f'<div class="table">{name}{table(*rows)}</div>'


def _reading() -> str:
    """What the words mean."""
    each = (
        ("α", "the chance that a drafted token is accepted, given that those before it were."),
        ("τ", "tokens that one pass of the target brings: the accepted ones and its own. With K "
              "drafted tokens and the same α everywhere, τ = (1 − α^(K+1)) / (1 − α)."),
        ("r(n)", "what a pass over n tokens costs, over a pass of one. It is what verifying costs: "
                 "speedup ≈ τ / (r(K+1) + K·c), where c is what drafting a token costs."),
        ("K", "drafted tokens a round; a controller may choose another in every round."),
    )  # fmt: skip
    body = "".join(
        f"<div><dt>{words(name)}</dt><dd>{words(said)}</dd></div>" for name, said in each
    )
    return section("How to read this", f'<dl class="facts terms">{body}</dl>')


def _section(title: str, drawn: str) -> str:
    return section(title, _grid(drawn)) if drawn else ""


def _grid(drawn: str) -> str:
    return f'<div class="pair">{drawn}</div>' if drawn else ""


def _between(found: Estimate | None) -> str:
    if found is None or found.low is None or found.high is None:
        return ""
    return f"95%: {found.low:.2f}–{found.high:.2f}"
