"""The grammar of `--sweep`."""

from __future__ import annotations

import pytest

from paceline.bench.sweep import label, parse
from paceline.errors import PacelineError


def test_all_combinations_in_order():
    assert parse([]) == [{}]
    assert parse(["k=1:3"]) == [{"k": 1}, {"k": 2}, {"k": 3}]
    assert parse(["k=2,4:5,4 draft=lookup"]) == [
        {"k": 2, "draft": "lookup"},
        {"k": 4, "draft": "lookup"},
        {"k": 5, "draft": "lookup"},
    ]
    each = parse(["draft=lookup,self:skip=8", "temperature=0,0.7 window=fixed verify=block"])
    assert [label(cell) for cell in each] == [
        "draft=lookup temperature=0.0 window=fixed verify=block",
        "draft=lookup temperature=0.7 window=fixed verify=block",
        "draft=self:skip=8 temperature=0.0 window=fixed verify=block",
        "draft=self:skip=8 temperature=0.7 window=fixed verify=block",
    ]


BAD = [
    ("l=3", "unknown axis of --sweep 'l'"),
    ("k", "write k= and values"),
    ("k=", "write k= and values"),
    ("k=1,,2", "write k= and values"),
    ("k=x", "--sweep k=x: give numbers"),
    ("k=4:1", "the first number is the larger one"),
    ("k=1:99", "k must be a whole number from 0 to 32"),
    ("k=1 k=2", "has k twice"),
    ("draft=lookpu", "did you mean 'lookup'"),
    ("window=fixd", "did you mean 'fixed'"),
    ("verify=blok", "did you mean 'block'"),
    ("temperature=-1", "give numbers from 0 on"),
    ("temperature=nan", "give numbers from 0 on"),
    ("k=0:32 temperature=" + ",".join(map(str, range(20))), "more than 512 cells"),
]


@pytest.mark.parametrize(("text", "says"), BAD)
def test_what_means_nothing_is_refused(text, says):
    with pytest.raises(PacelineError) as raised:
        parse([text])
    assert says in str(raised.value)
