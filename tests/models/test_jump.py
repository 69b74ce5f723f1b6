"""Jump heads out of their folders: the numbers of the plain formulas, or one line that says why
not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes import HashLM, sequences
from paceline import kernels
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.drafters.head import HeadDrafter
from paceline.errors import PacelineError
from paceline.models import jump
from paceline.models.jump import Jump, is_jump, load_jump
from paceline.models.load import load
from tiny_jumps import DRAFT_IDS, HIDDEN, VOCAB, Naive, write_jump, write_target

pytestmark = pytest.mark.skipif(not kernels.available(), reason="no native kernels")
PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9] * 3 + [200, 17] * 8, [256, 40]]
SAMPLED = SamplingParams(temperature=1, seed=3)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("jump")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_HOME", str(folder))
        yield folder


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head's matrices as they are, not rounded once more, nor what they are multiplied with."""
    monkeypatch.setattr(jump, "_FORMAT", "fp16")


@pytest.fixture(scope="module")
def targets(home: Path):
    """Folder and model by family and format."""

    def make(family: str, dtype: str):
        folder = home / family
        if not folder.exists():
            write_target(folder, family)
        if (family, dtype) not in known:
            known[family, dtype] = load(folder, dtype, "cpu", home / "packed")[0]
        return folder, known[family, dtype]

    known: dict = {}
    return make


def opened(folder: Path, model, name: str = "tiny") -> Jump:
    return load_jump(folder, folder.name, model, name)


def drafted(head: Jump, model, prompts=PROMPTS, k: int = 4):
    cached = CachedModel(model, len(prompts), 128)
    return HeadDrafter(cached, head).propose(
        sequences(prompts, SAMPLED, (), 128), [k] * len(prompts)
    )


def worst(target: Path, folder: Path, draft, prompts=PROMPTS) -> float:
    """How far any q is from the naive one."""
    naive, far = Naive(target, folder), 0.0
    for b, ids in enumerate(prompts):
        n = draft.lengths[b]
        assert n
        right = naive.logits(ids, draft.tokens[b, : n - 1].tolist()).softmax(-1)
        far = max(far, float((draft.q[b, :n][:, DRAFT_IDS] - right).abs().max()))
        assert float((draft.q[b, :n].sum(-1) - 1).abs().max()) < 1e-5
    return far


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize(
    ("early", "blocks", "width", "tuned"),
    [
        (0, 1, 0, False),
        (1, 1, 24, False),
        (2, 2, 24, False),
        (0, 2, 40, True),
        (2, 1, 0, True),
        (1, 3, 24, True),
    ],
)
def test_it_computes_what_the_formulas_say(
    home, targets, exact, family, early, blocks, width, tuned
) -> None:
    """Short and long rows side by side, and none of the positions, biases or states swapped."""
    target, model = targets(family, "fp16")
    folder = home / f"{family}{early}{blocks}{width}{tuned}"
    write_jump(folder, target, early, blocks, width, tuned)
    head = opened(folder, model)
    assert head.taps == [5 - blocks, 5]
    assert worst(target, folder, drafted(head, model)) < 2e-5


@pytest.mark.parametrize("dtype", ["fp16", "int8"])
@pytest.mark.parametrize(("own", "near"), [("int8", 0.2), ("int4", 0.5)])
def test_in_few_bits_it_is_near(home, targets, monkeypatch, dtype, own, near) -> None:
    monkeypatch.setattr(jump, "_FORMAT", own)
    target, model = targets("qwen2", dtype)
    folder = write_jump(home / "near", target)
    head, other = opened(folder, model), opened(write_jump(home / "far", target, seed=1), model)
    assert worst(target, folder, drafted(head, model)) < near
    assert worst(target, folder, drafted(other, model)) > 0.5


