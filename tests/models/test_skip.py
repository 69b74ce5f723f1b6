"""A model without some of its layers, and a model whose states in between are kept."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels import tiny_decoders
from models import families
from paceline.errors import PacelineError
from paceline.models import transformer
from paceline.models.load import load
from paceline.models.skip import (
    Skip,
    layer_count,
    save_skip,
    saved_skip,
    skip_layers,
    skippable,
    spread,
)

KEEP = [0, 2, 3]
LAYERS = 5


def without(folder: Path, keep: list[int], target: Path) -> Path:
    """The checkpoint in `folder` with these layers alone, renumbered."""
    config = json.loads((folder / "config.json").read_text())
    config["num_hidden_layers"] = len(keep)
    if config.get("layer_types"):
        config["layer_types"] = [config["layer_types"][i] for i in keep]
    tensors = {}
    for name, value in load_file(folder / "model.safetensors").items():
        parts = name.split(".")
        if parts[1] == "layers":
            if int(parts[2]) not in keep:
                continue
            parts[2] = str(keep.index(int(parts[2])))
        tensors[".".join(parts)] = value
    target.mkdir(exist_ok=True)
    (target / "config.json").write_text(json.dumps(config))
    save_file(tensors, target / "model.safetensors")
    return target


@pytest.fixture(params=["fp16", "int8", "fp32", "torch fp16"], scope="module")
def models(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A whole model, and one made of a checkpoint of the layers in KEEP."""
    folder = tmp_path_factory.mktemp("model")
    families.save("gemma3", folder, num_hidden_layers=LAYERS, sliding_window=families.WINDOW)
    part = without(folder, KEEP, folder / "part")
    dtype = request.param.removeprefix("torch ")
    with pytest.MonkeyPatch.context() as patch:
        if dtype != request.param:
            patch.setenv("PACELINE_KERNELS", "0")
        return tuple(load(path, dtype, "cpu", folder / "packed")[0] for path in (folder, part))


def test_the_rest_is_the_model_of_the_other_layers(models) -> None:
    """To the bit, over caches of its own; and it reads as much of the weights."""
    whole, part = models
    rest = skip_layers(whole, KEEP)
    ids = families.tokens(2, 20)
    found = rest.forward(ids, [0, 0], rest.new_cache(2, 20))
    wanted = part.forward(ids, [0, 0], part.new_cache(2, 20))
    assert torch.equal(found.logits, wanted.logits)
    assert torch.equal(found.hidden, wanted.hidden)
    assert rest.nbytes == part.nbytes < whole.nbytes


def test_over_the_whole_model_s_cache_it_attends_to_that_model_s_keys_and_values(models) -> None:
    """As the model of these layers does when it is given their part of the cache. What the whole
    model reads afterwards is what it would have read."""
    whole, part = models
    rest = skip_layers(whole, KEEP)
    ids, at = families.tokens(2, 30), [9, 17]
    cache, other = whole.new_cache(2, 30), part.new_cache(2, 30)
    rest.reach(cache.length)
    for b, n in enumerate(at):
        whole.forward(ids[b : b + 1, :n], [0], cache, row=b, logits=False)
        part.forward(ids[b : b + 1, :n], [0], other, row=b, logits=False)
    other.data.copy_(cache.data[KEEP])
    behind = list(at)
    for width in (1, 1, 3):
        piece = torch.stack([ids[b, n : n + width] for b, n in enumerate(behind)])
        found = rest.forward(piece, behind, cache).logits
        assert torch.equal(found, part.forward(piece, behind, other).logits)
        behind = [n + width for n in behind]
    piece = torch.stack([ids[b, n : n + 6] for b, n in enumerate(at)])
    found = whole.forward(piece, at, cache).logits
    for b, n in enumerate(at):
        alone = whole.forward(ids[b : b + 1, : n + 6], [0], whole.new_cache(1, 30)).logits
        assert torch.equal(found[b], alone[0, n:])


def test_all_layers_are_the_model(models) -> None:
    whole, _ = models
    rest, ids = skip_layers(whole, range(LAYERS)), families.tokens(1, 12)
    wanted = whole.forward(ids, [0], whole.new_cache(1, 12)).logits
    assert torch.equal(rest.forward(ids, [0], rest.new_cache(1, 12)).logits, wanted)
    assert rest.nbytes == whole.nbytes


@pytest.mark.parametrize("keep", [[], [-1, 0], [LAYERS], [0, LAYERS + 3]])
def test_layers_that_are_not_there(models, keep: list[int]) -> None:
    with pytest.raises(ValueError, match="keep some of the layers 0 to 4"):
        skip_layers(models[0], keep)


