"""The little HTML that a report needs. All of it is XML, too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files

_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def words(text: str) -> str:
    """Any text as content or as the value of an attribute; what XML cannot hold as U+FFFD."""
    return escape(_UNFIT.sub("\ufffd", text))


def document(title: str, body: str, *sheets: str) -> str:
    """A whole page. `sheets`: style sheets, as text, which may hold neither "&" nor "<": HTML reads
    them as they are, XML would not."""
    style = "\n".join(sheets)
    if "&" in style or "<" in style:
        raise ValueError("a style sheet holds & or <")
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{words(title)}</title><style>{style}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


def sheet(package: str, name: str) -> str:
    """A style sheet that lies in `package`."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def section(title: str, body: str, said: str = "") -> str:
    """A headline, what stands under it, and a paragraph."""
    below = paragraph(said) if said else ""
    return f"<section><h2>{words(title)}</h2>{body}{below}</section>"


def paragraph(text: str) -> str:
    return f"<p>{words(text)}</p>"


def table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Words and figures. Each cell knows its column, for screens too narrow to show it as one."""
    top = "".join(f'<th data-head="{words(cell)}">{words(cell)}</th>' for cell in head)
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td data-head="{words(name)}">{words(cell)}</td>'
            for name, cell in zip(head, row, strict=True)
        )
        + "</tr>"
        for row in body
    )
    return (
        '<div class="scroll"><table class="figures">'
        f"<thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
