"""The GGUF head: every value as written, every tensor where the reference reader finds it."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from paceline.errors import PacelineError
from paceline.models.gguf_meta import TensorInfo, read_header, read_metadata


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint32("a.count", 4_000_000_000)
    writer.add_int8("a.small", -3)
    writer.add_float32("a.eps", 0.5)
    writer.add_float64("a.pi", 3.25)
    writer.add_bool("a.flag", False)
    writer.add_uint64("a.big", 2**40)
    writer.add_string("a.text", "naïve ▁ 語")
    writer.add_array("a.words", ["", "Ġt h", "語", "\n"])
    writer.add_array("a.numbers", [-1, 2, 3])
    writer.add_array("a.scores", [0.0, -1.5])
    writer.add_tensor("first", np.arange(6, dtype=np.float32).reshape(2, 3))
    writer.add_tensor("second", np.arange(5, dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_values_come_back_as_they_were_written(path):
    assert read_metadata(path) == {
        "general.architecture": "llama",
        "a.count": 4_000_000_000,
        "a.small": -3,
        "a.eps": 0.5,
        "a.pi": 3.25,
        "a.flag": False,
        "a.big": 2**40,
        "a.text": "naïve ▁ 語",
        "a.words": ["", "Ġt h", "語", "\n"],
        "a.numbers": [-1, 2, 3],
        "a.scores": [0.0, -1.5],
    }


def test_tensors_lie_where_the_reference_reader_finds_them(path):
    expected = {
        t.name: TensorInfo(
            t.name, tuple(map(int, t.shape[::-1])), int(t.tensor_type), t.data_offset
        )
        for t in GGUFReader(path).tensors
    }
    found = read_header(path).tensors
    assert found == expected
    data = path.read_bytes()
    raw = np.frombuffer(data, np.float32, 6, found["first"].offset)
    np.testing.assert_array_equal(raw.reshape(found["first"].shape), [[0, 1, 2], [3, 4, 5]])


def test_a_file_cut_anywhere_before_its_tensors_is_refused(path):
    data, start = path.read_bytes(), read_header(path).tensors["first"].offset
    for size in range(4, start, 7):
        path.write_bytes(data[:size])
        with pytest.raises(PacelineError, match="is cut short"):
            read_header(path)


def test_foreign_missing_and_old_files_are_refused_in_one_line(tmp_path, path):
    data = path.read_bytes()
    cases = {
        "no such file": None,
        r"not a GGUF file \(it starts with b'PK": b"PK\x03\x04",
        r"not a GGUF file \(it starts with b''": b"",
        "version 1 is not supported": data[:4] + b"\x01" + data[5:],
    }
    for message, content in cases.items():
        other = tmp_path / "other.gguf"
        if content is not None:
            other.write_bytes(content)
        with pytest.raises(PacelineError, match=message) as error:
            read_metadata(other)
        assert "\n" not in str(error.value)
        other.unlink(missing_ok=True)
