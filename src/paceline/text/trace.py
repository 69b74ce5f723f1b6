"""What one answer's rounds did: the values that a trace is made of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, get_args

from paceline.controllers.adaptive import Choice
from paceline.core.stats import Stats
from paceline.core.types import Emitted, Finish, Origin, Seconds
from paceline.text.completion import Seen, Token
from paceline.text.decisions import Decision, Rule, State, Verifying, decisions


class Spells(Protocol):
    """What a trace needs of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def token_text(self, token_id: int) -> str: ...


@dataclass(frozen=True)
class Node(Decision):
    """A drafted token and the decision on it. `text`: how it is spelled; `says`: how `said` is;
    `sure`: how sure the drafter was of it, where it tells."""

    text: str = ""
    says: str | None = None
    sure: float | None = None


@dataclass(frozen=True)
class Said:
    """An emitted token. `text`: how it is spelled; `shown`: what became certain of the answer with
    it, so that all of them joined are the answer; `p`: its probability under the target."""

    id: int
    text: str
    shown: str
    origin: Origin
    p: float


@dataclass(frozen=True)
class RoundTrace:
    """One round. `number`: from 1; `position`: tokens before it, the prompt's included; `by`: the
    number of the drafter, of several (None: there is one; -1: none was asked). `drafted`: how many
    tokens of `nodes` could have been accepted at most, which in a tree is fewer than there are.
    `ended_at`: how sure the drafter was of the token that it did not draft any more."""

    number: int
    position: int
    rule: Rule
    by: int | None
    drafted: int
    accepted: int
    nodes: Sequence[Node]
    ended_at: float | None
    emitted: Sequence[Said]
    finish: Finish | None
    choice: Choice | None
    seconds: Seconds

    @classmethod
    def of(
        cls,
        number: int,
        seen: Seen,
        tokens: Sequence[Token],
        how: Verifying,
        tokenizer: Spells,
    ) -> RoundTrace:
        """Round `number`, as it was `seen`, which emitted `tokens` (with their `making`)."""
        draft, row = seen.round.draft, seen.row
        rule, found = decisions(seen, how)
        sure = [] if draft.sure is None else list(draft.sure[row])
        nodes = [
            Node(
                **vars(decision),
                text=spelled(tokenizer, decision.id),
                says=None if decision.said is None else spelled(tokenizer, decision.said),
                sure=sure[i] if i < len(sure) else None,
            )
            for i, decision in enumerate(found)
        ]
        return cls(
            number,
            seen.base,
            rule,
            None if draft.by is None else draft.by[row],
            seen.emitted.drafted,
            seen.emitted.accepted,
            nodes,
            sure[len(nodes)] if len(sure) > len(nodes) else None,
            [
                Said(t.id, spelled(tokenizer, t.id), t.text, t.origin, t.making.p)
                for t in tokens
                if t.making is not None
            ],
            seen.emitted.finish,
            seen.choice,
            seen.round.seconds,
        )

    @property
    def total_s(self) -> float:
        """Seconds of all of it."""
        return self.seconds.draft + self.seconds.target + self.seconds.overhead

    @property
    def rejected(self) -> list[Node]:
        """The drafted tokens that were refused."""
        return [node for node in self.nodes if node.state == "rejected"]

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` takes."""
        choice = None
        if self.choice is not None:
            offers = [[i, *offer] for i, offer in sorted(self.choice.offers.items())]
            choice = {**vars(self.choice), "offers": offers}
        nodes = [vars(node) for node in self.nodes]
        emitted = [vars(token) for token in self.emitted]
        whole = {**vars(self), "nodes": nodes, "emitted": emitted, "choice": choice}
        return {"kind": "round", **whole, "seconds": asdict(self.seconds)}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> RoundTrace:
        """Raises KeyError, TypeError or ValueError for anything else."""
        parts = {name: saved[name] for name in cls.__dataclass_fields__}
        nodes = [_node(node) for node in parts["nodes"]]
        for i, node in enumerate(nodes):
            if not -1 <= node.parent < i or node.state not in get_args(State):
                raise ValueError("no draft")
        if parts["rule"] not in get_args(Rule):
            raise ValueError("no rule")
        emitted = [Said(**_numbers(token, "p")) for token in parts["emitted"]]
        for token in emitted:
            words = isinstance(token.text, str) and isinstance(token.shown, str)
            if token.origin not in get_args(Origin) or not words:
                raise ValueError("no token")
        choice = parts["choice"]
        if choice is not None:
            offers = {int(i): (float(rate), int(window)) for i, rate, window in choice["offers"]}
            tried = None if choice["tried"] is None else int(choice["tried"])
            choice = _numbers(choice, "plain") | {"offers": offers, "tried": tried}
            choice = Choice(**choice)
        seconds = Seconds(**{name: float(value) for name, value in parts["seconds"].items()})
        for name in ("number", "position", "drafted", "accepted"):
            parts[name] = int(parts[name])
        if not 0 <= parts["accepted"] <= min(parts["drafted"], len(emitted)):
            raise ValueError("no count")
        if parts["drafted"] > len(nodes):
            raise ValueError("no draft")
        for name, kind in (("by", int), ("ended_at", float)):
            parts[name] = None if parts[name] is None else kind(parts[name])
        if parts["finish"] not in (None, *get_args(Finish)):
            raise ValueError("no end")
        parts |= {"nodes": nodes, "emitted": emitted, "choice": choice, "seconds": seconds}
        return cls(**parts)


@dataclass(frozen=True)
class Trace:
    """A whole trace. `header` and `end` (None: the run was cut short) are JSON objects; `notes`:
    what was wrong with the file."""

    header: Mapping[str, Any]
    rounds: Sequence[RoundTrace]
    end: Mapping[str, Any] | None = None
    notes: Sequence[str] = field(default_factory=list[str])

    @property
    def stats(self) -> Stats:
        """α, τ and times of all rounds."""
        stats = Stats()
        for each in self.rounds:
            tokens = [token.id for token in each.emitted]
            row = Emitted(tokens, each.drafted, each.accepted, each.finish)
            stats.add(row, each.seconds)
        return stats

    @property
    def text(self) -> str:
        """The answer."""
        return "".join(token.shown for each in self.rounds for token in each.emitted)


def spelled(tokenizer: Spells, token_id: int) -> str:
    """How a token is spelled, one that adds no text as the vocabulary writes it; nothing for an id
    that is none (-1)."""
    if token_id < 0:
        return ""
    text = tokenizer.token_bytes(token_id).decode("utf-8", "replace")
    return text or tokenizer.token_text(token_id)


def _node(saved: Mapping[str, Any]) -> Node:
    known = [name for name in ("u", "need", "gap", "sure") if saved[name] is not None]
    node = Node(**_numbers(saved, "p", "q", *known))
    if not isinstance(node.id, int) or not isinstance(node.text, str):
        raise ValueError("no token")
    return node


def _numbers(saved: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """`saved` with NaN where null stands for a number."""
    numbers = {n: math.nan if saved[n] is None else float(saved[n]) for n in names}
    return {**saved, **numbers}
