"""Block against token by token on real models: the same rounds, the same noise."""

from __future__ import annotations

import pytest

from paceline import LLM, SamplingParams
from paceline.core.noise import Noise
from paceline.core.types import Round
from paceline.models.catalog import find
from paceline.models.store import present
from paceline.verifiers.block import Block
from paceline.verifiers.rejection import Rejection

PAIRS = [
    ("smollm2-135m", "self:skip=10"),
    ("qwen2.5-coder-1.5b", "head:qwen2.5-coder-1.5b"),
    ("qwen2.5-coder-1.5b", "self:skip=8"),
]
PROMPTS = [
    "Write a Python function that merges two sorted lists.",
    "Why do ships float although they are made of steel?",
    "Suggest a name for a bakery and say why it fits.",
]
ROUNDS, SEEDS = 200, 8


class Both:
    """Hears of rounds, and counts what either verifier accepts of their drafts."""

    def __init__(self) -> None:
        self.rounds = self.by_token = 0
        self.more: list[int] = []  # tokens that block accepts more, each time

    def __call__(self, round: Round) -> None:
        k = round.draft.tokens.shape[1]
        self.rounds += 1
        for seed in range(SEEDS):
            noise = Noise.at([seed], [self.rounds], k)
            block, token = (
                int(verifier.verify(round.target, round.draft, noise).accepted)
                for verifier in (Block(), Rejection())
            )
            self.more.append(block - token)
            self.by_token += token


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("model", "draft"), PAIRS)
def test_block_accepts_at_least_as_much(
    model: str, draft: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if present(find(model)) is None:
        pytest.skip(f"needs: paceline pull {model}")
    loaded = LLM(model, draft="none", window="fixed")
    for k in (1, 4, 8):
        llm, both = loaded.with_draft(draft, k=k), Both()
        monkeypatch.setattr(llm.parts.controller, "observe", both)
        for i in range(100):
            if both.rounds >= ROUNDS:
                break
            params = SamplingParams(temperature=temperature, max_tokens=64, seed=i)
            llm.generate(PROMPTS[i % len(PROMPTS)], params)
        assert both.by_token > 0
        if k == 1 or not temperature:
            assert not any(both.more)
        else:  # it is never less on average; where few are accepted at all, chance shows
            assert sum(both.more) >= -2 * sum(n * n for n in both.more) ** 0.5
