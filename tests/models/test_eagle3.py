"""EAGLE-3 heads out of their folders: both layouts, the same numbers as the plain formulas."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from fakes import sequences
from paceline import kernels
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.drafters.head import HeadDrafter
from paceline.errors import PacelineError
from paceline.models.eagle3 import Eagle3, _exactly, _together
from paceline.models.eagle3_config import Eagle3Config, default_taps, is_eagle3, layer_ids
from paceline.models.eagle3_load import load_eagle3
from paceline.models.head_files import MadeFor
from paceline.models.load import load
from tiny import write_llama
from tiny_heads import DRAFT_IDS, HIDDEN, TAPS, VOCAB, naive, tensors, write_head

PROMPTS = [[1, 2, 3, 4, 5, 6, 7], [9] * 40]
SAMPLED = SamplingParams(temperature=1, seed=3)
native = pytest.mark.skipif(not kernels.available(), reason="no native kernels")
FORMATS = [pytest.param("fp16", marks=native), "fp32"]
VERIFIER = "meta-llama/Llama-3.1-8B-Instruct"
# fp16 on the native kernels rounds weights and activations; the naive pass does not
NEAR = {"fp16": 2e-3, "fp32": 2e-6}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("eagle3")


@pytest.fixture(scope="module")
def target(home: Path):
    folder = write_llama(home / "target", layers=8)
    formats = ["fp32", "fp16"] if kernels.available() else ["fp32"]
    return {dtype: load(folder, dtype=dtype, cache_dir=home)[0] for dtype in formats}


def table(home: Path) -> Tensor:
    return load_file(home / "target" / "model.safetensors")["model.embed_tokens.weight"]


def opened(folder: Path, target, dtype: str = "fp32", name: str = "tiny") -> Eagle3:
    return load_eagle3(folder, folder.name, target[dtype], name, dtype, cache_dir=folder.parent)


def drafted(head: Eagle3, model, prompts=PROMPTS, k: int = 4):
    cached = CachedModel(model, len(prompts), 128)
    seqs = sequences(prompts, SAMPLED, (), 128)
    return cached, HeadDrafter(cached, head).propose(seqs, [k] * len(prompts))


def by_hand(home: Path, weights: dict[str, Tensor], cached, draft, b: int, prepare=None, **how):
    """The q of row b, from the naive pass over what the target read."""
    ids, k = PROMPTS[b], draft.lengths[b]
    features = cached.hidden[b, : len(ids) - 1].float()
    features = prepare(features) if prepare else features
    tokens = ids[1:] + draft.tokens[b, : k - 1].tolist()
    return naive(weights, table(home), features, tokens, k - 1, **how).softmax(-1)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("style", ["plain", "speculators"])
@pytest.mark.parametrize("before", [False, True])
def test_it_computes_what_the_formulas_say(home, target, dtype, style, before) -> None:
    """Several positions at once, then one by one on its own states: as one uncached pass."""
    folder = write_head(home / f"{style}{before}", style, norm_before_residual=before)
    cached, draft = drafted(opened(folder, target, dtype), target[dtype])
    assert cached.taps == [*TAPS]
    assert draft.lengths == [4, 4]
    for b in range(2):
        right = by_hand(home, tensors(), cached, draft, b, before_residual=before)
        assert float((draft.q[b][:, DRAFT_IDS] - right).abs().max()) < NEAR[dtype]
        assert float((draft.q[b].sum(-1) - 1).abs().max()) < 1e-5


@pytest.mark.parametrize("dtype", FORMATS)
def test_both_layouts_and_both_files_are_the_same_head(home, target, dtype) -> None:
    folders = [
        write_head(home / "one"),
        write_head(home / "two", "speculators"),
        write_head(home / "three", file="pytorch_model.bin"),
        write_head(home / "four", "speculators", file="pytorch_model.bin"),
    ]
    drafts = [drafted(opened(folder, target, dtype), target[dtype])[1] for folder in folders]
    for draft in drafts[1:]:
        assert torch.equal(draft.tokens, drafts[0].tokens)
        assert torch.equal(draft.q, drafts[0].q)


def test_newer_heads_norm_what_they_read_and_what_they_feed_back(home, target) -> None:
    make = torch.Generator().manual_seed(5)
    scale = 1 + 0.3 * torch.randn(3 * HIDDEN, generator=make)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    def each(features: Tensor) -> Tensor:
        pairs = zip(features.split(HIDDEN, -1), scale.split(HIDDEN), strict=True)
        return torch.cat([norm(x, w) for x, w in pairs], -1)

    joint = write_head(
        home / "joint", "speculators", weights=tensors() | {"input_norm.weight": scale},
        norm_before_fc=True, norm_output=True,
    )  # fmt: skip
    parts = {f"fc_norm.{i}.weight": part.clone() for i, part in enumerate(scale.split(HIDDEN))}
    single = write_head(home / "each", weights=tensors() | parts, fc_norm=True)
    for folder, prepare, after in [
        (joint, lambda x: norm(x, scale), True),
        (single, each, False),
    ]:
        cached, draft = drafted(opened(folder, target), target["fp32"])
        right = by_hand(home, tensors(), cached, draft, 0, prepare, norm_output=after)
        assert float((draft.q[0][:, DRAFT_IDS] - right).abs().max()) < 1e-5


def test_an_embedding_of_its_own_is_used_where_it_was_trained(home, target) -> None:
    own = {"embed_tokens.weight": table(home).flip(0).contiguous()}
    shared = drafted(opened(write_head(home / "plain0"), target), target["fp32"])[1]
    for style, extra, used in [
        ("plain", {}, True),
        ("speculators", {"embed_requires_grad": True}, True),
        ("speculators", {}, False),
    ]:
        folder = write_head(home / f"own{style}{used}", style, weights=tensors() | own, **extra)
        draft = drafted(opened(folder, target), target["fp32"])[1]
        assert torch.equal(draft.q[:, 0], shared.q[:, 0]) is not used


def test_layer_ids_in_either_spelling(home, target) -> None:
    """At the top level a layer's number means what enters it; in eagle_config what leaves it."""
    key = "eagle_aux_hidden_state_layer_ids"
    for folder, taps in [
        (write_head(home / "ids0"), [2, 4, 5]),
        (write_head(home / "ids1", **{key: [1, 4, 8]}), [1, 4, 8]),
        (write_head(home / "ids2", eagle_config={key: [1, 4, 6]}), [2, 5, 7]),
        (write_head(home / "ids3", "speculators", **{key: [3, 6, 7]}), [3, 6, 7]),
        (write_head(home / "ids4", **layer_ids((1, 3, 6))), [1, 3, 6]),
    ]:
        assert opened(folder, target).taps == taps
    assert layer_ids((1, 3, 6))["eagle_config"][key] == [0, 2, 5]
    assert default_taps(28) == (2, 14, 25)
    with pytest.raises(PacelineError, match="reads layer 9 and tiny has 8"):
        opened(write_head(home / "ids5", **{key: [1, 4, 9]}), target)


