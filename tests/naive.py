"""What the target alone says, worked out the slow way: no cache, no loop, no vectors.

Each function follows the promise in words (docstrings of `SamplingParams` and `distribution`), so
that it can stand against the production code.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

from paceline.core.params import SamplingParams
from paceline.core.types import Finish


def fresh_logits(model, ids: Sequence[int]) -> list[float]:
    """The logits behind `ids`, from one uncached forward pass."""
    return fresh_pass(model, ids)[-1].tolist()


def fresh_pass(model, ids: Sequence[int]) -> Tensor:
    """[len(ids), V]: the logits behind every prefix of `ids`, from one uncached forward pass."""
    cache = model.new_cache(1, len(ids))
    return model.forward(torch.tensor([list(ids)]), [0], cache).logits[0]


def adjust(
    logits: Sequence[float],
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    eos: Collection[int] = (),
) -> list[float]:
    """Penalties, bias and masks on the logits behind `prompt` + `output`."""
    scores = list(logits)
    for token in range(len(scores)):
        if token in prompt or token in output:
            scores[token] *= (
                1 / params.repetition_penalty if scores[token] > 0 else params.repetition_penalty
            )
        scores[token] -= params.frequency_penalty * output.count(token)
        scores[token] -= params.presence_penalty * (token in output)
        scores[token] += params.logit_bias.get(token, 0.0)
        if token in ends(params, eos) and len(output) < params.min_tokens:
            scores[token] = -math.inf
    return scores


def ends(params: SamplingParams, eos: Collection[int]) -> set[int]:
    """The tokens that end a request."""
    return set(params.stop_token_ids) | (set() if params.ignore_eos else set(eos))


def probabilities(scores: Sequence[float], params: SamplingParams) -> list[float]:
    """Temperature, top-k, top-p and min-p, in this order; tokens that tie at an edge stay."""
    weights = [math.exp((s - max(scores)) / params.temperature) for s in scores]
    if params.top_k:
        kth = sorted(scores, reverse=True)[: params.top_k][-1]
        weights = [w if s >= kth else 0.0 for w, s in zip(weights, scores, strict=True)]
    total = sum(weights)
    probs = [w / total for w in weights]
    floor, reached = 0.0, 0.0
    for prob in sorted(probs, reverse=True) if params.top_p < 1 else ():
        floor, reached = prob, reached + prob
        if reached >= params.top_p:
            break
    floor = max(floor, params.min_p * max(probs))
    kept = [prob if prob >= floor else 0.0 for prob in probs]
    return [prob / sum(kept) for prob in kept]


def decode(
    model, prompt: Sequence[int], params: SamplingParams, eos: Collection[int] = (), room: int = 256
) -> tuple[list[int], Finish]:
    """Greedy output ids and why they ended."""
    output: list[int] = []
    prompt = list(prompt)
    most = min(room - len(prompt), params.max_tokens or room)
    while True:
        scores = adjust(fresh_logits(model, prompt + output), params, prompt, output, eos)
        output.append(scores.index(max(scores)))
        if output[-1] in ends(params, eos):
            return output, "stop"
        if len(output) == most:
            return output, "length"


def joint_law(
    model, prompt: Sequence[int], params: SamplingParams, n: int
) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every sequence of `n` new tokens with its probability."""
    laws: dict[tuple[int, ...], list[float]] = {}

    def law(output: tuple[int, ...]) -> list[float]:
        if output not in laws:
            logits = fresh_logits(model, [*prompt, *output])
            laws[output] = probabilities(adjust(logits, params, prompt, output), params)
        return laws[output]

    for tokens in product(range(model.vocab_size), repeat=n):
        yield tokens, math.prod(law(tokens[:i])[token] for i, token in enumerate(tokens))
