"""One door to every model: what comes in, what "auto" picks, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from models import families
from models.gguf_files import T, write
from paceline.errors import PacelineError
from paceline.models import load as module
from paceline.models.formats import DTYPES
from paceline.models.load import load, pick_device, pick_dtype
from paceline.models.native import NativeTransformer
from paceline.models.transformer import Transformer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    families.save("llama", path)
    return path


class Own:
    """A checkpoint of which only the float type matters."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def tensor(self, name: str) -> torch.Tensor:
        return torch.zeros(2, 2, dtype=self.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("native", [True, False], ids=["kernels", "torch"])
def test_a_folder_loads_in_every_format(folder, dtype, native, tmp_path, monkeypatch):
    if not native:
        monkeypatch.setenv("PACELINE_KERNELS", "0")
    model, picked = load(folder, dtype, "cpu", tmp_path)
    assert picked == dtype
    own = native and dtype in ("int8", "fp16")
    assert isinstance(model, NativeTransformer if own else Transformer)
    assert model.vocab_size == families.VOCAB


def test_auto_is_a_gguf_file_s_own_weights(tmp_path):
    model, picked = load(write(tmp_path / "m.gguf", kind=T.Q4_K), "auto", "cpu", tmp_path)
    assert picked == "native"
    assert isinstance(model, NativeTransformer)


def test_auto_says_what_it_picked_and_why(folder, tmp_path, monkeypatch):
    def note() -> str:
        notes: list[str] = []
        picked = load(folder, "auto", "cpu", tmp_path, note=notes.append)[1]
        assert len(notes) == 1
        assert notes[0].startswith(f"dtype {picked}: ")
        return notes[0]

    assert "int8: fast on a CPU" in note()
    monkeypatch.setenv("PACELINE_KERNELS", "0")
    for fbgemm, expected in ((True, "int8"), (False, "fp32")):
        monkeypatch.setattr(module, "fbgemm", lambda fbgemm=fbgemm: fbgemm)
        assert f"dtype {expected}: " in (said := note())
        assert "the native kernels are switched off; unset PACELINE_KERNELS" in said


def test_what_only_the_kernels_can_do_is_refused_without_them(folder, tmp_path, monkeypatch):
    for dtype in ("int4", "native"):
        with pytest.raises(PacelineError, match="is for CPUs"):
            pick_dtype(dtype, torch.device("cuda"), Own(torch.float16))
    with pytest.raises(PacelineError, match="native is for GGUF files; use int8, int4 or fp16"):
        load(folder, "native", "cpu", tmp_path)
    monkeypatch.setenv("PACELINE_KERNELS", "0")
    for dtype in ("int4", "native"):
        with pytest.raises(PacelineError, match="unset PACELINE_KERNELS"):
            load(folder, dtype, "cpu", tmp_path)


def test_auto_on_a_gpu_is_the_checkpoint_s_own_16_bits():
    cuda = torch.device("cuda")
    for own, expected in (("float16", "fp16"), ("bfloat16", "bf16"), ("float32", "bf16")):
        assert pick_dtype("auto", cuda, Own(getattr(torch, own))).dtype == expected
    assert pick_dtype("int8", cuda, Own(torch.float16)).dtype == "int8"


def test_packed_weights_go_where_they_are_told(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PACELINE_KERNELS", "0")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    load(folder, "int8", "cpu")
    assert len([*(tmp_path / "home" / "packed").iterdir()]) == 1
    monkeypatch.setenv("PACELINE_PACKED", str(tmp_path / "other"))
    load(folder, "int8", "cpu")
    assert len([*(tmp_path / "other").iterdir()]) == 1


def test_what_cannot_be_had_is_refused_in_one_line(folder, tmp_path):
    (tmp_path / "notes.txt").write_text("no model")
    (tmp_path / "empty").mkdir()
    cases = {
        "unknown dtype 'int7'; did you mean 'int8'": (folder, "int7", "cpu"),
        "unknown device 'cdua'; did you mean 'cuda'": (folder, "auto", "cdua"),
        "no such file or folder": (tmp_path / "nowhere", "auto", "cpu"),
        "not a GGUF file": (tmp_path / "notes.txt", "auto", "cpu"),
        "config.json does not exist": (tmp_path / "empty", "auto", "cpu"),
    }
    for message, (path, dtype, device) in cases.items():
        with pytest.raises(PacelineError) as refusal:
            load(path, dtype, device, tmp_path / "packed")
        assert message in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_a_gpu_that_is_not_there_is_refused():
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    with pytest.raises(PacelineError, match=f"is not there \\({count} GPUs\\)"):
        pick_device(f"cuda:{count}")
    assert pick_device("cpu") == torch.device("cpu")


@pytest.fixture
def smollm2() -> Path:
    from paceline.models.catalog import find
    from paceline.models.store import present

    path = present(find("smollm2-135m"))
    if path is None:
        pytest.skip("needs: paceline pull smollm2-135m")
    return path


@pytest.mark.slow
def test_smollm2_gives_transformers_logits_on_the_same_file(smollm2, tmp_path):
    import transformers

    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2.parent, gguf_file=smollm2.name, dtype=torch.float32
    ).eval()
    ids = torch.arange(1000, 1200, 5)[None]
    model, _ = load(smollm2, "fp32", "cpu", tmp_path)
    with torch.no_grad():
        expected = theirs(ids).logits
        found = model.forward(ids, [0], model.new_cache(1, 64)).logits
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)
