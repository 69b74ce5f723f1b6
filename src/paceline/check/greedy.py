"""At temperature 0 the drafted answer is the plain answer, token for token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from paceline.check.pair import Pair
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.none import NoDraft
from paceline.errors import PacelineError
from paceline.text.chat import prompt_ids

TOKENS = 48  # of an answer


@dataclass(frozen=True)
class Divergence:
    """The first token of an answer that differs. `plain` and `drafted`: the two tokens, as text;
    `plain_logit` and `drafted_logit`: theirs at that place, by plain decoding; `tolerance`: how far
    apart rounding may put these two in this format, 0 where every pass has the same bits."""

    prompt: str
    at: int
    plain: str
    drafted: str
    plain_logit: float
    drafted_logit: float
    tolerance: float

    @property
    def near_tie(self) -> bool:
        """Whether rounding explains it."""
        return abs(self.plain_logit - self.drafted_logit) <= self.tolerance and self.tolerance > 0


@dataclass(frozen=True)
class Greedy:
    """`identical` of `prompts` answers, `tokens` in all, are the same. `tau`: tokens a round."""

    prompts: int
    tokens: int
    identical: int
    tau: float
    divergences: list[Divergence]

    @property
    def ok(self) -> bool:
        """Whether nothing differs but for rounding."""
        return all(each.near_tie for each in self.divergences)


@dataclass(frozen=True)
class Answer:
    """A prompt and its plain answer, as ids."""

    prompt: list[int]
    ids: list[int]


def check_greedy(
    pair: Pair,
    prompts: Sequence[str],
    k: int,
    progress: Callable[[int, int, str], None] = lambda done, total, what: None,
) -> tuple[Greedy, list[Answer]]:
    """Answer each prompt with and without drafts; the plain answers too. Raises PacelineError if
    the model's scores are not numbers, or its context is too short for a prompt."""
    each = [prompt_ids(pair.tokenizer, prompt) for prompt in prompts]
    length = max(map(len, each)) + TOKENS
    if length > pair.model.context:
        raise PacelineError(
            f"{pair.name} has a context of {pair.model.context} tokens and the check needs "
            f"{length}: give a model with a longer one"
        )
    params = SamplingParams(max_tokens=TOKENS)
    plain, drafted = (CachedModel(pair.model, 1, length, pair.tokenizer.size) for _ in range(2))
    loops = (
        Loop(plain, NoDraft(), pair.verifier, Fixed(0)),
        Loop(drafted, pair.make_drafter(1, length, drafted), pair.verifier, Fixed(k)),
    )
    answers: list[Answer] = []
    found: list[Divergence] = []
    rounds = tokens = 0
    for i, (prompt, ids) in enumerate(zip(prompts, each, strict=True)):
        progress(i, len(each), "answering")
        (right, _), (said, steps) = (
            _answer(loop, pair, ids, params, length, prompt) for loop in loops
        )
        answers.append(Answer(ids, right))
        rounds, tokens = rounds + steps, tokens + len(said)
        if right != said:
            found.append(_divergence(pair, plain, prompt, ids, right, said, length))
    progress(len(each), len(each), "answering")
    same = len(each) - len(found)
    return Greedy(len(each), tokens, same, tokens / max(1, rounds), found), answers


def _answer(
    loop: Loop, pair: Pair, ids: list[int], params: SamplingParams, length: int, prompt: str
) -> tuple[list[int], int]:
    """The new ids and the number of rounds."""
    seqs = Sequences(1, length)
    seqs.admit(0, ids, params, pair.tokenizer.eos_ids)
    rounds = 0
    while seqs.running[0]:
        (emitted,) = loop.step(seqs).emitted
        rounds += 1
        if emitted is not None and emitted.finish == "error":
            raise PacelineError(
                f"{pair.name}'s scores are not numbers (NaN) on the prompt {prompt[:40]!r}: its "
                "weights are bad; fetch them again"
            )
    return seqs.committed(0)[len(ids) :].tolist(), rounds


@torch.no_grad()
def _divergence(
    pair: Pair,
    target: CachedModel,
    prompt: str,
    ids: list[int],
    right: list[int],
    said: list[int],
    length: int,
) -> Divergence:
    pairs = enumerate(zip(right, said, strict=False))
    at = next((i for i, (a, b) in pairs if a != b), min(len(right), len(said)))
    two = [answer[at] if at < len(answer) else -1 for answer in (right, said)]
    seqs = Sequences(1, length + 1)
    seqs.admit(0, ids + right[:at], SamplingParams())
    empty = Draft(torch.zeros(1, 0, dtype=torch.int64), [0])
    scores = target.score(seqs, empty)[0, 0].float()
    logits = [float(scores[token]) if token >= 0 else float("nan") for token in two]
    texts = [pair.tokenizer.decode([t], skip_special=False) if t >= 0 else "(end)" for t in two]
    tolerance = pair.rounding(max(map(abs, logits)))
    return Divergence(prompt, at, texts[0], texts[1], logits[0], logits[1], tolerance)
