"""Checkpoints of different vocabularies: what comes out is what the target alone says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from paceline.build.drafts import DraftSetting
from paceline.build.models import Models
from paceline.build.translated import make_translated, needs_translation
from paceline.controllers.fixed import Fixed
from paceline.core.params import SamplingParams
from paceline.drafters.none import NoDraft
from paceline.models.catalog import find
from paceline.models.store import present
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.verifiers.rejection import Rejection
from tiny import write_llama

QWEN, SMOL = "qwen2.5-coder-1.5b", "smollm2-135m"
TASKS = (
    "Write a Python function that merges two sorted lists, with a docstring and two tests.",
    "What should I pack for a week of hiking in Norway? Give reasons.",
    "Write a haiku about café naïveté, then translate it into German and 日本語.",
)


def generators(
    target: str, draft: str, dtype: str, note: Callable[[str], None] | None = None
) -> tuple[Generator, Callable[[int], Generator]]:
    """The target alone, and with `draft` and a window."""
    models = Models(dtype, "cpu", 1, None, note)
    loaded = models(target)
    assert needs_translation(loaded.tokenizer, models.tokenizer(draft))
    make = make_translated(draft, DraftSetting(), loaded, models)

    def generator(make, k: int) -> Generator:
        return Generator(Parts(loaded.model, loaded.tokenizer, make, Rejection(), Fixed(k)), 1024)

    return generator(lambda batch, length, target: NoDraft(), 0), lambda k: generator(make, k)


@pytest.mark.parametrize("k", [1, 4])
def test_two_ids_swapped(tmp_path: Path, k: int) -> None:
    """Equal sizes, and nothing but a table tells the two apart."""
    target = str(write_llama(tmp_path / "target", seed=1))
    draft = str(write_llama(tmp_path / "draft", seed=1, swap=(40, 41)))
    notes: list[str] = []
    plain, quick = generators(target, draft, "fp32", notes.append)
    params = SamplingParams(max_tokens=30)
    prompts = ["if a[0] < 1: (IJ)", "IJIJ", "x"]
    right = plain.generate(prompts, params, chat=False)
    done = quick(k).generate(prompts, params, chat=False)
    assert [d.token_ids for d in done] == [r.token_ids for r in right]
    assert [d.text for d in done] == [r.text for r in right]
    assert sum(d.stats.accepted for d in done) > 10
    assert "257 shared tokens (100 % of its own, 100 % of" in notes[-1]


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 4, 8])
def test_smollm_drafts_for_qwen(k: int) -> None:
    for name in (QWEN, SMOL):
        if present(find(name)) is None:
            pytest.skip(f"needs: paceline pull {name}")
    plain, quick = generators(QWEN, SMOL, "native")
    drafting = quick(k)
    accepted = tested = 0
    for task in TASKS:
        params = SamplingParams(max_tokens=40)
        done = drafting.generate(task, params)
        assert done.token_ids == plain.generate(task, params).token_ids, (k, task)
        accepted, tested = accepted + done.stats.passed[0], tested + done.stats.tested[0]
    assert accepted > 0.4 * tested
