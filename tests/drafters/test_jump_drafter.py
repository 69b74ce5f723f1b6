"""A jump head as a drafter over a real cache: it reads what is committed and harms nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fakes import Accepts, Scripted, Windows, drive, sequences
from paceline import kernels
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.drafters.first_of import FirstOf
from paceline.drafters.head import HeadDrafter
from paceline.drafters.none import NoDraft
from paceline.models import jump as jumps
from paceline.models.jump import Jump, load_jump
from paceline.models.load import load
from paceline.models.native import NativeTransformer
from paceline.verifiers.rejection import Rejection
from tiny_jumps import HIDDEN, VOCAB, jump, write_jump, write_target

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no native kernels")
SAMPLED = SamplingParams(temperature=1, seed=3, max_tokens=40)
LENGTH = 96


class Watch:
    """A drafter around a `HeadDrafter`: each q must be, to the bit, that of the head over a cache
    which has read nothing but this row's committed tokens."""

    def __init__(self, drafter: HeadDrafter, target: NativeTransformer, head: Jump) -> None:
        self.drafter, self.target, self.head, self.watched = drafter, target, head, 0

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        draft = self.drafter.propose(seqs, k)
        for b, n in enumerate(draft.lengths):
            if n:
                ids = seqs.committed(b).tolist()
                right = self.fresh(ids, draft.tokens[b, : n - 1])
                assert torch.equal(draft.q[b, :n][:, self.head.ids], right)
                self.watched += n
        return draft

    def fresh(self, ids: list[int], drafted: Tensor) -> Tensor:
        cached = CachedModel(self.target, 1, len(ids) + 1)
        cached.tap(self.head.taps)
        seqs, reads = sequences([ids], SAMPLED, (), len(ids) + 1), self.head.over(cached)
        scores = [reads.read(seqs)]
        scores += [reads.extend(seqs, token[None], j) for j, token in enumerate(drafted)]
        return torch.cat([row.softmax(-1) for row in scores])


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize(
    "counts", [(0,), (1,), (3,), (4,), (0, 4, 1, 3, 4, 2, 0)], ids=lambda counts: f"{counts}"
)
def test_it_reads_the_committed_tokens_and_its_own(early: int, counts: tuple[int, ...]) -> None:
    """Whatever was accepted, whoever drafted in between, whatever K was, whatever the others in the
    batch do, and whoever had the slot before. Three ids only: stale entries often look right."""
    target, head = jump(3, early)
    cached = CachedModel(target, 3, LENGTH)
    watch = Watch(HeadDrafter(cached, head), target, head)
    now_and_then = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 5 == 0 else [])
    for turn, prompts in enumerate([[[0, 1], [2] * 9, [1, 2, 0]], [[1], [2] * 5 + [0], [0] * 30]]):
        seqs = sequences(prompts, SAMPLED, (), LENGTH)
        windows = Windows(4, 4, 0, 1, 4, 0, 0, 2)
        drive(Loop(cached, FirstOf(now_and_then, watch), Accepts(*counts), windows), seqs)
        assert watch.watched > 35 * (turn + 1)


@pytest.mark.parametrize("kind", ["int8", "fp16"])
@pytest.mark.parametrize("early", [0, 1])
def test_the_targets_own_logits_are_to_the_bit_what_they_are_without(kind: str, early: int) -> None:
    """Whether it drafts for all rows, some or none; up to the end of a sequence and beyond."""
    target, head = jump(7, early, (5, 0, 1, 4), kind)
    drafted, plain = CachedModel(target, 3, 24), CachedModel(target, 3, 24)
    drafter = HeadDrafter(drafted, head)
    seqs = sequences([[1, 2, 3, 4], [6], [5] * 14], SAMPLED, (), 24)
    make = torch.Generator().manual_seed(0)
    for k in ([4, 4, 4], [0, 2, 6], [8, 0, 0], [1, 1, 1], [60, 9, 3]):
        drafter.propose(seqs, k)
        tokens = torch.randint(7, (3, 3), generator=make)
        for draft in (Draft(tokens, [3, 3, 3]), Draft(tokens[:, :0], [0, 0, 0])):
            assert torch.equal(drafted.score(seqs, draft), plain.score(seqs, draft))
        for b in range(3):
            end = seqs.lengths[b]
            seqs.tokens[b, end : end + 2] = tokens[b, :2]
            seqs.lengths[b] = end + 2


