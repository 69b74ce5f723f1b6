"""Following a grammar: what may come next behind an output, and behind each token drafted for it.

A `Reader` stands somewhere in a text and moves token by token, forwards and back. `Follower` walks
one over the committed output and over the tree of drafted tokens, and always returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from paceline.core.tree import children
from paceline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

Mask = npt.NDArray[np.bool_]  # one for each id


class Words:
    """A tokenizer's vocabulary, made ready for grammars; built once, as it is read in whole.

    To llguidance it has 256 words more, behind `size`: the single bytes, so that a part of a token
    can be read too. (0xFF is in no text; there it marks tokens without text, and its word stands
    for the end where the tokenizer has no end token.)
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        self.size = tokenizer.size
        self.ends = frozenset(tokenizer.eos_ids)
        self.bytes = [tokenizer.token_bytes(i) for i in range(self.size)]
        self.known = self.size + 256
        wrapped = TokenizerWrapper(_Vocabulary(tokenizer, self.bytes))
        self.tokenizer: LLTokenizer = LLTokenizer(
            wrapped, eos_token=list(tokenizer.eos_ids) or [self.known - 1]
        )

    def spelled(self, data: bytes) -> list[int]:
        """`data` as words of one byte each."""
        return [self.size + byte for byte in data]


class _Vocabulary:
    """What llguidance asks of a tokenizer. It is never asked to encode: grammars are compiled so
    that every way to spell a text is allowed, and the model chooses."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, spelled: Sequence[bytes]) -> None:
        names = [tokenizer.token_text(i).encode() for i in range(tokenizer.size)]
        mark = b"\xff"
        self.tokens = [
            mark + names[i] if tokenizer.is_special(i) else b"" if data[:1] == mark else data
            for i, data in enumerate(spelled)
        ] + [bytes([byte]) for byte in range(256)]
        ends = tokenizer.eos_ids
        self.eos_token_id = ends[0] if ends else len(self.tokens) - 1
        self.special_token_ids = list[int]()

    def __call__(self, text: bytes) -> list[int]:
        return [len(self.tokens) - 256 + byte for byte in text]


class Reader(Protocol):
    """Stands in a text that matches so far."""

    def mask(self) -> Mask:
        """The ids that may come next, [size]; none where the grammar became too complex."""
        ...

    def feed(self, token: int) -> bool:
        """Move behind `token`. False, and nothing moves, if it may not come next or ends it."""
        ...

    def back(self, count: int) -> None:
        """Undo the last `count` moves."""
        ...

    def complete(self) -> bool:
        """Whether the text matches and nothing may follow."""
        ...


class Follower:
    """A `core.protocols.Matcher`. `reader`, which stands at the start, is its cache."""

    def __init__(self, reader: Reader, words: Words) -> None:
        self._reader, self._words = reader, words
        self._read: list[int] = []  # the output as far as it has been read and matches

    def allowed(
        self, output: Sequence[int], draft: Sequence[int], parents: Sequence[int]
    ) -> Tensor:
        """See `Matcher.allowed`."""
        masks = np.ones((len(draft) + 1, self._words.size), dtype=bool)
        if self._seek(list(output)):
            self._visit(-1, children(parents), draft, masks)
        return torch.from_numpy(masks)

    def complete(self, output: Sequence[int]) -> bool:
        """See `Matcher.complete`."""
        return not self._words.ends and self._seek(list(output)) and self._reader.complete()

    def _seek(self, output: list[int]) -> bool:
        """Go where the output ends; False if it does not match, or ended before."""
        same = len(self._read)
        if self._read != output[:same]:
            pairs = zip(self._read, output, strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), min(same, len(output)))
        self._reader.back(len(self._read) - same)
        del self._read[same:]
        for token in output[same:]:
            if not 0 <= token < self._words.size or not self._reader.feed(token):
                return False
            self._read.append(token)
        return True

    def _visit(self, node: int, below: list[list[int]], draft: Sequence[int], masks: Mask) -> None:
        """Fill in the masks of `node` and of all that is drafted behind it."""
        masks[node + 1] = self._reader.mask()
        for child in below[node + 1]:
            token = draft[child]
            known = 0 <= token < self._words.size
            if known and masks[node + 1, token] and self._reader.feed(token):
                self._visit(child, below, draft, masks)
                self._reader.back(1)


class Inside:
    """A `Reader` of one grammar from its start to its end. `start` makes a fresh matcher."""

    def __init__(self, start: Callable[[], LLMatcher], words: Words) -> None:
        self._start, self._words = start, words
        self._matcher = start()
        self._fed: list[int] = []

    def mask(self) -> Mask:
        """See `Reader.mask`. Where the text is complete and there is no end token, anything goes:
        it is never put out (see `Matcher.complete`)."""
        mask = self.strictly()
        return np.ones_like(mask) if self.complete() and not self._words.ends else mask

    def strictly(self) -> Mask:
        """The ids that the grammar itself allows next, [size]."""
        bits = np.empty((self._words.known + 31) // 32, dtype=np.int32)
        self._matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if self._matcher.is_error():
            return np.zeros(self._words.size, dtype=bool)
        flat = np.unpackbits(bits.view(np.uint8), count=self._words.size, bitorder="little")
        return flat.view(bool)

    def feed(self, token: int) -> bool:
        """See `Reader.feed`."""
        return token not in self._words.ends and self.spell([token])

    def spell(self, words: list[int]) -> bool:
        """Move behind all of `words` or, returning False, not at all."""
        taken = self._matcher.try_consume_tokens(words)
        if self._matcher.is_error():  # it became too complex: no way leads on from here
            taken = len(words)
        self._fed += words[:taken]
        if taken == len(words):
            return True
        self.back(taken)
        return False

    def back(self, count: int) -> None:
        """See `Reader.back`."""
        if not count:
            return
        del self._fed[-count:]
        # Limits (`max_tokens=`) cannot be undone, nor errors: then from the start.
        if self._matcher.is_error() or not self._matcher.rollback(count):
            self._matcher = self._start()
            self._matcher.consume_tokens(self._fed)

    def may_end(self) -> bool:
        """Whether the text matches as it is."""
        return not self._matcher.is_error() and self._matcher.is_accepting()

    def complete(self) -> bool:
        """See `Reader.complete`."""
        return self.may_end() and self._matcher.is_stopped()
