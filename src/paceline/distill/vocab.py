"""The frequent tokens: a head scores those alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from paceline.distill.data import Answer
from paceline.text.tokenizer import Tokenizer


def cut(answers: Iterable[Answer], tokenizer: Tokenizer, size: int) -> Tensor:
    """The `size` ids (all, if there are fewer) that a head may guess, ascending, [N] int64: the end
    tokens, then the ids in the completions by count, then tokens of a single byte and special ones,
    then the others; the lower id first where nothing else decides."""
    counts = Counter(i for answer in answers for i in answer.completion_ids)
    counted = sorted(counts, key=lambda i: (-counts[i], i))
    ids = range(tokenizer.size)
    short = (i for i in ids if tokenizer.is_special(i) or len(tokenizer.token_bytes(i)) == 1)
    ranked = dict.fromkeys([*sorted(tokenizer.eos_ids), *counted, *short, *ids])
    return torch.tensor(sorted(list(ranked)[:size]), dtype=torch.int64)
