"""What a tokenizer file says, in one value: the token of every id and how text becomes ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class Kind(IntEnum):
    """What a token is for; the numbers are those of `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3  # marks structure (BOS, end of turn): has no text of its own
    USER = 4  # added whole to the vocabulary, and is text
    UNUSED = 5  # padding, or a hole in the numbering
    BYTE = 6  # <0x0A>: one byte


@dataclass(frozen=True)
class Vocabulary:
    """`tokens[id]` and `kinds[id]` for each known id; `spell` turns a token's string into bytes;
    `encode(text, special)` turns text into ids without adding a BOS, and reads the text of control
    tokens as those tokens only if `special`. `eos_ids[0]` is the one that templates call
    `eos_token`."""

    tokens: list[str]
    kinds: Sequence[int]
    spell: Callable[[str], bytes]
    encode: Callable[[str, bool], list[int]]
    bos_id: int | None
    eos_ids: tuple[int, ...]
    add_bos: bool
    chat_template: str | None


# Control tokens that end an answer in some model family. A name counts only where the file itself
# says that the token is a control token: many vocabularies hold "</s>" as plain text (HTML).
_ENDS = """
    <|im_end|> <|endoftext|> <|end_of_text|> <|eot_id|> <|eom_id|> <end_of_turn> <|end|> </s> <eos>
    <EOT> [EOT] <end_of_utterance> <｜end▁of▁sentence｜>
"""
END_NAMES = frozenset(_ENDS.split())


def end_ids(tokens: Sequence[str], kinds: Sequence[int], given: Iterable[int]) -> tuple[int, ...]:
    """Every id that ends an answer: those that the files name (`given`, kept first and in order),
    then the control tokens known by name."""
    first = [i for i in dict.fromkeys(given) if 0 <= i < len(tokens)]
    named = [i for i, kind in enumerate(kinds) if kind == Kind.CONTROL and tokens[i] in END_NAMES]
    return tuple(dict.fromkeys(first + named))


def _byte_level_alphabet() -> dict[str, int]:
    """GPT-2's spelling of the 256 bytes: printable ones stand for themselves, the other 68 are
    the characters from U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    rest = (b for b in range(256) if b not in printable)
    return {chr(b): b for b in printable} | {chr(0x100 + n): b for n, b in enumerate(rest)}


_ALPHABET = _byte_level_alphabet()
_HEX_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def byte_level_bytes(token: str) -> bytes:
    """The bytes that a token of a byte-level BPE spells; with other characters it is plain text."""
    try:
        return bytes([_ALPHABET[char] for char in token])
    except KeyError:
        return token.encode()


def sentencepiece_bytes(token: str) -> bytes:
    """The bytes of a SentencePiece token: ▁ is a space and <0x0A> one byte."""
    if byte := _HEX_BYTE.fullmatch(token):
        return bytes([int(byte[1], 16)])
    return token.replace("▁", " ").encode()


def is_byte_token(token: str) -> bool:
    """Whether the token's string is of the form <0x0A>."""
    return _HEX_BYTE.fullmatch(token) is not None


def split_out(text: str, whole: Iterable[tuple[str, int]]) -> list[str | int]:
    """`text` with each occurrence of a `whole` token replaced by its id, in the order given
    (so: longest first); the rest stays as pieces of text, none of them empty."""
    parts: list[str | int] = [text]
    for token, token_id in [pair for pair in whole if pair[0] in text]:
        cut: list[str | int] = []
        for part in parts:
            if isinstance(part, int):
                cut.append(part)
                continue
            head, *tail = part.split(token)
            cut.append(head)
            for piece in tail:
                cut += (token_id, piece)
        parts = cut
    return [part for part in parts if part != ""]
