"""Generators whose answers are traced, with every way to draft and to verify."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from fake_tokenizer import ByteTokenizer
from fakes import HashLM
from paceline.build.verify import make_verifier
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Drafter
from paceline.drafters.branches import Branches
from paceline.drafters.grow import TreeSize
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.sampling import growing
from paceline.text.decisions import Verifying
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.text.recorder import record as written
from paceline.text.trace import Trace
from paceline.text.trace_file import read

VOCAB = 258
TOKENIZER = ByteTokenizer(add_bos=False)
PROMPT = [97, 98, 97, 99, 97, 98]
Makes = Callable[[int, int], Drafter]


def near(batch: int, length: int) -> CachedModel:
    return CachedModel(HashLM(VOCAB, jitter=0.5, sharpness=3.0), batch, length)


DRAFTERS: dict[str, Makes] = {
    "model": lambda batch, length: ModelDrafter(near(batch, length)),
    "lookup": lambda batch, length: Lookup(2),
    "branches": lambda batch, length: Branches(near(batch * 4, length), 4),
    "nodes": lambda batch, length: ModelDrafter(growing(near(batch, length)), None, TreeSize(9)),
    "none": lambda batch, length: Lookup(60),
}


def generator(draft: str, how: Verifying, controller: Controller | None = None) -> Generator:
    """Of a target that is as sharp as a real one, so that drafts are accepted and refused."""
    parts = Parts(
        HashLM(VOCAB, sharpness=3.0),
        TOKENIZER,
        lambda batch, length, target: DRAFTERS[draft](batch, length),
        make_verifier(how.verify, how.lenience, how.deterministic),
        controller or Fixed(4),
        coupled=how.deterministic,
        k=4,
    )
    return Generator(parts, context=400)


def record(
    path: Path, source: Generator, params: SamplingParams, how: Verifying
) -> tuple[Trace, list[int]]:
    """The trace as it comes back from the file, and the ids."""
    stream = source.stream(PROMPT, params, rounds=True)
    for _ in written(str(path), {"model": "hash"}, stream, how, TOKENIZER):
        pass
    return read(str(path)), stream.completion.token_ids


GREEDY, HOT = SamplingParams(max_tokens=60), SamplingParams(max_tokens=60, temperature=0.8, seed=5)
CASES = [
    ("model", HOT, Verifying("rejection"), {"rejection"}),
    ("model", HOT, Verifying("rejection", 0.5), {"rejection"}),
    ("model", HOT, Verifying("auto"), {"block"}),
    ("lookup", HOT, Verifying("auto"), {"block"}),
    ("lookup", HOT, Verifying("rejection"), {"rejection"}),
    ("model", HOT, Verifying("typical"), {"typical"}),
    ("branches", HOT, Verifying("typical"), {"typical"}),
    ("branches", HOT, Verifying("kseq"), {"kseq", "block"}),
    ("branches", HOT, Verifying("specinfer"), {"candidates", "block"}),
    ("nodes", HOT, Verifying("auto"), {"candidates", "block"}),
    ("model", HOT, Verifying(deterministic=True), {"coupled"}),
    ("branches", HOT, Verifying(deterministic=True), {"coupled"}),
    ("model", GREEDY, Verifying("auto"), {"greedy"}),
    ("model", GREEDY, Verifying("rejection", 0.1), {"greedy"}),
    ("lookup", GREEDY, Verifying("auto"), {"greedy"}),
    ("branches", GREEDY, Verifying("auto"), {"greedy"}),
    ("nodes", replace(GREEDY, repetition_penalty=1.2), Verifying("auto"), {"greedy"}),
    ("none", GREEDY, Verifying("auto"), {"greedy"}),
]
IDS = [f"{d}-{p.temperature}-{h.verify}-{h.lenience}-{h.deterministic}" for d, p, h, _ in CASES]
