"""The jump head in training is the head that drafts, and its start is a ridge regression."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from fakes import sequences
from paceline import kernels
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.distill import jump as training
from paceline.distill.data import Answer
from paceline.distill.export import write
from paceline.distill.features import Features
from paceline.distill.jump import FADE, JumpTrainee, jump
from paceline.distill.lowrank import LowRank
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Batch
from paceline.errors import PacelineError
from paceline.models import jump as inference
from paceline.models.head_codes import decode
from paceline.models.jump import load_jump
from paceline.models.load import load, open_checkpoint
from tiny_jumps import VOCAB, write_target

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no native kernels")
CPU = torch.device("cpu")
IDS = torch.arange(1, VOCAB, 3)
STEPS = 4


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("jump")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def pair(request: pytest.FixtureRequest, home: Path):
    """A model on the native kernels, and it as a teacher."""
    folder = write_target(home / request.param, request.param)
    model = load(folder, "fp16", "cpu", home / "packed")[0]
    return model, Teacher("tiny", folder, open_checkpoint(folder), model, CPU)


def made(teacher: Teacher, **given: int) -> JumpTrainee:
    return jump(teacher, IDS, {name: str(value) for name, value in given.items()})


def shaken(teacher: Teacher, **given: int) -> JumpTrainee:
    """Away from where it starts, so that no part of it is zero."""
    trainee, make = made(teacher, **given), torch.Generator().manual_seed(1)
    for value in trainee.parameters():
        value.data += torch.randn(value.shape, generator=make) * value.shape[-1] ** -0.5
    return trainee


def some(rows: int = 3, seed: int = 0, most: int = 14) -> list[Answer]:
    """Ragged rows of random tokens: prompts of 2 to 5 and completions of 5 to `most`."""
    make = torch.Generator().manual_seed(seed)

    def ids(low: int, high: int) -> list[int]:
        count = int(torch.randint(low, high + 1, (), generator=make))
        return torch.randint(0, VOCAB, (count,), generator=make).tolist()

    return [Answer("", 0.0, ids(2, 5), ids(5, most), i + 1) for i in range(rows)]


def read(model, trainee: JumpTrainee, rows: list[Answer]) -> Batch:
    return Features(model, trainee.needs, VOCAB, CPU).read(rows)


def as_written(trainee: JumpTrainee, folder: Path) -> None:
    """Give the trainee the matrices that `folder` holds, which are rounded."""
    tensors = load_file(folder / "model.safetensors")

    def kept(name: str) -> Tensor:
        value = decode(tensors, name)
        return value.half().float() if value.dim() == 2 else value

    state = trainee.state()
    for name in state:
        if name.startswith("predictor."):
            state[name] = kept(name.removeprefix("predictor."))
        elif not name.endswith((".a", ".b")):
            state[name] = kept(name)
    trainee.load(state)
    for i, block in enumerate(trainee._blocks, trainee._enter):
        for name, part in block.named_modules():
            if isinstance(part, LowRank):
                part.weight.copy_(kept(f"blocks.{i}.{name}.weight"))
                part.b.data.zero_()


@pytest.mark.parametrize(
    "given",
    [
        {"early": 0, "blocks": 1, "width": 0},
        {"early": 1, "blocks": 1, "width": 24},
        {"early": 2, "blocks": 2, "width": 24, "rank": 3},
        {"early": 1, "blocks": 3, "width": 0, "rank": -1},
    ],
    ids=str,
)
def test_its_steps_are_the_drafters_steps(home, pair, given, monkeypatch) -> None:
    """Exported, loaded and fed with the answers' tokens, the head gives at every anchor and step
    the q of the unrolled loss; and that loss is KL(p || q), each step's mean fading."""
    model, teacher = pair
    monkeypatch.setattr(inference, "_FORMAT", "fp16")
    trainee, folder = shaken(teacher, **given), home / f"{model.config.family}{given}"
    folder.mkdir()
    write(folder, trainee.export(), teacher, "a card")
    head = load_jump(folder, "exported", model, "tiny")
    assert head.ids.tolist() == IDS.tolist()
    as_written(trainee, folder)
    rows = some()
    batch = read(model, trainee, rows)
    seen: list[tuple[Tensor, Tensor]] = []
    divergence = F.kl_div

    def spy(q: Tensor, p: Tensor, **how) -> Tensor:
        seen.append((q.detach(), p))
        return divergence(q, p, **how)

    monkeypatch.setattr(F, "kl_div", spy)
    with torch.no_grad():
        step = trainee.loss(batch, STEPS)
    assert len(seen) == STEPS

    q: list[list[Tensor]] = [[] for _ in range(STEPS)]
    p: list[list[Tensor]] = [[] for _ in range(STEPS)]
    for b, row in enumerate(rows):
        ids, start = row.ids, len(row.prompt_ids)
        whole = model.forward(torch.tensor([ids]), [0], model.new_cache(1, len(ids))).logits[0]
        cached = CachedModel(model, 1, 64)
        cached.tap(head.taps)
        reads = head.over(cached)
        for t in range(max(0, start - 2), len(ids) - 2):
            seqs = sequences([ids[: t + 2]], SamplingParams(), (), 64)
            for j in range(STEPS):
                place = t + 1 + j
                if place > len(ids) - 2:
                    break
                token = torch.tensor([ids[place]])
                scores = reads.extend(seqs, token, j - 1) if j else reads.read(seqs)
                q[j].append(scores[0].log_softmax(-1))
                p[j].append(whole[place, IDS].log_softmax(-1))
                same = int(IDS[scores[0].argmax()]) == int(whole[place].argmax())
                assert bool(step.agree[j][b, t]) == same
    total = weight = 0.0
    for j in range(STEPS):
        right, aim = torch.stack(q[j]), torch.stack(p[j])
        assert float((seen[j][0] - right).abs().max()) < 1e-3
        assert float((seen[j][1] - aim).abs().max()) < 1e-4
        total += FADE**j * float((aim.exp() * (aim - right)).sum(-1).mean())
        weight += FADE**j
    assert float(step.loss) == pytest.approx(total / weight, rel=1e-3)


