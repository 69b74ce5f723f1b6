"""Matchers: what they allow is what the grammar allows, whatever was drafted before."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_tokenizer import ByteTokenizer
from grammars import K_DIGITS, Rules, Words, k_digits
from paceline.core.params import SamplingParams
from paceline.errors import MissingExtra, PacelineError
from paceline.text.grammar import Grammars

BYTES = ByteTokenizer()
LONG = Words(
    *(bytes([byte]) for byte in range(255)),
    '{"k":', '":1', "12", "34}", "}}", "}<<", "x<<", "<<{", '<<{"k":1', "a<<x", "<<<", "<{", "é",
    control=("<|tool|>",),
)  # fmt: skip
CASES = {
    "bytes": (BYTES, b""),
    "long tokens": (LONG, b""),
    "bytes, behind a marker": (BYTES, b"<<"),
    "long tokens, behind a marker": (LONG, b"<<"),
}


@pytest.fixture(scope="module", params=CASES)
def case(request):
    tokenizer, marker = CASES[request.param]
    grammars = Grammars(tokenizer)
    grammar = grammars.lark(K_DIGITS)
    if marker:
        grammar = grammars.after(marker.decode(), grammar)
    return grammar, Rules(tokenizer, k_digits, marker)


@st.composite
def questions(draw, size: int):
    """An output and a tree drafted behind it: beginnings of what matches, and anything."""
    whole = b'<<{"k":' + str(draw(st.integers(0, 9999999))).encode() + b"}"
    start = draw(st.sampled_from([0, 0, 2]))
    cut = draw(st.integers(start, len(whole)))
    junk = st.one_of(st.sampled_from(list(b'0{}<"x')), st.integers(-1, size))
    output = list(whole[start:cut]) + draw(st.lists(junk, max_size=2))
    draft = list(whole[cut : cut + draw(st.integers(0, 6))])
    parents = list(range(-1, len(draft) - 1))
    for token in draw(st.lists(junk, max_size=6)):
        parents.append(draw(st.integers(-1, len(draft) - 1)))
        draft.append(token)
    return output, draft, parents


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_matcher_says_at_every_node_what_the_grammar_says(case, data):
    grammar, rules = case
    matcher = grammar.start()
    for output, draft, parents in data.draw(
        st.lists(questions(rules.tokenizer.size), min_size=1, max_size=4)
    ):
        found = matcher.allowed(output, draft, parents)
        assert torch.equal(found, rules.allowed(output, draft, parents))


def test_a_grammar_that_may_end_or_go_on_allows_both(case):
    tokenizer = case[1].tokenizer
    mask = Grammars(tokenizer).lark("start: /[ab]+/").start().allowed([97], [], [])[0]
    assert set(mask.nonzero().flatten().tolist()) == {97, 98, *tokenizer.eos_ids}


def test_limits_of_a_grammar_that_cannot_be_undone_hold_all_the_same():
    """`max_tokens=` is a state that llguidance cannot roll back."""
    grammar = Grammars(BYTES).lark('start: a "b"\na[max_tokens=2]: /a*/')
    matcher = grammar.start()
    for output, draft in ((b"", b"aab"), (b"a", b"aa"), (b"aa", b"ba"), (b"a", b"b")):
        found = matcher.allowed(list(output), list(draft), range(-1, len(draft) - 1))
        for i in range(len(draft)):
            if not found[i, draft[i]]:
                break
            alone = grammar.start().allowed([*output, *draft[: i + 1]], [], [])[0]
            assert torch.equal(found[i + 1], alone)


def test_control_tokens_can_be_asked_for_and_have_no_text():
    tool = LONG.encode  # ids are by hand: the words, then the control token
    assert tool("", True) == []
    control = LONG.size - 2
    mask = Grammars(LONG).lark('start: <|tool|> "a"').start().allowed([], [control], [-1])
    assert mask[0].nonzero().flatten().tolist() == [control]
    assert mask[1].nonzero().flatten().tolist() == [97]


@pytest.mark.parametrize("indent", [None, 2])
def test_json_may_be_written_on_one_line_or_indented_but_not_with_endless_blanks(indent):
    matcher = Grammars(BYTES).json_object().start()
    value = {"a": [1, {"b": None}], "ü": "\n"}
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode()
    masks = matcher.allowed(list(text), [], [])
    assert masks[0].nonzero().flatten().tolist() == [BYTES.EOS]
    for blanks in (b"{  ", b"{\n\n", b"{\n" + b" " * 41, b" "):
        masks = matcher.allowed(list(blanks[:-1]), list(blanks[-1:]), [-1])
        assert not masks[0, blanks[-1]]


def test_properties_come_in_the_order_of_the_schema():
    schema = {
        "type": "object",
        "properties": {"b": {"type": "integer"}, "a": {"enum": [1, "x"]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    }
    matcher = Grammars(BYTES).json_schema(schema).start()
    assert matcher.allowed(list(b'{"'), [], [])[0].nonzero().flatten().tolist() == [ord("b")]
    end = matcher.allowed(list(b'{"b":7,"a":"x"}'), [], [])[0]
    assert end.nonzero().flatten().tolist() == [BYTES.EOS]


DEEP: dict = {}
for _ in range(5000):
    DEEP = {"items": DEEP}

BAD = [
    (lambda g: g.lark("start: foo"), r"the grammar cannot be used: at 1\(8\): unknown name: \"foo"),
    (lambda g: g.lark('start: "a'), r"1\(10\): lexer error"),
    (lambda g: g.lark("foo: /a/"), "no start rule"),
    (lambda g: g.lark("start: /[/"), "invalid regex"),
    (lambda g: g.lark("start: " + "(" * 10000 + '"a"' + ")" * 10000), "deeply nested"),
    (lambda g: g.lark(None), "must be text"),
    (lambda g: g.json_schema({"type": "strin"}), "schema cannot be used: Invalid type: strin"),
    (lambda g: g.json_schema({"not": {}}), r'Unimplemented keys: \["not"\]'),
    (lambda g: g.json_schema({"enum": []}), "Unsatisfiable"),
    (lambda g: g.json_schema({"$ref": "#/$defs/a"}), "does not exist"),
    (lambda g: g.json_schema({"$ref": "https://localhost/a"}), "localhost/a"),
    (lambda g: g.json_schema([]), "must be an object, not "),
    (lambda g: g.json_schema({"const": float("nan")}), "not JSON"),
    (lambda g: g.json_schema({"const": b""}), "bytes"),
    (lambda g: g.json_schema(DEEP), "too deep|recursion"),
    (lambda g: g.after("", g.json_object()), "marker .* is empty"),
]


@pytest.mark.parametrize(("make", "says"), BAD)
def test_what_cannot_be_used_is_refused_in_one_line(make, says):
    with pytest.raises(PacelineError, match=says) as error:
        make(Grammars(BYTES))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


def test_a_grammar_that_the_vocabulary_cannot_begin_is_refused():
    with pytest.raises(PacelineError, match="no token of this model begins it"):
        Grammars(Words("a", "b")).lark('start: "cab"')


@pytest.mark.parametrize("field", [{"ignore_eos": True}, {"min_tokens": 3}])
def test_what_goes_on_behind_the_end_does_not_go_with_a_grammar(field):
    grammar = Grammars(BYTES).json_object()
    with pytest.raises(PacelineError, match=f"leave out {next(iter(field))}"):
        SamplingParams(grammar=grammar, **field)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(MissingExtra, match=r"paceline\[grammar\]"):
        Grammars(BYTES)
