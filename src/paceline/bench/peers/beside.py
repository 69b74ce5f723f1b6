"""Our two sides and the peers', answering the same prompts in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.bench.measure import Engine, Run, run, side_of
from paceline.bench.peer import Job
from paceline.bench.peers.field import Field
from paceline.bench.quiet import quiet
from paceline.build import LLM
from paceline.core.params import SamplingParams
from paceline.models.pull import resolve
from paceline.text.chat import prompt_ids

# Short, and made of words that come again, so that a lookup has something to find.
TRIAL = """Add a docstring to this function and change nothing else.

def mean(values):
    total = 0.0
    for value in values:
        total += value
    return total / len(values)
"""
_STEP = 256  # tokens to which a peer's context is rounded up


def job(llm: LLM, threads: int, longest: int, draft: str | None = None) -> Job:
    """What a peer is asked to load: the model that `llm` runs, from the same file. `longest`: most
    tokens of prompt and output; `draft`: a draft model for those that take one, by name. Raises
    PacelineError if that is not to be had."""
    trial = prompt_ids(llm.tokenizer, TRIAL)
    context = -(-max(longest, len(trial) + _STEP) // _STEP) * _STEP
    smaller = None if draft is None else str(resolve(draft))
    path = str(resolve(llm.name))
    return Job(path, threads, context, list(llm.tokenizer.eos_ids), trial, smaller)


def beside(
    plain: Engine,
    drafted: Engine,
    field: Field,
    of: Mapping[str, Any],
    ids: Sequence[int],
    params: SamplingParams,
    repeats: int,
) -> tuple[dict[str, Any], dict[str, Any], bool, list[dict[str, Any]]]:
    """Both of our sides and whether all their answers were the same tokens, as `measure.pair` has
    them, and the records of the peers: `repeats` turns, in each one answer of everybody. `of`: run,
    model, prompt and category. For greedy `params`. Raises Spoilt as `measure.run` does."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    turns = []
    for turn in range(repeats):
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            quiet()
            runs[side].append(run((plain, drafted)[side], ids, params))
        turns.append(field.turn(ids, params.max_tokens or 1, turn))
    ours = runs[0][0].completion.token_ids
    same = all(each.completion.token_ids == ours for side in runs for each in side)
    return side_of(runs[0]), side_of(runs[1]), same, field.records(of, turns, ours)