@pytest.mark.parametrize("early", [0, 1])
def test_output_is_the_targets_own(early: int) -> None:
    target, head = jump(7, early, (5, 0, 1, 4))
    greedy = SamplingParams(max_tokens=40)
    prompts, done = [[1, 2, 3], [4, 5]], []
    for make in (lambda cached: NoDraft(), lambda cached: HeadDrafter(cached, head)):
        cached = CachedModel(target, 2, LENGTH)
        loop = Loop(cached, make(cached), Rejection(), Fixed(4))
        done.append(drive(loop, sequences(prompts, greedy, (), LENGTH)))
    assert done[0].ids == done[1].ids
    assert sum(row.drafted for rows in done[1].emitted for row in rows) > 100


class Model:
    """A target and a head that is always right, by construction: every block between the ones that
    it runs through is the identity, and so is its predictor."""

    def __init__(self, home: Path, early: int) -> None:
        layers = 4
        passed = [0, 1, 2] if early == 0 else [1, 2, 3]
        make = torch.Generator().manual_seed(4)

        def change(tensors: dict[str, Tensor]) -> None:
            for i in passed:
                for part in ("self_attn.o_proj", "mlp.down_proj"):
                    tensors[f"model.layers.{i}.{part}.weight"].zero_()
            signs = torch.randint(0, 2, (VOCAB, HIDDEN), generator=make) * 2.0 - 1
            tensors["model.embed_tokens.weight"] = signs  # of mean square 1: their own norm
            tensors["lm_head.weight"] = torch.randn(VOCAB, HIDDEN, generator=make) * 0.7

        def identity(tensors: dict[str, Tensor]) -> None:
            codes = torch.zeros(HIDDEN, 3 * HIDDEN, dtype=torch.int8)
            codes[:, :HIDDEN] = 64 * torch.eye(HIDDEN)
            tensors["ids"] = torch.arange(VOCAB).flip(0)
            tensors["linear.weight.codes"] = codes
            tensors["linear.weight.scales"] = torch.full((HIDDEN, 3), 2**-6).half()
            tensors["linear.bias"].zero_()

        folder = write_target(home / "target", "qwen2", layers, change, tie_word_embeddings=False)
        self.target = load(folder, "fp16", "cpu", home)[0]
        where = write_jump(home / "head", folder, early, 1, 0, change=identity)
        assert json.loads((where / "config.json").read_text())["enter"] == 3
        self.head = load_jump(where, "perfect", self.target, "tiny")


@pytest.mark.parametrize("early", [0, 1])
def test_a_perfect_jump_is_always_accepted(early: int, tmp_path: Path, monkeypatch) -> None:
    """Greedily and drawn, after another drafter, other windows and other prompts in its slots. The
    last block (early 0) or the first (early 1) attends to all that was read."""
    monkeypatch.setattr(jumps, "_FORMAT", "fp16")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path))
    made = Model(tmp_path, early)
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    cached = CachedModel(made.target, 2, LENGTH)
    drafter = FirstOf(silly, HeadDrafter(cached, made.head))
    for temperature in (0.0, 1.0):
        for prompts in ([[1, 2], [0] * 20], [[2] * 11, [1]], [[2] * 11 + [0, 0], [1, 1]]):
            params = SamplingParams(max_tokens=40, temperature=temperature, seed=1)
            seqs = sequences(prompts, params, (), LENGTH)
            given = list(seqs.lengths)
            done = drive(Loop(cached, drafter, Rejection(), Windows(4, 0, 8, 1)), seqs)
            drafted = 0
            for b, rows in enumerate(done.emitted):
                at = given[b]
                for row in rows:
                    if at % 7:
                        assert row.accepted == row.drafted
                        drafted += row.drafted
                    at += len(row.tokens)
            assert drafted > 16
            assert len({*done.ids[0], *done.ids[1]}) > 8  # it is no loop that anyone would guess