def test_without_d2t_it_knows_all_tokens(home, target) -> None:
    whole = torch.randn(VOCAB, HIDDEN, generator=torch.Generator().manual_seed(1))
    weights = {k: t for k, t in tensors().items() if k not in ("d2t", "t2d")}
    folder = write_head(
        home / "full", weights=weights | {"lm_head.weight": whole}, draft_vocab_size=None
    )
    head = opened(folder, target)
    assert head.ids is None
    cached, draft = drafted(head, target["fp32"])
    right = by_hand(home, weights | {"lm_head.weight": whole}, cached, draft, 0)
    assert float((draft.q[0] - right).abs().max()) < 1e-5
    with pytest.raises(PacelineError, match="no d2t that says which"):
        opened(write_head(home / "cut", weights=weights), target)
    mask = weights | {"t2d": tensors()["t2d"]}
    assert opened(write_head(home / "mask", weights=mask), target).ids.tolist() == DRAFT_IDS


def test_a_published_config_is_known() -> None:
    assert is_eagle3({"architectures": ["LlamaForCausalLMEagle3"]})
    assert is_eagle3({"speculators_model_type": "eagle3"})
    assert is_eagle3({"architectures": ["LlamaForCausalLM"], "draft_vocab_size": 32000})
    assert not is_eagle3({"architectures": ["LlamaForCausalLM"]})
    assert not is_eagle3({"speculators_model_type": "dflash", "draft_vocab_size": 32000})
    read = Eagle3Config.read(
        {
            "speculators_model_type": "eagle3",
            "draft_vocab_size": 32000,
            "norm_before_residual": True,
            "transformer_layer_config": {
                "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
                "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 1,
                "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            },
            "speculators_config": {"verifier": {"name_or_path": VERIFIER}},
        },
        "x",
    )  # fmt: skip
    assert read.layer.head_dim == 128
    assert read.made_for == MadeFor(VERIFIER, 4096, 128256)
    assert read.norm_before_residual
    assert not read.trained_embedding


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 64}, r"hidden size 64, not 32"),
        ({"vocab_size": 1000}, r"vocabulary 1000, not 257"),
        ({"target": {"layers": 30}}, r"layers 30, not 8"),
        ({"target": {"name": "qwen2.5-coder-1.5b"}}, r"qwen2.5-coder-1.5b \(by its name\)"),
        ({"num_hidden_layers": 2}, "2 layers; heads of one"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope kind 'yarn' is not implemented"),
        ({"intermediate_size": 96}, r"gate_proj.weight is \[64, 32\] where its config makes it"),
        ({"hidden_size": "wide"}, "makes no sense"),
        ({"eagle_aux_hidden_state_layer_ids": [4, 2, 1]}, "not in ascending order"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_one_line(home, target, change, message) -> None:
    folder = write_head(home / "wrong", **change)
    with pytest.raises(PacelineError, match=message) as caught:
        opened(folder, target)
    assert "\n" not in str(caught.value)


def test_tokens_that_the_target_has_not_are_refused(home, target) -> None:
    weights = tensors() | {"d2t": tensors()["d2t"] + 9}
    with pytest.raises(PacelineError, match="drafts tokens that tiny has not"):
        opened(write_head(home / "beyond", weights=weights), target)


def test_names_are_compared_loosely() -> None:
    made = MadeFor("Qwen/Qwen2.5-Coder-1.5B-Instruct")

    class Shape:
        hidden = vocab_size = layers = 0

    for same in [
        "qwen2.5-coder-1.5b",
        "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF:qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "someone/Qwen2.5-Coder-1.5B-Instruct-GPTQ-Int4",
        ".",  # a path: judged by its shape alone
    ]:
        made.check("h", same, Shape())
    for other in ["qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct", "smollm2-135m"]:
        with pytest.raises(PacelineError, match="cannot draft for"):
            made.check("h", other, Shape())


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return (print, ("unpickled",))


def test_damaged_and_malicious_files_are_refused(home, target, capsys) -> None:
    folder = write_head(home / "bad")
    (folder / "model.safetensors").unlink()
    with pytest.raises(PacelineError, match="has no weights"):
        opened(folder, target)
    torch.save({"fc.weight": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(PacelineError, match="damaged or cut short"):
        opened(folder, target)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(PacelineError, match="damaged or cut short"):
        opened(folder, target)
    assert "unpickled" not in capsys.readouterr().out
    whole = (write_head(home / "good") / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-500])
    with pytest.raises(PacelineError, match="damaged or cut short"):
        opened(folder, target)
    (folder / "config.json").write_text("[1]")
    with pytest.raises(PacelineError, match="no JSON object"):
        opened(folder, target)
    (folder / "config.json").unlink()
    with pytest.raises(PacelineError, match=r"no config\.json"):
        opened(folder, target)
    missing = {k: t for k, t in tensors().items() if "o_proj" not in k}
    with pytest.raises(PacelineError, match=r"no tensor layer.self_attn.o_proj.weight"):
        opened(write_head(home / "missing", weights=missing), target)


def test_attention_in_one_call_is_the_same(home, target) -> None:
    """What a GPU does, against the position-by-position one."""
    make = torch.Generator().manual_seed(1)
    q = torch.randn(3, 4, 2, 3, 16, generator=make)
    keys, values = torch.randn(2, 3, 2, 40, 16, generator=make)
    at = [0, 9, 30]
    apart = _exactly(q, keys, values, at).reshape(12, -1)
    together = _together(q, keys, values, at).reshape(12, -1)
    assert float((apart - together).abs().max()) < 1e-5


@native
def test_what_was_packed_is_read_back(home, target) -> None:
    folder = write_head(home / "packed")
    first = drafted(opened(folder, target, "fp16"), target["fp16"])[1]
    again = drafted(opened(folder, target, "fp16"), target["fp16"])[1]
    assert torch.equal(first.q, again.q)
    config = json.loads((folder / "config.json").read_text())
    write_head(folder, seed=1, **config)  # other weights under the same name
    other = drafted(opened(folder, target, "fp16"), target["fp16"])[1]
    assert not torch.equal(first.q, other.q)
