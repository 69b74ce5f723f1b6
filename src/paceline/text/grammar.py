"""What an output must match: JSON, a JSON schema, or a grammar of your own.

A grammar masks what the target may say next, at every position from the prefix of that position,
and so is part of p. Every token is allowed that keeps the text a beginning of one that matches,
whichever way it is spelled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from paceline.errors import MissingExtra, PacelineError
from paceline.text.marker import Marker, Outside, Trigger
from paceline.text.matching import Follower, Inside, Words
from paceline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

# Between two parts of a JSON text: nothing, a space, or a new line and its indent. Any whitespace,
# as JSON has it, is where models get caught for ever.
_BLANK = r"[ ]?|\n[ \t]{0,40}"
# In how many ways a text may be read before its grammar counts as too complex. The time for a token
# grows with the square: 12 ms here. An object of 200 optional properties fits.
_AMBIGUITY = 1000
# Else llguidance leaves only one way to spell what has to follow, which is no part of p.
_ANY_SPELLING = '\n%llguidance {"no_forcing": true}\n'


class Text:
    """A `core.protocols.Grammar` that the whole output matches, compiled for one tokenizer."""

    def __init__(self, compiled: LLMatcher, words: Words) -> None:
        self._compiled, self._words = compiled, words

    def start(self) -> Follower:
        """See `Grammar.start`."""
        return Follower(Inside(self.fresh, self._words), self._words)

    def fresh(self) -> LLMatcher:
        """A matcher of its own, at the start."""
        return self._compiled.deep_copy()


class After:
    """A `core.protocols.Grammar` for what follows a marker; see `Grammars.after`."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger = trigger

    def start(self) -> Follower:
        """See `Grammar.start`."""
        return Follower(Outside(self._trigger), self._trigger.words)


class Grammars:
    """Makes grammars for the outputs of one tokenizer. Building it takes a moment (0.3 s for 150k
    tokens): keep it.

    What cannot be used raises PacelineError in one line: a schema or a grammar that is broken, that
    asks for what llguidance cannot do, or that no text matches. MissingExtra without the extra
    "grammar".
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        try:
            import llguidance  # noqa: F401
        except ImportError:
            raise MissingExtra("constrained output", "grammar") from None
        self._words = Words(tokenizer)
        self._marker = lru_cache(maxsize=16)(lambda text: Marker(text, self._words))
        self._lark = lru_cache(maxsize=64)(self._compile)

    def json_object(self) -> Text:
        """Any JSON object."""
        return self.json_schema({"type": "object"})

    def json_schema(self, schema: Mapping[str, Any]) -> Text:
        """JSON that is valid under `schema`, its properties in the order in which they are listed.
        Between its parts stands at most a space, or a line break and up to 40 blanks; characters
        stand in strings as they are, not as \\u and a number."""
        return self._make(f"start: {json_rule(schema)}", "the JSON schema")

    def lark(self, text: str) -> Text:
        """A grammar in llguidance's dialect of Lark; `start` is what the output is."""
        if not isinstance(text, str):
            raise PacelineError(f"a grammar must be text, not {text!r}")
        return self._make(text, "the grammar")

    def after(self, marker: str, grammar: Text) -> After:
        """Free text, in which `grammar` must follow wherever `marker` stands; where that may end,
        free text goes on. Text before the marker, and an output without it, are as if there were no
        grammar. A token may end the marker and begin the grammar, but not run over its end."""
        if not marker:
            raise PacelineError("the marker in front of a grammar is empty: give some text")
        return After(Trigger(self._marker(marker), grammar.fresh, self._words))

    def _make(self, lark: str, what: str) -> Text:
        return Text(self._lark(lark, what), self._words)

    def _compile(self, lark: str, what: str) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        matcher = LLMatcher(
            self._words.tokenizer,
            LLMatcher.grammar_from_lark(lark + _ANY_SPELLING),
            log_level=0,
            limits=LLParserLimits(max_items_in_row=_AMBIGUITY),
        )
        reader = Inside(matcher.deep_copy, self._words)
        possible = matcher.is_error() or reader.may_end() or reader.strictly().any()
        if matcher.is_error():
            raise PacelineError(f"{what} cannot be used: {_reason(matcher.get_error())}")
        if not possible:
            raise PacelineError(f"{what} cannot be used: no token of this model begins it")
        return matcher


def json_rule(schema: object) -> str:
    """JSON that is valid under `schema`, as part of a rule in Lark. Raises PacelineError if it is
    no schema."""
    if not isinstance(schema, Mapping):
        raise PacelineError(f"a JSON schema must be an object, not {_short(schema)}")
    try:
        text = json.dumps({"x-guidance": {"whitespace_pattern": _BLANK}, **schema}, allow_nan=False)
    except RecursionError:
        raise PacelineError("the JSON schema cannot be used: it is nested too deeply") from None
    except (TypeError, ValueError) as error:
        raise PacelineError(f"the JSON schema cannot be used: {error}") from None
    return f"%json {text}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _reason(error: str) -> str:
    """The first line of llguidance's message, without what we wrapped around a schema."""
    line = error.strip().split("\n", 1)[0]
    _, found, inner = line.partition("failed to compile JSON schema: ")
    line = inner if found else line
    return line if len(line) <= 300 else f"{line[:297]}..."
