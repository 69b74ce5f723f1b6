"""Tool calls: found in texts and in streams of them, and made valid by grammars."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fake_tokenizer import ByteTokenizer
from fakes import HashLM, Scripted, TableModel, model_drafter, run
from paceline.core.params import SamplingParams
from paceline.errors import PacelineError
from paceline.text.chat import render
from paceline.text.grammar import Grammars
from paceline.text.tools import ToolCall, ToolStream, parse, plain_messages, tool_grammar

BYTES = ByteTokenizer()
PROMPT = [BYTES.BOS, *b"x"]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
F = ToolCall("f", '{"a": 1}')


def tool(name: str, **parameters) -> dict:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool(
    "weather",
    type="object",
    properties={"city": {"$ref": "#/$defs/city"}, "days": {"enum": [1, 2]}},
    required=["city"],
    additionalProperties=False,
    **{"$defs": {"city": {"type": "string", "maxLength": 3}}},
)
NOW = {"type": "function", "function": {"name": "now"}}
TOOLS = [WEATHER, NOW]

TEXTS = [
    ("", "", []),
    ("Hi <b> \n", "Hi <b> \n", []),
    (CALL, "", [F]),
    (f"Sure.\n{CALL}\n{CALL}\n", "Sure.", [F, F]),
    (f"a {CALL} b", "ab", [F]),
    # a closing tag in a string does not close, one behind a string does
    (CALL.replace("1", '"</tool_call>"'), "", [ToolCall("f", '{"a": "</tool_call>"}')]),
    (CALL.replace("1", r'"\"</tool_call>"'), "", [ToolCall("f", r'{"a": "\"</tool_call>"}')]),
    # arguments as text, and none
    (CALL.replace('{"a": 1}', r'"{\"a\":1}"'), "", [F]),
    (CALL.replace(', "arguments": {"a": 1}', ""), "", [ToolCall("f", "{}")]),
    # what is no call stays text
    ("x <tool_call>{}</tool_call> y", "x <tool_call>{}</tool_call> y", []),
    ('<tool_call>{"name": 1}</tool_call>', '<tool_call>{"name": 1}</tool_call>', []),
    (f"<tool_call>{CALL}", "<tool_call>", [F]),
    (f'<tool_call>{{"a\n</tool_call> {CALL}', '<tool_call>{"a\n</tool_call>', [F]),
    (f"{CALL[:-1]}", CALL[:-1], []),
    (f"{CALL} \n <tool_call>[1]</tool_call>", "<tool_call>[1]</tool_call>", [F]),
    (CALL.replace("1", "NaN"), CALL.replace("1", "NaN"), []),
    (CALL.replace("1", r'"\ud800"'), CALL.replace("1", r'"\ud800"'), []),
    (CALL.replace("1", "[" * 3000), CALL.replace("1", "[" * 3000), []),
    (CALL.replace("1", "9" * 5000), CALL.replace("1", "9" * 5000), []),
]


@pytest.mark.parametrize(("text", "content", "calls"), TEXTS)
def test_calls_are_taken_out_and_all_else_stays(text, content, calls):
    assert parse(text) == (content, calls)


BITS = [CALL, "<tool_call>", "</tool_call>", "<tool", '{"name": "f"}', '"', " ", "\n", "x", "\\"]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(BITS), max_size=8), st.data())
@example([CALL, " ", CALL], None)
def test_a_stream_says_the_same_wherever_it_is_cut(bits, data):
    text = "".join(bits)
    cuts = range(len(text)) if data is None else data.draw(st.sets(st.integers(0, len(text))))
    stream, parts, last = ToolStream(), [], 0
    for cut in [*sorted(cuts), len(text)]:
        parts += stream.push(text[last:cut])
        last = cut
    parts += stream.finish()
    content, calls = parse(text)
    assert "".join(p for p in parts if isinstance(p, str)) == content
    assert [p for p in parts if not isinstance(p, str)] == calls


def test_text_goes_out_as_soon_as_it_can_be_no_call_and_a_call_when_it_is_complete():
    stream = ToolStream()
    assert stream.push("Look: a") == ["Look: a"]
    assert stream.push(" <too") == []
    assert stream.push("th> \n") == [" <tooth>"]
    assert stream.push(f" {CALL[:-1]}") == []
    assert stream.push("> ") == [F]
    assert stream.push("b") == ["b"]
    assert stream.push("<tool_call>no</tool") == []
    assert stream.push("_call>") == ["<tool_call>no</tool_call>"]
    assert stream.push("<tool_call>{") == []
    assert stream.finish() == ["<tool_call>{"]


def is_valid(call: ToolCall) -> bool:
    arguments = json.loads(call.arguments)
    if call.name == "now":
        return arguments == {}
    return (
        call.name == "weather"
        and {"city"} <= set(arguments) <= {"city", "days"}
        and isinstance(arguments["city"], str)
        and len(arguments["city"]) <= 3
        and arguments.get("days", 1) in (1, 2)
    )


@pytest.mark.parametrize(
    ("choice", "parallel", "names", "most"),
    [
        ("required", False, {"weather", "now"}, 1),
        ("required", True, {"weather", "now"}, 99),
        ("now", True, {"now"}, 1),
        ({"type": "function", "function": {"name": "weather"}}, True, {"weather"}, 1),
    ],
)
@pytest.mark.parametrize("drafted", [False, True])
def test_a_required_call_is_all_that_is_said_and_valid(choice, parallel, names, most, drafted):
    grammar = tool_grammar(Grammars(BYTES), TOOLS, choice, parallel=parallel)
    model, rows = HashLM(BYTES.size, 6), 8
    warm = SamplingParams(grammar=grammar, temperature=1, max_tokens=None)
    each = [replace(warm, seed=s) for s in range(rows)]
    drafter = model_drafter(HashLM(BYTES.size, 6, 0.5)) if drafted else None
    done = run(model, [PROMPT] * rows, each, drafter, 4, [BYTES.EOS], length=2000)
    for ids, finish in zip(done.ids, done.finish(), strict=True):
        content, calls = parse(BYTES.decode(ids))
        assert (content, finish) == ("", "stop")
        assert 1 <= len(calls) <= most
        assert {call.name for call in calls} <= names
        assert all(is_valid(call) for call in calls)


@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_a_call_that_the_target_begins_by_itself_is_valid(k):
    """Free text is the target's own; the tag ends in the middle of a drafted block, in which
    something illegal follows it."""
    said = b"Well. <tool_call>"
    table = [[30.0 * (t == byte) for t in range(BYTES.size)] for byte in said]
    noise = torch.randn(200, BYTES.size, generator=torch.Generator().manual_seed(1)) * 2
    model = TableModel([[0.0] * BYTES.size, *table, *noise.tolist()])
    grammar = tool_grammar(Grammars(BYTES), TOOLS)
    wish = said + b'\n{"name": "then"}}</tool_call>'
    script = Scripted(lambda ids, k: list(wish[len(ids) - len(PROMPT) :][:k]))
    plain = run(model, [PROMPT], SamplingParams(grammar=grammar, max_tokens=200), eos=[BYTES.EOS])
    done = run(
        model, [PROMPT], SamplingParams(grammar=grammar, max_tokens=200), script, k, [BYTES.EOS]
    )
    assert done.ids == plain.ids
    text = BYTES.decode(done.ids[0])
    assert text.startswith(said.decode())
    rest, calls = parse(text)
    assert rest.startswith("Well.")
    assert calls
    assert all(is_valid(call) for call in calls)


def test_where_nothing_is_called_there_is_no_grammar():
    grammars = Grammars(BYTES)
    assert tool_grammar(grammars, TOOLS, "none") is None
    assert tool_grammar(grammars, [], "auto") is None


@pytest.mark.parametrize(
    ("tools", "choice", "says"),
    [
        (TOOLS, "wether", "did you mean 'weather'"),
        (TOOLS, {"type": "function"}, "tool_choice must be"),
        (TOOLS, 3, "tool_choice must be"),
        ([], "required", "needs tools"),
        ([{"name": "f"}], "auto", "a tool must be"),
        ([tool("a b")], "auto", "tool's name"),
        ([tool("f", type="strin")], "auto", "Invalid type: strin"),
        ([{"type": "function", "function": {"name": "f", "parameters": 3}}], "auto", "an object"),
    ],
)
def test_tools_that_cannot_be_used_are_refused_by_name(tools, choice, says):
    with pytest.raises(PacelineError, match=says) as error:
        tool_grammar(Grammars(BYTES), tools, choice)
    assert "\n" not in str(error.value)


def test_templates_get_arguments_as_objects_and_content_as_text():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "ü"}'}}
    messages = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": None, "tool_calls": None},
    ]
    plain = plain_messages(messages)
    assert plain[0] == messages[0]
    assert plain[1]["tool_calls"][0] == {**call, "function": {"name": "f", "arguments": {"a": "ü"}}}
    assert plain[2] == {"role": "assistant", "content": ""}
    template = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}"
    )
    assert render(template, plain) == '?{"a": "ü"}'


@pytest.mark.parametrize(
    "calls",
    [
        3,
        [3],
        [{"function": {"name": "f", "arguments": "{"}}],
        [{"function": {"name": "f", "arguments": "[]"}}],
    ],
)
def test_messages_with_broken_calls_are_refused(calls):
    with pytest.raises(PacelineError, match=r"tool.call"):
        plain_messages([{"role": "assistant", "tool_calls": calls}])
