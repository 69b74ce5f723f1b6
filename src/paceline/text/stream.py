"""Ids to text while they come, never saying a word that would have to be taken back.

Text is held back while it may yet become something else: bytes that are the beginning of a
character, and characters that are the beginning of a stop string.

Where a stop string ends the text. Reading character by character, the first stop string to be
complete counts (of two that are complete at the same character, the longer). The text ends before
it. The tokens end with the one that completed it: plain decoding had generated just these when it
stopped. So neither depends on how many tokens arrive at once.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from typing import Protocol

from paceline.errors import PacelineError


class SpellsTokens(Protocol):
    """What a stream needs of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...


class TextStream:
    """One answer's text as its tokens come: `push` them in blocks of any size, then `finish`.

    The pieces that `push` and `finish` return, joined, are the answer's text. `kept` counts the
    tokens that belong to it: all pushed so far, or once a stop string is complete those up to the
    one that completed it. `stopped` is that stop string, else None; what is pushed after it is
    ignored. The work of a push is proportional to its own text (times the number of stop strings).

    Raises PacelineError for an empty stop string.
    """

    def __init__(self, tokenizer: SpellsTokens, stop: Sequence[str] = ()) -> None:
        if isinstance(stop, str):
            stop = (stop,)
        if "" in stop:
            raise PacelineError("a stop string is empty; leave it out")
        self.kept = 0
        self.stopped: str | None = None
        self._tokenizer = tokenizer
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        # Longest first, so that of two that are complete at once the longer is found first.
        self._stops = [_StopString(text) for text in sorted(set(stop), key=lambda s: (-len(s), s))]
        self._held = ""

    def push(self, ids: Iterable[int]) -> str:
        """The text that is now certain to belong to the answer and was not returned before."""
        pieces: list[str] = []
        for token_id in ids:
            if self.stopped is not None:
                break
            self.kept += 1
            pieces.append(
                self._advance(self._characters.decode(self._tokenizer.token_bytes(token_id)))
            )
        return "".join(pieces)

    def finish(self) -> str:
        """The rest of the text: what was held back, with a character that never became complete
        as U+FFFD. Nothing if a stop string ended the text. Nothing may be pushed after this."""
        if self.stopped is not None:
            return ""
        text = self._advance(self._characters.decode(b"", final=True))
        if self.stopped is None:
            text, self._held = text + self._held, ""
        return text

    def _advance(self, new: str) -> str:
        """Move over new characters; return what is certain, keep in `_held` what is not."""
        if not self._stops:
            return new
        text = self._held + new
        for at, char in enumerate(new, start=len(self._held) + 1):
            for stop in self._stops:
                if stop.complete_after(char):
                    self.stopped, self._held = stop.text, ""
                    return text[: at - len(stop.text)]
        certain = len(text) - max(stop.begun for stop in self._stops)
        self._held = text[certain:]
        return text[:certain]


class _StopString:
    """Follows a text for one stop string (Knuth, Morris & Pratt 1977): `begun` is the length of
    its longest beginning that the text so far ends with."""

    def __init__(self, text: str) -> None:
        self.text, self.begun = text, 0
        # fall_back[n]: the longest proper beginning of the stop string that its first n characters
        # end with, the next best candidate when the character after them does not fit.
        self._fall_back = [0, 0]
        for char in text[1:]:
            self._fall_back.append(self._extend(self._fall_back[-1], char))

    def complete_after(self, char: str) -> bool:
        """Take one more character of the text; is the stop string now complete?"""
        self.begun = self._extend(self.begun, char)
        return self.begun == len(self.text)

    def _extend(self, begun: int, char: str) -> int:
        while begun and self.text[begun] != char:
            begun = self._fall_back[begun]
        return begun + (self.text[begun] == char)
