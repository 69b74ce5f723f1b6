"""On real weights, in their own 4 and 6 bits: greedy speculation says what plain decoding says.

No near-ties are excused: a position's logits are the same to the bit however many are scored at
once.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from paceline import LLM, SamplingParams
from paceline.models.catalog import find
from paceline.models.store import present

pytestmark = pytest.mark.slow

QWEN = "qwen2.5-coder-1.5b"
SUBJECTS = (
    "a stack", "binary search", "quicksort", "a queue", "prime numbers", "Fibonacci", "a date",
    "palindromes", "matrix products", "word counts", "a linked list", "roman numerals", "JSON",
    "a cache", "rate limits", "CSV files", "an e-mail address", "permutations", "a binary tree",
    "shortest paths", "bank accounts", "temperatures", "file sizes", "a deck of cards", "anagrams",
)  # fmt: skip
TASKS = (
    "Write a Python class or function that deals with {}, with a docstring and three tests.",
    "Explain {} to a beginner in two paragraphs, then list five common mistakes, each with a fix.",
)


@pytest.fixture(scope="module")
def llm() -> LLM:
    if present(find(QWEN)) is None:
        pytest.skip(f"needs: paceline pull {QWEN}")
    return LLM(QWEN, dtype="native", draft="none")


def ids(llm: LLM, prompt: str, tokens: int) -> list[int]:
    return llm.generate(prompt, SamplingParams(max_tokens=tokens)).token_ids


def test_fifty_prompts_with_every_window(llm: LLM) -> None:
    prompts = [task.format(subject) for subject in SUBJECTS for task in TASKS]
    assert len(prompts) == 50
    accepted = 0
    for i, prompt in enumerate(prompts):
        k = i % 8 + 1
        done = llm.with_draft("lookup:2", k=k).generate(prompt, SamplingParams(max_tokens=128))
        assert done.token_ids == ids(llm, prompt, 128), (k, prompt)
        accepted += done.stats.accepted
    assert accepted > 500, "hardly a draft was accepted: this shows nothing"


def test_twenty_prompts_of_spec_bench(llm: LLM) -> None:
    path = os.environ.get("SPEC_BENCH")
    if path is None:
        pytest.skip("needs: SPEC_BENCH=path of Spec-Bench's question.jsonl")
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    prompts = [json.loads(line)["turns"][0] for line in lines[:: len(lines) // 20][:20]]
    assert len(prompts) == 20
    auto = llm.with_draft("auto")
    for prompt in prompts:
        assert ids(auto, prompt, 64) == ids(llm, prompt, 64), prompt