def test_a_cache_that_is_longer_than_the_last_one(home, targets, exact) -> None:
    """One loaded head serves one cache after another, at any position of each."""
    target, model = targets("qwen2", "fp16")
    folder = write_jump(home / "longer", target)
    head, naive = opened(folder, model), Naive(target, folder)
    make = torch.Generator().manual_seed(0)
    for length in (16, 300, 16, 90):
        ids = torch.randint(VOCAB, (length - 1,), generator=make).tolist()
        cached = CachedModel(model, 2, length)
        seqs = sequences([[1, 2, 3], ids], SAMPLED, (), length)
        draft = HeadDrafter(cached, head).propose(seqs, [4, 60])  # into the slack behind the end
        assert draft.lengths == [4, 60]
        if length <= 90:
            right = naive.logits(ids, draft.tokens[1, :5].tolist()).softmax(-1)
            assert float((draft.q[1, :6][:, DRAFT_IDS] - right).abs().max()) < 2e-5
        alone = HeadDrafter(CachedModel(model, 1, length), opened(folder, model)).propose(
            sequences([ids], SAMPLED, (), length), [60]
        )
        assert torch.equal(alone.q[0], draft.q[1])


def test_what_was_packed_is_read_back_for_the_same_target_alone(home, targets, monkeypatch) -> None:
    monkeypatch.setattr(jump, "_FORMAT", "int8")
    target, model = targets("llama", "int8")
    folder = write_jump(home / "packed_head", target, tuned=True)
    first, again = (drafted(opened(folder, model), model) for _ in range(2))
    assert torch.equal(first.q, again.q)
    other = write_target(home / "other target", seed=5)
    with_others = load(other, "int8", "cpu", home / "packed")[0]
    draft = drafted(opened(folder, with_others, str(other)), with_others)
    assert worst(other, folder, draft) < 0.2
    write_jump(folder, target, tuned=True, seed=1)  # other weights under the same name
    assert not torch.equal(drafted(opened(folder, model), model).q, first.q)


def test_ids_beyond_the_vocabulary_are_read_as_the_target_reads_them(home, targets) -> None:
    """A tokenizer may know more than the model."""
    target, model = targets("llama", "fp16")
    head = opened(write_jump(home / "beyond", target, early=0), model)
    strange, last = drafted(head, model, [[1, 2, VOCAB + 9]]), drafted(head, model, [[1, 2, 256]])
    assert torch.equal(strange.q, last.q)


def test_it_is_known_by_its_config() -> None:
    assert is_jump({"paceline_head": "jump"})
    assert not is_jump({"paceline_head": "other"})
    assert not is_jump({"architectures": ["LlamaForCausalLMEagle3"]})


def refused(folder: Path, model, message: str, name: str = "tiny") -> None:
    with pytest.raises(PacelineError, match=message) as caught:
        opened(folder, model, name)
    assert "\n" not in str(caught.value)


def made_for(**change) -> dict:
    return {"target": {"name": "tiny", "hidden": HIDDEN, "vocab": VOCAB, "layers": 5} | change}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden": 64, **made_for(hidden=64)}, "hidden size 64, not 32"),
        ({"layers": 9, **made_for(layers=9)}, "layers 9, not 5"),
        (made_for(vocab=1000), "vocabulary 1000, not 257"),
        (made_for(name="qwen2.5-coder-1.5b"), r"qwen2.5-coder-1.5b \(by its name\)"),
        (made_for(hidden=64), "makes no sense"),
        (made_for(layers=4), "makes no sense"),
        ({"layers": 6}, "makes no sense"),
        ({"early": 4}, "makes no sense"),
        ({"early": -1}, "makes no sense"),
        ({"enter": 5}, "makes no sense"),
        ({"confidence": 1.0}, "makes no sense"),
        ({"confidence": float("nan")}, "makes no sense"),
        ({"early": "some"}, "not a jump head's"),
        ({"width": None}, "not a jump head's"),
        ({"enter": float("inf")}, "not a jump head's"),
        ({"target": None}, "not a jump head's"),
        ({"target": {"name": "tiny"}}, "not a jump head's"),
        (made_for(vocab="many"), "not a jump head's"),
        ({"width": 25}, r"up.weight is \(24, 96\), not \(25, 96\)"),
        ({"width": -1}, "up.weight is"),
    ],
)
def test_a_config_that_does_not_fit_is_refused_in_one_line(home, targets, change, message) -> None:
    target, model = targets("llama", "int8")
    refused(write_jump(home / "wrong", target, config=change), model, message)


def without(name: str):
    return lambda tensors: tensors.pop(name)