def test_tapped_states_are_what_the_layers_read(models, monkeypatch) -> None:
    """The final norm of the state that enters layer i is what a model of the layers before it
    gives; the logits stay; and the cuts inside one pass change nothing."""
    whole, _ = models
    ids, taps = families.tokens(2, 21), [1, 2, LAYERS]
    tapped = whole.tapped(taps)
    plain = whole.forward(ids, [0, 0], whole.new_cache(2, 21))
    found = tapped.forward(ids, [0, 0], tapped.new_cache(2, 21))
    assert torch.equal(found.logits, plain.logits)
    states = found.hidden.unflatten(-1, (len(taps), -1))
    weight = plain.hidden / _normed(states[..., -1, :])  # of the final norm, position by position
    for place, layer in enumerate(taps[:-1]):
        before = skip_layers(whole, range(layer))
        wanted = before.forward(ids, [0, 0], before.new_cache(2, 21)).hidden
        torch.testing.assert_close(
            _normed(states[..., place, :]) * weight, wanted, rtol=1e-3, atol=1e-4
        )
    monkeypatch.setattr(transformer, "PASS", 8)
    cut = tapped.forward(ids, [0, 0], tapped.new_cache(2, 21), logits=False)
    assert cut.logits is None
    assert torch.equal(cut.hidden, found.hidden)


def _normed(x: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3"])
def test_both_kinds_of_model_are_tapped_alike(family: str) -> None:
    weights = tiny_decoders.Weights(tiny_decoders.FAMILIES[family])
    ids, taps = tiny_decoders.tokens(2, 15), [0, 1, weights.config.layers]
    pair = [make(weights).tapped(taps) for make in (tiny_decoders.native, tiny_decoders.reference)]
    ours, theirs = (m.forward(ids, [0, 0], m.new_cache(2, 15)).hidden for m in pair)
    assert ours.shape == (2, 15, 3 * weights.config.hidden)
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("taps", [[-1], [0, LAYERS + 1]])
def test_taps_that_are_not_there(models, taps: list[int]) -> None:
    whole, ids = models[0], families.tokens(1, 2)
    with pytest.raises(ValueError, match="taps"):
        whole.tapped(taps).forward(ids, [0], whole.new_cache(1, 2))


def test_a_choice_is_even_and_spares_the_ends() -> None:
    for layers in range(4, 60):
        among = skippable(layers)
        assert (among[0], among[-1]) == (2, layers - 2)
        for count in range(1, len(among) + 1):
            chosen = spread(layers, count)
            assert len(set(chosen)) == count
            assert set(chosen) <= set(among)
            gaps = [b - a for a, b in pairwise(chosen)]
            assert max(gaps, default=0) - min(gaps, default=0) <= 1
            lead, tail = chosen[0] - among[0], among[-1] - chosen[-1]
            assert abs(lead - tail) <= 1
    assert spread(8, 0) == []
    assert [len(skippable(n)) for n in range(5)] == [0, 0, 0, 0, 1]
    with pytest.raises(ValueError, match="6 of 5 layers"):
        spread(8, 6)


def test_a_model_of_transformers_is_refused_by_name() -> None:
    class HfModel:
        vocab_size, context = 5, 10

    with pytest.raises(PacelineError, match=r"^self:skip: a HfModel, .*use --draft lookup"):
        layer_count(HfModel())  # type: ignore[arg-type]


FOUND = Skip([2, 4], 8, 0.75, 0.8, 3, 1.2, "int8")


def test_what_a_search_found_is_kept_by_checkpoint(tmp_path: Path) -> None:
    assert saved_skip("a" * 64, tmp_path / "new") is None
    save_skip("a" * 64, FOUND, tmp_path / "new")
    assert saved_skip("a" * 64, tmp_path / "new") == FOUND
    assert saved_skip("b" * 64, tmp_path / "new") is None
    assert len([*(tmp_path / "new").iterdir()]) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"dropped": [1]}', "null"])
def test_a_damaged_result_is_none(tmp_path: Path, text: str) -> None:
    save_skip("a" * 64, FOUND, tmp_path).write_text(text)
    assert saved_skip("a" * 64, tmp_path) is None


@pytest.mark.parametrize("dropped", [[], [0], [7], [2, 9]])
def test_a_result_that_leaves_out_what_it_must_not_is_none(tmp_path: Path, dropped) -> None:
    save_skip("a" * 64, Skip(dropped, 8, 1, 1, 1, 1, "int8"), tmp_path)
    assert saved_skip("a" * 64, tmp_path) is None


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PacelineError, match="set PACELINE_HOME"):
        save_skip("a" * 64, FOUND, tmp_path / "file")
