"""Between two vocabularies: the tokens that they share, and the ids of one for those of the other.

Tokens are compared by what they add to the text, as bytes (`Ġthe` and `▁the` are one string), and
control tokens by their name. Text that is valid goes through the tokenizers; bytes that are no
character (half of one, at the end) go through the tokens of single bytes.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from paceline.errors import PacelineError
from paceline.text.tokenizer import Tokenizer
from paceline.text.vocabulary import is_byte_token

_SHORT = 32  # target tokens that a chunk has at least: so much is encoded anew each round
_LONG = 256  # and at most, where the text never offers a place to cut
_STRAY = re.compile("([\udc80-\udcff])")  # a byte that is no character, as Python escapes it


class Translation:
    """Between a target's tokenizer and a draft model's, ids below `target_size` and `draft_size`.

    `to_target[d]`: the target's id of the same string as the draft's id d, -1 if it has none;
    `to_draft[t]` likewise. Of several ids that spell the same, the one of the same number, else the
    one that text is made of (not a byte token). `shared`: how many different strings both know.
    """

    def __init__(
        self, target: Tokenizer, draft: Tokenizer, target_size: int, draft_size: int
    ) -> None:
        self._target = _Side(target, target_size)
        self._draft = _Side(draft, draft_size)
        self.to_target = self._draft.ids_in(self._target)
        self.to_draft = self._target.ids_in(self._draft)
        self.shared = len(self._target.named.keys() & self._draft.named.keys())
        self._bos = [draft.bos_id] if draft.add_bos and draft.bos_id is not None else []
        self._target_bos = target.bos_id if target.add_bos else None
        self._apart = sorted(
            (key, i)
            for i, key in enumerate(self._draft.keys)
            if isinstance(key, bytes) and self.to_target[i] < 0
        )
        self._of_chunk = lru_cache(maxsize=256)(self._read_chunk)
        self._longer = lru_cache(maxsize=4096)(self._find_longer)

    def message(self, target: str, draft: str) -> str:
        """One line on the overlap for models of these names."""
        own = 100 * self.shared / max(1, len(self._draft.named))
        of_target = 100 * self.shared / max(1, len(self._target.named))
        return (
            f"{draft} drafts for {target} through {self.shared:,} shared tokens "
            f"({own:.0f} % of its own, {of_target:.0f} % of {target}'s)"
        )

    def read(self, tokens: Sequence[int], first: bool) -> tuple[int, list[int], list[int]]:
        """The draft's ids for the target's `tokens`, which begin at the beginning (`first`) or
        where an earlier call settled everything before: how many of `tokens` are settled, the ids
        for these, which no later token changes, and the ids for the others.

        A function of the whole sequence, however it is cut into calls. Between control tokens the
        text is taken in chunks that end before a word; one whose tokens are those that the target's
        tokenizer makes of its text is read as the draft's tokenizer reads it. From the first token
        that is not, it is read token for token where both know the token. A control token that the
        draft does not have is read as the text of its name.
        """
        start, ids = 0, list(self._bos if first else ())
        if first and tokens and tokens[0] == self._target_bos:
            start = 1
        settled = ids if start else []
        held = [] if start else ids
        for i in range(start, len(tokens)):
            token = tokens[i]
            if self._target.is_special(token):
                settled += held + self._chunk(tokens[start:i]) + self._marker(token)
                held, start = [], i + 1
            elif i - start >= _SHORT and (i - start >= _LONG or self._starts_word(tokens, i)):
                settled += held + self._chunk(tokens[start:i])
                held, start = [], i
        return start, settled, held + self._chunk(tokens[start:])

    def ends(self, draft_id: int) -> bool:
        """Whether a draft ends with this id: a token without text."""
        return self._draft.is_special(draft_id)

    def rewrite(self, tail: Sequence[int], drafted: Sequence[int]) -> list[int]:
        """The target's ids for what the draft model proposes in its own, behind the target's
        tokens `tail`, those that `read` did not settle.

        They are what the target's tokenizer makes of the text behind `tail`: in one piece with it
        if that leaves `tail` as it is, else on its own. Where `drafted` is not how its own
        tokenizer writes that text, token for token. A control token at the end is proposed if the
        target has it too. What the target cannot spell ends the draft.
        """
        end: list[int] = []
        if drafted and self.ends(drafted[-1]):
            end = [t for t in [self.to_target[drafted[-1]]] if t >= 0]
            drafted = drafted[:-1]
        if not drafted:
            return end
        own, other = self._draft, self._target
        behind = other.bytes_of(tail)
        whole = len(drafted)
        while whole and not _complete(behind + own.bytes_of(drafted[:whole])):
            whole -= 1
        ids = self._rewrite_text(tail, drafted[:whole])
        for token in drafted[whole if ids is not None else 0 :]:
            t = self.to_target[token]
            more = [t] if t >= 0 else other.exactly(own.bytes_of([token]))
            if more is None:
                return ids or []
            ids = (ids or []) + more
        return (ids or []) + end

    def longer(self, draft_id: int) -> Mapping[int, int]:
        """Draft ids that begin with the string of `draft_id` and go on, though the target has no
        such token, and for each the target's id of what it adds (-1: the target has none).

        A text of the target's may end where one of these is the draft's usual token for it and what
        follows (":" and a line break, where the draft joins the line break to the spaces behind).
        The draft model expects the whole of it, and nothing else that begins with what it adds.
        """
        return self._longer(draft_id)

    def added(self, draft_id: int, longer: int) -> list[int]:
        """The draft's ids for what its token `longer` adds to the string of `draft_id`; none where
        it cannot spell that."""
        own = self._draft
        return own.exactly(own.bytes_of([longer])[len(own.bytes_of([draft_id])) :]) or []

    def _find_longer(self, draft_id: int) -> dict[int, int]:
        own, other = self._draft, self._target
        string = own.bytes_of([draft_id])
        if not string[-1:].isspace():
            return {}
        start = bisect_right(self._apart, (string, len(own.keys)))
        found: dict[int, int] = {}
        for key, i in self._apart[start:]:
            if not key.startswith(string):
                break
            found[i] = other.named.get(key[len(string) :], -1)
        return found

    def _rewrite_text(self, tail: Sequence[int], drafted: Sequence[int]) -> list[int] | None:
        """`rewrite` by text; None where `drafted` is not how its tokenizer writes that text."""
        own, other = self._draft, self._target
        text = own.bytes_of(drafted)
        before = self._chunk(tail)
        if own.exactly(own.bytes_of(before) + text) == [*before, *drafted]:
            joined = other.exactly(other.bytes_of(tail) + text)
            if joined is not None and joined[: len(tail)] == list(tail):
                return joined[len(tail) :]
        elif own.exactly(text) != list(drafted):
            return None
        return other.exactly(text)

    def _chunk(self, tokens: Sequence[int]) -> list[int]:
        return list(self._of_chunk(tuple(tokens)))

    def _read_chunk(self, tokens: tuple[int, ...]) -> list[int]:
        usual = self._target.exactly(self._target.bytes_of(tokens)) or []
        pairs = zip(usual, tokens, strict=False)
        same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(usual), len(tokens)))
        ids = self._draft.nearly(self._target.bytes_of(tokens[:same]))
        for token in tokens[same:]:
            d = self.to_draft[token]
            ids += [d] if d >= 0 else self._draft.nearly(self._target.bytes_of([token]))
        return ids

    def _marker(self, token: int) -> list[int]:
        d = self.to_draft[token] if token < len(self.to_draft) else -1
        return [d] if d >= 0 else self._draft.nearly(self._target.name(token).encode())

    def _starts_word(self, tokens: Sequence[int], i: int) -> bool:
        """Whether a space and a letter begin at token i behind no other space: where every
        tokenizer cuts."""
        now, before = (
            self._target.bytes_of(tokens[i : i + 1]),
            self._target.bytes_of([tokens[i - 1]]),
        )
        letter = now[1:2]
        follows = letter.isalpha() or letter >= b"\x80"
        return now[:1] == b" " and follows and not before[-1:].isspace()


class _Side:
    """One of the two tokenizers. `named`: for each string (bytes: text; str: the name of a control
    token) the id that stands for it."""

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        self._tokenizer, self._size = tokenizer, size
        known = range(min(tokenizer.size, size))
        self._bytes = [tokenizer.token_bytes(i) for i in known]
        self._special = [not data and tokenizer.is_special(i) for i, data in enumerate(self._bytes)]
        self.keys: list[bytes | str] = [
            data or (self.name(i) if special else b"")
            for i, (data, special) in enumerate(zip(self._bytes, self._special, strict=True))
        ]
        self.named: dict[bytes | str, int] = {}
        single = [i for i, data in enumerate(self._bytes) if len(data) == 1]
        byte_tokens = {i for i in single if is_byte_token(self.name(i))}
        for i, key in enumerate(self.keys):
            if key and i not in byte_tokens:
                self.named.setdefault(key, i)
        for i in byte_tokens:
            self.named.setdefault(self.keys[i], i)

    def ids_in(self, other: _Side) -> list[int]:
        """For each id of this side the other's id of the same string, or -1."""
        return [
            i if i < len(other.keys) and other.keys[i] == key and key else other.named.get(key, -1)
            for i, key in enumerate(self.keys)
        ] + [-1] * (self._size - len(self.keys))

    def name(self, token: int) -> str:
        return self._tokenizer.token_text(token)

    def is_special(self, token: int) -> bool:
        return token >= len(self._special) or self._special[token]

    def bytes_of(self, tokens: Iterable[int]) -> bytes:
        known = len(self._bytes)
        return b"".join([self._bytes[i] for i in tokens if i < known])

    def exactly(self, data: bytes) -> list[int] | None:
        """Ids that spell `data` to the byte; None if there are none."""
        ids: list[int] = []
        for part in _STRAY.split(data.decode(errors="surrogateescape")):
            more = self._stray(part) if _STRAY.fullmatch(part) else self._text(part)
            if more is None:
                return None
            ids += more
        return ids

    def nearly(self, data: bytes) -> list[int]:
        """Ids that spell `data` as well as the tokenizer can."""
        if (ids := self.exactly(data)) is not None:
            return ids
        return [i for i in self._encode(data.decode(errors="replace")) or () if i < self._size]

    def _stray(self, char: str) -> list[int] | None:
        token = self.named.get(char.encode(errors="surrogateescape"))
        return None if token is None else [token]

    def _text(self, text: str) -> list[int] | None:
        data = text.encode()
        if not data:
            return []
        # some tokenizers put a space in front of all text: a word that follows other text then has
        # to be encoded without its own space, or behind something else
        for fed, front in (
            (text, b""),
            (text[1:], b""),
            ("\n" + text, b"\n"),
            ("\n" + text, b" \n"),
        ):
            ids = self._encode(fed)
            if ids is None or self.bytes_of(ids) != front + data:
                continue
            skipped = 0
            while len(self.bytes_of(ids[:skipped])) < len(front):
                skipped += 1
            if self.bytes_of(ids[:skipped]) == front and max(ids) < self._size:
                return ids[skipped:]
        return None

    def _encode(self, text: str) -> list[int] | None:
        try:
            return self._tokenizer.encode(text, special=False)
        except PacelineError:  # a character that the vocabulary cannot spell
            return None


def _complete(data: bytes) -> bool:
    """Whether `data` does not end inside a character."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            return back >= 2 + (byte >= 0xE0) + (byte >= 0xF0)
        if byte < 0x80:
            return True
    return True
