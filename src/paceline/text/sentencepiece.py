"""SentencePiece BPE from tokens and scores, as GGUF files of the kind "llama" carry it.

The merges of this kind follow from the scores: of all neighbours whose join is a token, the pair
with the best score is joined, the leftmost on a tie. A table of merges (what the `tokenizers`
library wants) cannot express such ties, and writing one for 262,144 tokens takes 1.7 s; this runs
from the vocabulary as it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush

from paceline.errors import PacelineError

SPACE = "▁"


class SentencePiece:
    """Encodes text that holds no special tokens.

    `tokens` and `scores` are by id; `unknown` is the id for a character that has neither a token
    nor byte tokens (None: such a character raises PacelineError).
    """

    def __init__(
        self, tokens: Sequence[str], scores: Sequence[float], unknown: int | None = None
    ) -> None:
        self._ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
        self._scores = scores
        self._unknown = unknown
        # No join crosses the edge between a word and the space before the next, unless some token
        # holds that very edge (Gemma has one, '>▁</'). So words can be encoded, and kept, apart.
        inside = set(re.findall(f"([^{SPACE}\0])(?={SPACE})", "\0".join(tokens)))
        held = re.escape("".join(sorted(inside)))
        self._edge = re.compile(f"(?<=[^{SPACE}{held}])(?={SPACE})")
        self._word = lru_cache(maxsize=1 << 15)(self._encode_word)

    def encode(self, text: str, prefix_space: bool = False) -> list[int]:
        """The ids of `text`; with `prefix_space`, of a space and `text`."""
        text = (" " + text if prefix_space else text).replace(" ", SPACE)
        return [i for word in self._edge.split(text) for i in self._word(word)]

    def _encode_word(self, word: str) -> tuple[int, ...]:
        ids, scores = self._ids, self._scores
        parts = list(word)  # a part that was joined into its left neighbour is ""
        after = list(range(1, len(parts) + 1))
        before = list(range(-1, len(parts) - 1))
        queue: list[tuple[float, int, str]] = []
        for left, pair in enumerate(map(str.__add__, parts, parts[1:])):
            if pair in ids:
                queue.append((-scores[ids[pair]], left, pair))
        heapify(queue)
        while queue:
            _, left, joined = heappop(queue)
            right = after[left]
            if right == len(parts) or not parts[left] or parts[left] + parts[right] != joined:
                continue  # one of the two has changed since this was queued
            parts[left], parts[right] = joined, ""
            after[left] = beyond = after[right]
            if beyond < len(parts):
                before[beyond] = left
            for a, b in ((before[left], left), (left, beyond)):
                if a >= 0 and b < len(parts) and (pair := parts[a] + parts[b]) in ids:
                    heappush(queue, (-scores[ids[pair]], a, pair))
        return tuple(i for part in parts if part for i in self._ids_of(part))

    def _ids_of(self, part: str) -> list[int]:
        """The part's own id, or those of its bytes (only single characters have none)."""
        if (own := self._ids.get(part)) is not None:
            return [own]
        found = [self._ids.get(f"<0x{byte:02X}>", self._unknown) for byte in part.encode()]
        if any(i is None for i in found):
            raise PacelineError(
                f"the tokenizer has no token for {part!r}: leave it out of the text"
            )
        return [i for i in found if i is not None]