@pytest.mark.parametrize("width", [0, 8])
def test_it_starts_as_the_ridge_regression(pair, width: int) -> None:
    """Of the entering state on the three normed ones, 1 and what the random hidden layer makes of
    them, over all batches, as numpy's least squares has it; also where it was interrupted."""
    model, teacher = pair
    trainee = made(teacher, early=1, blocks=2, width=width)
    batches = [read(model, trainee, some(4, seed)) for seed in range(4)]
    up = trainee.state().get("predictor.up.weight", torch.zeros(0, 96)).double().numpy()
    inputs, outputs = [], []
    for batch in batches:
        for b, (start, length) in enumerate(zip(batch.starts, batch.lengths, strict=True)):
            for t in range(max(0, start - 2), length - 2):
                h = batch.hidden[b].double().numpy()
                three = [h[t + 1, 0], h[t, 1], h[t, 2]]
                normed = [x / np.sqrt((x**2).mean() + model.config.eps) for x in three]
                z = up @ np.concatenate(normed)
                inputs.append(np.concatenate([*normed, [1.0], z / (1 + np.exp(-z))]))
                outputs.append(h[t + 1, 1])
    u, y = np.stack(inputs), np.stack(outputs)
    size = u.shape[1]
    ridge = training.STRENGTH * (u**2).sum(0).mean()
    u, y = np.vstack([u, np.sqrt(ridge) * np.eye(size)]), np.vstack([y, np.zeros((size, 32))])
    right = np.linalg.lstsq(u, y, rcond=None)[0].T
    for batch in batches[:2]:
        trainee.absorb(batch)
    again = made(teacher, early=1, blocks=2, width=width)
    again.load({name: value.clone() for name, value in trainee.state().items()})
    for batch in batches[2:]:
        again.absorb(batch)
    again.settle()
    state = again.state()
    assert {*state} == {*made(teacher, early=1, blocks=2, width=width).state()}
    found = [state["predictor.linear.weight"], state["predictor.linear.bias"][:, None]]
    found += [state["predictor.down.weight"]] if width else []
    assert np.abs(torch.cat(found, 1).numpy() - right).max() < 1e-3 * np.abs(right).max()


