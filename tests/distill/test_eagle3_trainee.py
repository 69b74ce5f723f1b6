"""The EAGLE-3 head in training is the head that drafts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from fakes import sequences
from paceline.core.cached import CachedModel
from paceline.core.follower import Follower
from paceline.core.params import SamplingParams
from paceline.distill.blocks import rms_norm
from paceline.distill.eagle3 import Eagle3Trainee, eagle3
from paceline.distill.export import write
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Batch
from paceline.errors import PacelineError
from paceline.models.eagle3_load import load_eagle3
from paceline.models.load import load, open_checkpoint
from tiny import write_llama

LAYERS, VOCAB = 6, torch.arange(1, 257, 3)
STEPS = 4


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("eagle3")


def with_biases(folder: Path) -> Path:
    """The Llama in `folder` as a Qwen2: its queries, keys and values have biases."""
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(folder / "model.safetensors")
    make = torch.Generator().manual_seed(9)
    for i in range(LAYERS):
        for part, width in (("q", 64), ("k", 32), ("v", 32)):
            name = f"model.layers.{i}.self_attn.{part}_proj.bias"
            tensors[name] = 0.3 * torch.randn(width, generator=make)
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module", params=["llama", "qwen2"])
def pair(request: pytest.FixtureRequest, home: Path):
    """A model and it as a teacher."""
    folder = write_llama(home / request.param, layers=LAYERS)
    if request.param == "qwen2":
        with_biases(folder)
    model = load(folder, dtype="fp32", cache_dir=home)[0]
    return model, Teacher("tiny", folder, open_checkpoint(folder), model, torch.device("cpu"))


@pytest.fixture(scope="module")
def model(pair):
    return pair[0]


@pytest.fixture(scope="module")
def teacher(pair) -> Teacher:
    return pair[1]


def shaken(teacher: Teacher, **given: str) -> Eagle3Trainee:
    """Away from where it starts, so that no part of it is zero."""
    trainee = eagle3(teacher, VOCAB, given)
    make = torch.Generator().manual_seed(1)
    for value in trainee.parameters():
        value.data += 0.2 * torch.randn(value.shape, generator=make)
    return trainee


def batch_of(model, trainee: Eagle3Trainee, rows: list[list[int]], starts: list[int]) -> Batch:
    width = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    tapped = model.tapped(trainee.needs.taps)
    out = tapped.forward(tokens, [0] * len(rows), tapped.new_cache(len(rows), width))
    hidden = out.hidden.view(*tokens.shape, len(trainee.needs.taps), -1)
    lines = [i + 1 for i in range(len(rows))]
    return Batch(tokens, [*map(len, rows)], starts, lines, hidden, out.logits.argmax(-1))


def answers(model, seed: int, rows: int = 3, length: int = 24) -> list[list[int]]:
    """Prompts of four tokens, continued greedily by the target."""
    make = torch.Generator().manual_seed(seed)
    out = []
    for prompt in torch.randint(0, 257, (rows, 4), generator=make).tolist():
        ids = list(prompt)
        while len(ids) < length:
            logits = model.forward(torch.tensor([ids]), [0], model.new_cache(1, 64)).logits
            ids.append(int(logits[0, -1].argmax()))
        out.append(ids)
    return out


def test_its_steps_are_the_drafters_steps(home, model, teacher) -> None:
    """Exported, loaded and fed token by token, it gives the unrolled steps' q, at every anchor."""
    trainee = shaken(teacher, taps="1,3,5", train_head="true")
    folder = home / "exported"
    folder.mkdir(exist_ok=True)
    write(folder, trainee.export(), teacher, "a card")
    head = load_eagle3(folder, "exported", model, "tiny", "fp32", cache_dir=home)
    assert head.taps == [1, 3, 5]
    assert head.ids.tolist() == VOCAB.tolist()
    for value in trainee.parameters():  # what was written is fp16
        value.data = value.data.half().float()
    row = torch.randint(0, 257, (20,), generator=torch.Generator().manual_seed(2)).tolist()
    batch = batch_of(model, trainee, [row], [3])
    unrolled = [trainee.log_probs(x).detach() for x in trainee.unroll(batch, STEPS)]
    cached = CachedModel(model, 1, 64)
    cached.tap(head.taps)
    follower = Follower(cached, head)
    for anchor in range(len(row) - 1 - STEPS):
        seqs = sequences([row[: anchor + 2]], SamplingParams(), (), 64)
        scores = follower.read(seqs)
        for j in range(STEPS):
            if j:
                token = torch.tensor([row[anchor + 1 + j]])
                scores = follower.extend(seqs, token, j - 1)
            assert float((scores[0].log_softmax(-1) - unrolled[j][0, anchor]).abs().max()) < 2e-4


