"""Which prompts a bench asks: the built-in ones, or those of files; all, or a few of each sort."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

from paceline.errors import PacelineError, unknown

BUILTIN = "builtin"
_QUICK = 2  # prompts of a category, where a suite does not say which are the quick ones

Message = Mapping[str, str]


@dataclass(frozen=True)
class Prompt:
    """`name`: its own in the suite. `messages`: a conversation that ends with a user's turn; one
    that `follows` another prompt goes on behind that one's answer. `quick`: one of the few."""

    name: str
    category: str
    messages: Sequence[Message]
    follows: str | None = None
    quick: bool = False


def suite(
    sources: Sequence[str],
    *,
    quick: bool = False,
    limit: int | None = None,
    categories: Sequence[str] = (),
) -> list[Prompt]:
    """The prompts of `sources`, "builtin" or files; the categories take turns, so that the first
    `limit` of them are of all sorts. `quick`: two of each. Raises PacelineError for what cannot be
    read, categories that are not there, and names that come twice."""
    from paceline.bench.readers import read

    prompts: dict[str, Prompt] = {}
    for source in sources:
        for prompt in builtin() if source == BUILTIN else read(source):
            if prompt.name in prompts:
                raise PacelineError(f"{source} has a second prompt that is called {prompt.name!r}")
            prompts[prompt.name] = prompt
    known = list(dict.fromkeys(prompt.category for prompt in prompts.values()))
    for category in categories:
        if category not in known:
            raise unknown("category", category, known)
    wanted = categories or known
    groups = [[p for p in prompts.values() if p.category == category] for category in wanted]
    if quick:
        groups = [[p for p in group if p.quick] or group[:_QUICK] for group in groups]
    if limit is not None and limit < 1:
        raise PacelineError(f"--limit must be at least 1, not {limit}")
    return [p for turn in zip_longest(*groups) for p in turn if p is not None][:limit]


def builtin() -> list[Prompt]:
    """The suite that was written for this project."""
    text = files("paceline.bench").joinpath("builtin.jsonl").read_text(encoding="utf-8")
    return [
        Prompt(raw["name"], raw["category"], user(raw["prompt"]), quick=raw.get("quick", False))
        for raw in map(json.loads, text.splitlines())
    ]


def user(text: str) -> list[Message]:
    """A conversation of one turn."""
    return [{"role": "user", "content": text}]


def title(sources: Sequence[str]) -> str:
    """What a suite is called."""
    return "+".join(source if source == BUILTIN else Path(source).name for source in sources)


def fingerprint(prompts: Sequence[Prompt]) -> str:
    """The same for the same prompts in the same order, and for no others."""
    text = json.dumps([asdict(prompt) for prompt in prompts], sort_keys=True)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