def counted(trainee: JumpTrainee, batch: Batch) -> float:
    """How often the head's likeliest token is the target's, of those that it can say."""
    with torch.no_grad():
        step = trainee.loss(batch, 1)
    after = torch.zeros_like(batch.tokens, dtype=torch.bool)
    after[:, :-1] = torch.isin(batch.top, IDS)[:, 1:]
    return float(step.agree[0][batch.mask(0) & after].float().mean())


def test_it_gets_better_and_every_weight_learns(pair) -> None:
    model, teacher = pair
    trainee = made(teacher, early=1, blocks=1, width=16, rank=2)
    batch = read(model, trainee, some(12, 7))
    before, losses = counted(trainee, batch), []
    with torch.no_grad():
        first = float(trainee.loss(batch, 1).loss)
    trainee.absorb(batch)
    trainee.settle()
    prepared = counted(trainee, batch)
    assert prepared > before + 0.2
    optimizer = torch.optim.AdamW(trainee.parameters(), lr=5e-3, weight_decay=0.0)
    for _ in range(20):
        loss = trainee.loss(batch, 2).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(bool(value.grad.abs().sum() > 0) for value in trainee.parameters())
    assert losses[0] < first
    assert losses[-1] < 0.6 * losses[0]
    assert counted(trainee, batch) > prepared


@pytest.mark.parametrize("rank", [0, 2, -1])
def test_its_state_is_all_of_it(pair, rank: int) -> None:
    model, teacher = pair
    trainee, other = (make(teacher, width=8, rank=rank) for make in (shaken, made))
    leaves = other.parameters()
    batch = read(model, trainee, some(seed=3))
    assert not torch.equal(trainee.loss(batch, 2).loss, other.loss(batch, 2).loss)
    other.load(trainee.state())
    assert all(a is b for a, b in zip(leaves, other.parameters(), strict=True))
    assert torch.equal(trainee.loss(batch, 2).loss, other.loss(batch, 2).loss)
    exports = [each.export() for each in (trainee, other)]
    assert exports[0].config == exports[1].config
    for name, value in exports[0].tensors.items():
        assert torch.equal(exports[1].tensors[name], value)
    kept = trainee.state()
    for value in trainee.parameters():
        value.data.zero_()
    assert all(bool(value.abs().sum() > 0) for value in kept.values())  # a copy


@pytest.mark.parametrize(("start", "length"), [(1, 2), (1, 3), (2, 3), (5, 6), (6, 6)])
def test_the_shortest_rows_are_counted_or_left_out(pair, start: int, length: int) -> None:
    """One token behind the first of an answer is the least that there is to guess."""
    model, teacher = pair
    trainee = shaken(teacher, width=0)
    ids = some(1, most=9)[0].ids[:length]
    batch = read(model, trainee, [Answer("", 0.0, ids[:start], ids[start:], 1)])
    loss = float(trainee.loss(batch, 3).loss.detach())
    assert np.isfinite(loss)
    assert (loss > 0) == (batch.count > 0)


@torch.no_grad()
def test_padding_changes_nothing(pair) -> None:
    """Rows side by side weigh as their anchors do alone."""
    model, teacher = pair
    trainee = shaken(teacher, width=8)
    rows = some(4, 5)
    batch = read(model, trainee, rows)
    alone = [read(model, trainee, [row]) for row in rows]
    losses = [float(trainee.loss(each, 1).loss) * each.count for each in alone]
    right = sum(losses) / sum(each.count for each in alone)
    assert float(trainee.loss(batch, 1).loss) == pytest.approx(right, rel=1e-4)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"blocks": "0"}, "--set blocks must be 1 to 3, and early 0 to 3"),
        ({"blocks": "4"}, "--set blocks must be 1 to 3, and early 0 to 3"),
        ({"early": "-1"}, "--set blocks must be 1 to 3, and early 0 to 3"),
        ({"early": "3", "blocks": "2"}, "of 5 layers is too small for a jump"),
        ({"width": "-1"}, "width must be at least 0"),
        ({"rank": "-2"}, "rank at least -1"),
        ({"rank": "some"}, "rank must be a whole number"),
        ({"depth": "3"}, "depth"),
    ],
)
def test_options_that_make_no_sense_are_refused(pair, given, message) -> None:
    with pytest.raises(PacelineError, match=message) as caught:
        jump(pair[1], IDS, given)
    assert "\n" not in str(caught.value)
