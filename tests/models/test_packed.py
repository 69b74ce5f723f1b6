"""Packed weights: the same model from the file as from the checkpoint, and no file that is half."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest
import torch

from models import families
from paceline.models import packfile
from paceline.models.formats import DTYPES, TURN, Rows, decode, encode
from paceline.models.packed import Embedding, PackedWeights, compute_dtype, weight_bytes
from paceline.models.packfile import PackReader, PackWriter
from paceline.models.transformer import Transformer
from paceline.models.weights import HfCheckpoint

CPU = torch.device("cpu")
IDS = torch.tensor([[5, 1, 33, 80, 2, 7, 11]])
KEPT = [name for name in DTYPES if name != "fp32"]


@pytest.fixture(scope="module", params=["qwen2", "qwen2-tied", "gemma3"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("model")
    families.save(request.param, folder)
    return HfCheckpoint(folder)


def logits(checkpoint, dtype: str, folder: Path | None, **hears) -> torch.Tensor:
    with PackedWeights(checkpoint, dtype, CPU, folder, **hears) as weights:
        model = Transformer(weights)
    with torch.no_grad():
        return model.forward(IDS, [0], model.new_cache(1, 16)).logits


@pytest.mark.parametrize("dtype", KEPT)
def test_the_second_start_gives_the_same_logits_to_the_bit(checkpoint, dtype, tmp_path):
    without = logits(checkpoint, dtype, None)
    first = logits(checkpoint, dtype, tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.suffix == ".packed"
    before = path.stat().st_mtime_ns
    second = logits(checkpoint, dtype, tmp_path)
    assert torch.equal(first, without)
    assert torch.equal(second, without)
    assert path.stat().st_mtime_ns == before


def test_the_second_start_reads_no_matrix_of_the_checkpoint(checkpoint, tmp_path, monkeypatch):
    logits(checkpoint, "int8", tmp_path)
    asked = []
    tensor = HfCheckpoint.tensor
    monkeypatch.setattr(
        HfCheckpoint, "tensor", lambda self, name: asked.append(name) or tensor(self, name)
    )
    logits(checkpoint, "int8", tmp_path)
    assert asked
    assert all("norm" in name for name in asked)


def test_fp32_is_kept_nowhere_and_dtypes_do_not_share_a_file(checkpoint, tmp_path):
    logits(checkpoint, "fp32", tmp_path)
    assert not [*tmp_path.iterdir()]
    for dtype in KEPT:
        logits(checkpoint, dtype, tmp_path)
    assert len([*tmp_path.iterdir()]) == len(KEPT)


def test_a_damaged_file_is_made_again(checkpoint, tmp_path):
    expected = logits(checkpoint, "int8", tmp_path)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:100], whole[:-5], whole[:-8] + b"OTHERONE"):
        path.write_bytes(damaged)
        assert torch.equal(logits(checkpoint, "int8", tmp_path), expected)
        assert path.read_bytes() == whole


def test_an_error_or_interrupt_while_packing_leaves_nothing(checkpoint, tmp_path):
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error):
            broken_off(checkpoint, tmp_path, error)
        assert not [*tmp_path.iterdir()]


def broken_off(checkpoint, folder: Path, error: type[BaseException]) -> None:
    with PackedWeights(checkpoint, "int8", CPU, folder) as weights:
        weights.linear("model.layers.0.mlp.down_proj.weight")
        assert len([*folder.iterdir()]) == 1
        raise error


def test_without_room_the_model_loads_and_one_line_says_so(checkpoint, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(packfile.shutil, "disk_usage", lambda path: usage)
    notes: list[str] = []
    found = logits(checkpoint, "int8", tmp_path, note=notes.append)
    assert torch.equal(found, logits(checkpoint, "int8", None))
    assert len(notes) == 1
    assert "packed weights are not kept" in notes[0]
    assert "free" in notes[0]
    assert not [*tmp_path.iterdir()]


def test_a_disk_that_fills_up_meanwhile_is_no_error_either(checkpoint, tmp_path, monkeypatch):
    class Full:
        def __init__(self, file) -> None:
            self.file = file

        def write(self, data) -> None:
            if self.file.tell() > 4000:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(data)

        def __getattr__(self, name: str):
            return getattr(self.file, name)

    def opened(path, mode):
        return Full(open(path, mode))

    monkeypatch.setattr(packfile, "open", opened, raising=False)
    notes: list[str] = []
    found = logits(checkpoint, "int8", tmp_path, note=notes.append)
    monkeypatch.undo()
    assert torch.equal(found, logits(checkpoint, "int8", None))
    assert notes == [f"packed weights are not kept in {tmp_path} (No space left on device)"]
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_cannot_be_made_is_no_error(checkpoint, tmp_path):
    (tmp_path / "file").write_text("in the way")
    notes: list[str] = []
    logits(checkpoint, "int8", tmp_path / "file" / "packed", note=notes.append)
    assert len(notes) == 1


def test_progress_rises_to_the_total_and_names_the_step(checkpoint, tmp_path):
    for what in ("packing weights", "reading weights"):
        heard: list[tuple[int, int, str]] = []
        logits(checkpoint, "fp16", tmp_path, progress=lambda *step, to=heard: to.append(step))
        done = [step[0] for step in heard]
        assert done == sorted(done)
        assert heard[-1] == (heard[0][1], weight_bytes(checkpoint.config, "fp16"), what)


def test_nbytes_counts_what_one_pass_reads(checkpoint):
    with PackedWeights(checkpoint, "fp16", CPU) as weights:
        Transformer(weights)
    config = checkpoint.config
    table = config.vocab_size * config.hidden * 2
    assert weights.nbytes == weight_bytes(config, "fp16") - (0 if config.tied else table)


def test_rows_come_back_from_the_file_as_they_went_in(tmp_path):
    rows = {
        "a": encode(torch.randn(7, 50), "int8", torch.randn(7)),
        "b": encode(torch.randn(3, 64), "fp16"),
        "c": encode(torch.randn(5, 64), "bf16"),
    }
    writer = PackWriter(tmp_path / "x", 100, lambda line: None)
    for key, value in rows.items():
        parts = {"codes": value.codes, "scale": value.scale, "bias": value.bias}
        writer.add(key, parts, linear=key != "b", name=key)
    assert not (tmp_path / "x").exists()
    writer.close(keep=True)
    reader = PackReader.open(tmp_path / "x")
    assert reader is not None
    assert [*reader.keys()] == ["a", "b", "c"]
    assert [reader.facts(key)["linear"] for key in "abc"] == [True, False, True]
    for key, value in rows.items():
        assert key in reader
        assert reader.facts(key)["name"] == key
        assert reader.elements(key, "codes") == value.codes.numel()
        for mapped in (False, True):
            same(Rows(*(reader.tensor(key, p, mapped) for p in ("codes", "scale", "bias"))), value)


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    first, second = (PackWriter(tmp_path / "x", 100, lambda line: None) for _ in range(2))
    for writer, value in ((first, 1), (second, 2), (first, 3)):
        writer.add(str(value), {"data": torch.full((1000,), value)})
    first.close(keep=True)
    second.close(keep=False)
    reader = PackReader.open(tmp_path / "x")
    assert reader is not None
    assert [*reader.keys()] == ["1", "3"]
    assert reader.tensor("1", "data").unique().tolist() == [1]
    assert [*tmp_path.iterdir()] == [tmp_path / "x"]


def test_a_changed_index_is_no_index(tmp_path):
    writer = PackWriter(tmp_path / "x", 100, lambda line: None)
    writer.add("name", {"data": torch.zeros(9)}, rows=9)
    writer.close(keep=True)
    sound = (tmp_path / "x").read_bytes()
    start = sound.index(b"name") - 2
    for at in range(start, len(sound)):
        (tmp_path / "x").write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        assert PackReader.open(tmp_path / "x") is None, at


def same(found: Rows, expected: Rows) -> None:
    for name in ("codes", "scale", "bias"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype is b.dtype
            assert torch.equal(a, b)


def test_activations_are_float32_on_a_cpu_and_the_weights_type_on_a_gpu():
    gpu = torch.device("cuda")
    assert {compute_dtype(name, CPU) for name in DTYPES} == {torch.float32}
    assert compute_dtype("int8", gpu) is torch.bfloat16
    assert compute_dtype("fp16", gpu) is torch.float16


@pytest.mark.parametrize("width", [2 * TURN, TURN + 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_an_embedding_gives_rows_of_the_table(dtype, width):
    table = torch.randn(30, width, generator=torch.Generator().manual_seed(width))
    rows = encode(table, dtype)
    got = Embedding(rows, torch.float32, CPU)(IDS[:, :3] % 30)
    torch.testing.assert_close(got, decode(rows)[IDS[:, :3] % 30], rtol=0, atol=1e-6)
    wanted = table[IDS[:, :3] % 30]
    assert float((got - wanted).norm() / wanted.norm()) < 0.02  # 8 bits; turned wrongly it is 1