def test_it_starts_as_the_targets_last_block(model, teacher) -> None:
    """It says first what the target says of the position that it reads, not yet of the next."""
    trainee = eagle3(teacher, VOCAB, {})
    batch = batch_of(model, trainee, [[5, 6, 7, 8, 9, 10]], [1])
    first = next(trainee.unroll(batch, 1)).detach()
    assert float((first - batch.hidden[:, :, 3]).abs().max()) < 1e-4
    right = rms_norm(batch.hidden[:, :, 3], teacher.norm(), 1e-5) @ teacher.head(VOCAB).T
    assert float((trainee.log_probs(first).detach() - right.log_softmax(-1)).abs().max()) < 1e-4


def test_its_loss_is_the_kl_over_what_counts(model, teacher) -> None:
    trainee = shaken(teacher)
    rows = answers(model, 3)
    batch = batch_of(model, trainee, rows, [4, 6, 23])
    with torch.no_grad():
        step = trainee.loss(batch, 3)
        states = [*trainee.unroll(batch, 3)]
    total, terms = 0.0, 0
    for j in range(3):
        for b, row in enumerate(rows):
            for t in range(len(row)):
                place = t + 1 + j
                if not (t >= batch.starts[b] - 2 and place <= len(row) - 2):
                    continue
                top = int(batch.top[b, place])
                agrees = top == int(VOCAB[trainee.log_probs(states[j][b, t]).argmax()])
                assert bool(step.agree[j][b, t]) == agrees
                if top not in VOCAB.tolist():
                    continue
                last = rms_norm(batch.hidden[b, place, 3], teacher.norm(), 1e-5)
                p = (last @ teacher.head(VOCAB).T).softmax(-1)
                q = trainee.log_probs(states[j][b, t]).detach()
                total += float((p * (p.log() - q)).sum())
                terms += 1
                shared = float(torch.minimum(p, q.exp()).sum())
                assert float(step.overlap[j][b, t]) == pytest.approx(shared, abs=1e-4)
    assert terms > 10
    assert float(step.loss) == pytest.approx(total / terms, rel=1e-4)


def test_every_weight_learns_and_it_gets_better(model, teacher) -> None:
    trainee = eagle3(teacher, VOCAB, {"train_head": "true"})
    batch = batch_of(model, trainee, answers(model, 5, rows=6), [4] * 6)
    optimizer = torch.optim.AdamW(trainee.parameters(), lr=3e-3, weight_decay=0.0)
    losses = []
    for _ in range(25):
        loss = trainee.loss(batch, STEPS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(bool(value.grad.abs().sum() > 0) for value in trainee.parameters())
    assert losses[-1] < 0.4 * losses[0]
    step = trainee.loss(batch, STEPS)
    known = torch.isin(batch.top, VOCAB)
    after = torch.zeros_like(known)
    after[:, :-1] = known[:, 1:]
    counted = batch.mask(0) & after
    assert float(step.agree[0][counted].float().mean()) > 0.8


def test_its_state_is_all_of_it(model, teacher) -> None:
    trainee, other = shaken(teacher), eagle3(teacher, VOCAB, {})
    leaves = other.parameters()
    other.load({name: value.clone() for name, value in trainee.state().items()})
    assert all(a is b for a, b in zip(leaves, other.parameters(), strict=True))
    batch = batch_of(model, trainee, answers(model, 7), [4, 4, 4])
    assert torch.equal(trainee.loss(batch, 2).loss, other.loss(batch, 2).loss)
    assert "lm_head.weight" not in trainee.state()
    assert "lm_head.weight" in eagle3(teacher, VOCAB, {"train_head": "1"}).state()


def test_the_published_names_and_maps(teacher) -> None:
    export = eagle3(teacher, VOCAB, {}).export()
    assert export.config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert export.config["draft_vocab_size"] == len(VOCAB)
    assert export.config["eagle_aux_hidden_state_layer_ids"] == [2, 3, 5]
    assert export.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [1, 2, 4]
    tensors = export.tensors
    assert (torch.arange(len(VOCAB)) + tensors["d2t"]).tolist() == VOCAB.tolist()
    assert tensors["t2d"].nonzero()[:, 0].tolist() == VOCAB.tolist()
    assert tensors["t2d"].dtype == torch.bool
    assert tuple(tensors["midlayer.self_attn.q_proj.weight"].shape) == (64, 64)
    assert {name for name in tensors if "norm" in name} == {
        "midlayer.input_layernorm.weight",
        "midlayer.hidden_norm.weight",
        "midlayer.post_attention_layernorm.weight",
        "norm.weight",
    }
    assert tensors["fc.weight"].dtype == torch.float16


@pytest.mark.parametrize("taps", ["1,2", "3,2,1", "0,2,4", "1,2,6", "a,b,c"])
def test_layers_that_are_none_are_refused(teacher, taps) -> None:
    with pytest.raises(PacelineError, match="give three of the target's 6 layers"):
        eagle3(teacher, VOCAB, {"taps": taps})