def instead(name: str, value: torch.Tensor):
    return lambda tensors: tensors.update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("ids"), "has no tensor 'ids'"),
        (without("linear.weight.codes"), r"has no tensor 'linear.weight.codes'"),
        (without("linear.weight.scales"), r"has no tensor 'linear.weight.scales'"),
        (without("linear.bias"), r"has no tensor 'linear.bias"),
        (without("down.weight.codes"), r"has no tensor 'down.weight.codes'"),
        (without("blocks.4.mlp.up_proj.weight.codes"), r"has no tensor 'blocks.4.mlp.up_proj"),
        (without("blocks.4.input_layernorm.weight"), r"has no tensor 'blocks.4.input_layernorm"),
        (instead("ids", torch.tensor([3, 5, VOCAB])), "drafts tokens that the target has not"),
        (instead("ids", torch.tensor([-1, 5])), "drafts tokens that the target has not"),
        (instead("ids", torch.tensor([3, 5, 3])), "ids are damaged"),
        (instead("ids", torch.tensor([], dtype=torch.int64)), "ids are damaged"),
        (instead("ids", torch.tensor([[3], [5]])), "ids are damaged"),
        (instead("linear.bias", torch.zeros(31)), r"linear.bias is \(31,\), not \(32,\)"),
        (instead("linear.weight.scales", torch.ones(32, 2)), r"codes have \[32, 2\] scales"),
        (instead("blocks.4.self_attn.o_proj.weight.codes", torch.ones(5, 64)), "do not fit"),
        (instead("blocks.4.self_attn.q_proj.bias", torch.ones(5)), "do not fit"),
        (instead("blocks.4.input_layernorm.weight", torch.ones(31)), "do not fit"),
        (instead("blocks.4.input_layernorm.weight", torch.ones(4, 8)), "do not fit"),
    ],
)
def test_damaged_or_missing_tensors_are_refused_in_one_line(home, targets, change, message) -> None:
    target, model = targets("qwen2", "int8")
    refused(write_jump(home / "bad", target, tuned=True, change=change), model, message)


def test_files_that_cannot_be_read_and_targets_that_cannot_be_used(home, targets) -> None:
    target, model = targets("llama", "int8")
    folder = write_jump(home / "damaged", target)
    refused(folder, model, r"cannot draft for smollm2-135m", "smollm2-135m")
    refused(folder, HashLM(VOCAB), "needs a target on the native kernels")
    in_torch = load(target, "fp32", "cpu", home / "packed")[0]
    refused(folder, in_torch, "needs a target on the native kernels")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-100])
    refused(folder, model, "damaged or cut short")
    (folder / "model.safetensors").unlink()
    refused(folder, model, "has no weights")
    (folder / "config.json").write_text(json.dumps(["jump"]))
    refused(folder, model, "no JSON object")


def test_a_refused_head_leaves_nothing_packed(home, targets) -> None:
    """The next one in the folder is read anew."""
    target, model = targets("llama", "int8")
    before = {*(home / "packed").glob("*")}
    change = without("blocks.4.mlp.up_proj.weight.codes")
    folder = write_jump(home / "half", target, tuned=True, change=change)
    refused(folder, model, "has no tensor")
    assert {*(home / "packed").glob("*")} == before


def test_numbers_that_are_none_do_not_reach_the_target(home, targets) -> None:
    """What the head writes behind the target's own entries is never read by it."""
    target, model = targets("llama", "fp16")
    change = instead("linear.bias", torch.full((HIDDEN,), torch.nan))
    head = opened(write_jump(home / "nan", target, change=change), model)
    cached, clean = CachedModel(model, 2, 64), CachedModel(model, 2, 64)
    seqs = sequences([[1, 2, 3], [5] * 9], SAMPLED, (), 64)
    draft = HeadDrafter(cached, head).propose(seqs, [4, 3])
    assert draft.q[0, 0].nonzero().tolist() == [[DRAFT_IDS[0]]]  # a point mass
    for b, n in enumerate(draft.lengths):
        found, wanted = (c.score(seqs, draft)[b, : n + 1] for c in (cached, clean))
        assert torch.equal(found, wanted)
        assert np.isfinite(found.numpy()).all()
