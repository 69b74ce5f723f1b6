"""What grammars allow, worked out from the start for each prefix, byte by byte: what matchers are
held against. And tokenizers whose tokens are several bytes long."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from naive import fresh_logits, probabilities
from paceline.core.params import SamplingParams
from paceline.core.tree import ancestry
from paceline.text.tokenizer import Tokenizer
from paceline.text.vocabulary import Kind, Vocabulary

Next = Callable[[bytes], tuple[set[int], bool]]  # the bytes that may follow, and: may it end here?

K_DIGITS = 'start: "{\\"k\\":" /[0-9]{1,6}/ "}"'
DIGITS = set(b"0123456789")


def k_digits(text: bytes) -> tuple[set[int], bool]:
    """Of K_DIGITS, behind a text that it allows."""
    head = b'{"k":'
    if len(text) < len(head):
        return {head[len(text)]}, False
    if text.endswith(b"}"):
        return set(), True
    digits = len(text) - len(head)
    return (DIGITS if digits < 6 else set()) | (set(b"}") if digits else set()), False


class Words(Tokenizer):
    """Ids 0, 1, … are `words`, then "<eos>" where there is one; `control` are control tokens."""

    def __init__(self, *words: str | bytes, control: Sequence[str] = (), eos: bool = True) -> None:
        spelled = [w.encode() if isinstance(w, str) else w for w in words]
        special = [*control, *(["<eos>"] if eos else [])]
        by_name = {f"w{i}": data for i, data in enumerate(spelled)}
        super().__init__(
            Vocabulary(
                tokens=[*by_name, *special],
                kinds=[Kind.NORMAL] * len(spelled) + [Kind.CONTROL] * len(special),
                spell=by_name.__getitem__,
                encode=lambda text, special: [],
                bos_id=None,
                eos_ids=(len(spelled) + len(control),) if eos else (),
                add_bos=False,
                chat_template=None,
            )
        )


class Rules:
    """A `Matcher` that remembers nothing. `follows`: the grammar; `marker`: free text goes on until
    that stands in it."""

    END, FREE, INSIDE = range(3)

    def __init__(self, tokenizer: Tokenizer, follows: Next, marker: bytes = b"") -> None:
        self.tokenizer, self.follows, self.marker = tokenizer, follows, marker

    def allowed(
        self, output: Sequence[int], draft: Sequence[int], parents: Sequence[int]
    ) -> Tensor:
        paths = [ancestry(parents, node) for node in range(-1, len(draft))]
        return torch.stack([self.behind([*output, *(draft[i] for i in p)]) for p in paths])

    def behind(self, tokens: Sequence[int]) -> Tensor:
        state = (self.FREE if self.marker else self.INSIDE, b"")
        for token in tokens:
            moved = self.step(state, token)
            if moved is None or moved[0] == self.END:
                return torch.ones(self.tokenizer.size, dtype=torch.bool)
            state = moved
        return torch.tensor([self.step(state, t) is not None for t in range(self.tokenizer.size)])

    def step(self, state: tuple[int, bytes], token: int) -> tuple[int, bytes] | None:
        where, text = state
        if not 0 <= token < self.tokenizer.size:
            return None
        data = self.tokenizer.token_bytes(token)
        ends = where == self.FREE or self.follows(text)[1]
        if token in self.tokenizer.eos_ids:
            return (self.END, b"") if ends else None
        if where == self.INSIDE:
            if data and self._fits(text, data):
                return self.INSIDE, text + data
            if not ends or not self.marker:
                return None
            text = b""
        free, found, rest = (text + data).partition(self.marker)
        if found:
            return (self.INSIDE, rest) if self._fits(b"", rest) else None
        return self.FREE, free

    def _fits(self, text: bytes, more: bytes) -> bool:
        return all(more[i] in self.follows(text + more[:i])[0] for i in range(len(more)))


def masked(model, rules: Rules, prompt: Sequence[int], output: Sequence[int]) -> list[float]:
    """The target's logits behind `output`, from an uncached pass, where the rules allow them."""
    logits = fresh_logits(model, [*prompt, *output])
    allowed = rules.behind(output).tolist()
    known = zip(logits, allowed, strict=False)
    return [x if ok else -math.inf for x, ok in known] + [-math.inf] * (len(logits) - len(allowed))


def greedy(model, rules: Rules, prompt: Sequence[int], most: int = 60) -> list[int]:
    """What plain constrained decoding says."""
    output: list[int] = []
    while len(output) < most and not set(output[-1:]) & set(rules.tokenizer.eos_ids):
        scores = masked(model, rules, prompt, output)
        output.append(scores.index(max(scores)))
    return output


def outputs(
    model, rules: Rules, prompt: Sequence[int], params: SamplingParams, output: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every output that ends, with its probability."""
    for token, p in enumerate(probabilities(masked(model, rules, prompt, output), params)):
        if p and token in rules.tokenizer.eos_ids:
            yield (*output, token), p
        elif p:
            more = outputs(model, rules, prompt, params, (*output, token))
            yield from ((whole, p * rest) for whole, rest in more)
