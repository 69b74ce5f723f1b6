"""A copy in fewer bits is the model that would be loaded so, and holds nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models import families
from paceline import kernels
from paceline.errors import PacelineError
from paceline.models.load import load
from paceline.models.native import NativeTransformer
from paceline.models.quant import quantised, same_cache
from paceline.models.skip import skip_layers
from paceline.models.transformer import Transformer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untied."""
    path = tmp_path_factory.mktemp("model")
    families.save("llama", path)
    return path


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tied")
    families.save("qwen2-tied", path)
    return path


def scores(model) -> torch.Tensor:
    ids = families.tokens(2, 14)
    return model.forward(ids, [0, 0], model.new_cache(2, 14)).logits


@pytest.mark.parametrize("wanted", ["int4", "int8"])
def test_a_tied_copy_is_what_is_loaded_in_that_format(tied, wanted, tmp_path) -> None:
    """To the bit, and on the target's own threads."""
    target, own = load(tied, "fp16", "cpu", tmp_path)
    copy = quantised(target, own, tied, wanted, tmp_path)
    assert copy.dtype == wanted
    assert torch.equal(scores(copy.model), scores(load(tied, wanted, "cpu", tmp_path)[0]))
    assert copy.model.engine is target.engine
    assert copy.added == copy.model.nbytes  # all of it: its table is smaller than the target's


def test_tables_of_one_kind_are_there_once(tied, folder, tmp_path) -> None:
    """The embedding and output layer are 8-bit in both formats, and the same bytes."""
    for path in (tied, folder):
        target, own = load(path, "int8", "cpu", tmp_path)
        copy = quantised(target, own, path, "int4", tmp_path)
        assert copy.model.embedding is target.embedding
        assert copy.model.head is target.head
        assert copy.added == copy.model.nbytes - target.head.nbytes
        assert torch.equal(scores(copy.model), scores(load(path, "int4", "cpu", tmp_path)[0]))


def test_what_is_only_looked_up_is_the_target_s(folder, tmp_path) -> None:
    """Under fp16 an untied copy keeps the target's exact embedding and has its own small head."""
    target, own = load(folder, "fp16", "cpu", tmp_path)
    copy = quantised(target, own, folder, "int4", tmp_path)
    assert copy.model.embedding is target.embedding
    assert copy.model.head.kind == "int8"
    assert copy.added == copy.model.nbytes
    alone = load(folder, "int4", "cpu", tmp_path)[0]
    exact = scores(target)
    assert (scores(copy.model) - exact).norm() < 1.05 * (scores(alone) - exact).norm()


def test_a_smaller_output_layer_of_the_target_s_is_the_copy_s(folder, tmp_path) -> None:
    """As of a file that holds it in fewer bits than a copy would."""
    target, own = load(folder, "fp16", "cpu", tmp_path)
    small = target.head = kernels.load().Matrix.empty("int4", *target.head.shape)
    copy = quantised(target, own, folder, "int4", tmp_path)
    assert copy.model.head is small
    assert copy.added == copy.model.nbytes - small.nbytes


@pytest.mark.parametrize("dtype", ["int4", "int8"])
def test_a_model_that_is_in_that_format_is_its_own_copy(folder, dtype, tmp_path) -> None:
    target, own = load(folder, dtype, "cpu", tmp_path)
    copy = quantised(target, own, folder, dtype, tmp_path)
    assert copy.model is target
    assert copy.added == 0


def test_packed_weights_that_a_copy_leaves_are_whole(folder, tmp_path) -> None:
    """What it shares is in them as well: a later start in that format reads them."""
    target, own = load(folder, "int8", "cpu", tmp_path)
    quantised(target, own, folder, "int4", tmp_path)
    (kept,) = tmp_path.glob("*int4*")
    stamp = kept.stat().st_mtime_ns
    again = load(folder, "int4", "cpu", tmp_path)[0]
    assert kept.stat().st_mtime_ns == stamp
    assert torch.equal(scores(again), scores(load(folder, "int4", "cpu", tmp_path / "new")[0]))


def test_progress_is_told(folder, tmp_path) -> None:
    seen: list[str] = []
    target, own = load(folder, "fp16", "cpu", tmp_path)
    tell = lambda done, total, what: seen.append(what)  # noqa: E731
    quantised(target, own, folder, "int4", tmp_path, progress=tell)
    assert set(seen) == {"packing weights"}


@pytest.mark.parametrize("wanted", ["int4", "int8"])
@pytest.mark.parametrize("own", ["fp32", "int8"])
def test_without_the_kernels_it_is_torch_s_int8(folder, wanted, own, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_KERNELS", "0")
    target, own = load(folder, own, "cpu", tmp_path)
    copy = quantised(target, own, folder, wanted, tmp_path)
    assert (copy.dtype, type(copy.model)) == ("int8", Transformer)
    assert (copy.model is target) == (own == "int8")
    assert bool(copy.added) == (own != "int8")
    assert same_cache(target, copy.model)


def test_a_native_copy_of_a_model_in_torch(folder, tmp_path) -> None:
    """fp32 has no native kernels. The two keep different books on a cache: one each."""
    target, own = load(folder, "fp32", "cpu", tmp_path)
    copy = quantised(target, own, folder, "int4", tmp_path)
    assert (type(target), type(copy.model)) == (Transformer, NativeTransformer)
    assert copy.model.engine.threads == torch.get_num_threads()
    assert not same_cache(target, copy.model)


def test_which_caches_are_shared(folder, tied, tmp_path) -> None:
    target, own = load(folder, "fp16", "cpu", tmp_path)
    copy = quantised(target, own, folder, "int4", tmp_path).model
    other = load(tied, "fp16", "cpu", tmp_path)[0]
    assert same_cache(target, copy)
    assert same_cache(target, skip_layers(target, [0]))
    assert not same_cache(target, other)
    assert not same_cache(load(folder, "fp32", "cpu")[0], load(tied, "fp32", "cpu")[0])


def test_a_model_of_transformers_is_refused_by_name(tmp_path) -> None:
    class HfModel:
        device = torch.device("cpu")

    with pytest.raises(PacelineError, match=r"^self:int4: a HfModel, .*use --draft lookup"):
        quantised(HfModel(), "fp32", tmp_path, "int4")  # type: ignore[arg-type]
