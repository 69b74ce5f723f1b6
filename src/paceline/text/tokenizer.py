"""Text to ids and back, the same from a Hugging Face folder and from a GGUF file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from paceline.errors import PacelineError
from paceline.text.vocabulary import Kind, Vocabulary

_TEXTLESS = (Kind.UNKNOWN, Kind.CONTROL, Kind.UNUSED)
_ADDED = (*_TEXTLESS, Kind.USER)
# How models name tokens that they keep for later.
_SPARE_NAME = re.compile(r"unused|reserved|dummy|placeholder|\[PAD", re.IGNORECASE)


class TokenDiff(NamedTuple):
    """What `Tokenizer.same_tokens` found. `first`: the first id that means something else to the
    other tokenizer, None if the two can serve as target and drafter. `message`: one line that says
    so; with `first` None a warning, or "" where there is nothing to say."""

    first: int | None
    message: str


class Tokenizer:
    """A vocabulary with its rules.

    `size`: ids 0 to size - 1 are known; a model's output may be wider, and what it has at or past
    `size` is padding. `bos_id`: None if there is none. `add_bos`: whether a prompt begins with it.
    `eos_ids`: each of these ends an answer; the first is the one that chat templates call
    `eos_token` (empty: nothing does). `chat_template`: Jinja source, or None for a base model.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokens, self._kinds = vocabulary.tokens, vocabulary.kinds
        self._spell, self._encode = vocabulary.spell, vocabulary.encode
        self._bytes: dict[int, bytes] = {}  # of tokens that were asked for
        self.size = len(vocabulary.tokens)
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.eos_ids
        self.add_bos = vocabulary.add_bos and vocabulary.bos_id is not None
        self.chat_template = vocabulary.chat_template

    @classmethod
    def from_folder(cls, path: str | os.PathLike[str]) -> Tokenizer:
        """From a Hugging Face folder with `tokenizer.json`. Raises PacelineError: no such file, or
        a tokenizer of a kind that language models do not use."""
        from paceline.text.folder_vocab import folder_vocabulary

        return cls(folder_vocabulary(Path(path)))

    @classmethod
    def from_gguf(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> Tokenizer:
        """From a GGUF file, or from its metadata as `read_metadata` gives it. Ids are those of
        llama.cpp. Raises PacelineError: unreadable file, or a tokenizer of an unknown kind."""
        from paceline.models.gguf_meta import read_metadata
        from paceline.text.gguf_vocab import gguf_vocabulary

        metadata = source if isinstance(source, Mapping) else read_metadata(source)
        return cls(gguf_vocabulary(metadata))

    def encode(self, text: str, special: bool = True) -> list[int]:
        """The ids of `text`, never with a BOS added. With `special`, the text of a control token
        (`<|im_end|>`) is that token; without, it is text like any other.

        Raises PacelineError if `text` cannot be UTF-8 (half of a surrogate pair).
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PacelineError(
                f"the text is not valid Unicode: half a character (U+{ord(text[error.start]):04X})"
                f" at position {error.start}; was it read in the right encoding?"
            ) from None
        return self._encode(text, special)

    def prompt(self, text: str) -> list[int]:
        """The ids to feed for a prompt: `encode(text)`, with exactly one BOS in front where the
        model wants one, also when the text begins with it. Raises PacelineError as `encode` does,
        and where no id is left to start from (no text and no BOS)."""
        ids = self.encode(text)
        if self.add_bos and self.bos_id is not None:
            start = next((at for at, i in enumerate(ids) if i != self.bos_id), len(ids))
            ids = [self.bos_id, *ids[start:]]
        if not ids:
            raise PacelineError("the prompt is empty; give this model at least one character")
        return ids

    def decode(self, ids: Iterable[int], skip_special: bool = True) -> str:
        """The text of `ids`: their bytes, joined, as UTF-8, where what is no character becomes
        U+FFFD. Nothing is trimmed, so the text of a list is that of its parts. Control tokens have
        no text, or without `skip_special` their name."""
        named = not skip_special
        parts = (
            self.token_text(i).encode() if named and self.is_special(i) else self.token_bytes(i)
            for i in ids
        )
        return b"".join(parts).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Exactly the bytes that this token adds to the text: none for control and padding tokens
        and for ids that the tokenizer does not know."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._spelled(token_id)
        return known

    def _spelled(self, token_id: int) -> bytes:
        if self.is_special(token_id):
            return b""
        token = self._tokens[token_id]
        return token.encode() if self._kinds[token_id] == Kind.USER else self._spell(token)

    def token_text(self, token_id: int) -> str:
        """The token as the vocabulary writes it (`Ġthe`, `▁the`, `<|im_end|>`), for messages and
        templates; "" for an id that it does not know."""
        return self._tokens[token_id] if 0 <= token_id < self.size else ""

    def is_special(self, token_id: int) -> bool:
        """Whether the id is a control token, padding or unknown: one without text."""
        return not 0 <= token_id < self.size or self._kinds[token_id] in _TEXTLESS

    def same_tokens(self, other: Tokenizer) -> TokenDiff:
        """Compare two tokenizers as maps from id to token over the ids that both know.

        Sizes may differ: models pad their vocabularies. Nor does it count when ids differ that no
        text and no template uses (padding; control tokens other than BOS, EOS and those of the
        chat template); the message then warns of it.
        """
        mine, theirs = self._tokens, other._tokens
        spelled_alike = self._spell is other._spell
        harmless: list[int] = []
        for i, (a, b) in enumerate(zip(mine, theirs, strict=False)):
            if (a == b and spelled_alike) or self._means_the_same(i, other):
                continue
            if not self._is_harmless(i, other):
                return TokenDiff(i, f"token {i} is {a!r} in one vocabulary and {b!r} in the other")
            harmless.append(i)
        if not harmless:
            return TokenDiff(None, "")
        i, several = harmless[0], len(harmless) > 1
        what = f"{len(harmless)} unused tokens differ" if several else "one unused token differs"
        where = f"(id {i}: {mine[i]!r}, {theirs[i]!r})"
        return TokenDiff(None, f"{what} in the two vocabularies {where}")

    def _means_the_same(self, i: int, other: Tokenizer) -> bool:
        if self.is_special(i) or other.is_special(i):
            return self._tokens[i] == other._tokens[i]
        return self.token_bytes(i) == other.token_bytes(i)

    def _is_harmless(self, i: int, other: Tokenizer) -> bool:
        if self._is_spare(i) or other._is_spare(i):
            return True
        return (
            self.is_special(i) and other.is_special(i) and not self._uses(i) and not other._uses(i)
        )

    def _is_spare(self, i: int) -> bool:
        kind, name = self._kinds[i], self._tokens[i]
        return kind == Kind.UNUSED or (kind in _ADDED and bool(_SPARE_NAME.search(name)))

    def _uses(self, i: int) -> bool:
        in_template = bool(self.chat_template) and self._tokens[i] in str(self.chat_template)
        return i == self.bos_id or i in self.eos_ids or in_template
