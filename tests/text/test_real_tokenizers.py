"""The tokenizers of the catalog's models, where these were pulled."""

from __future__ import annotations

import json

import pytest

from paceline.errors import PacelineError
from paceline.models.pull import resolve
from paceline.text.chat import chat_ids
from paceline.text.grammar import Grammars
from paceline.text.tokenizer import Tokenizer
from paceline.text.tools import plain_messages, tool_grammar

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def load():
    kept: dict[str, Tokenizer] = {}

    def load(name: str) -> Tokenizer:
        if name not in kept:
            try:
                kept[name] = Tokenizer.from_gguf(resolve(name, pull_missing=False))
            except PacelineError as reason:
                pytest.skip(str(reason))
        return kept[name]

    return load


# What llama.cpp gives: text, its ids, and its ids with special tokens as text (None: the same).
VECTORS = {
    "smollm2-135m": [
        ("  two  spaces  ", [216, 827, 216, 5600, 256], None),
        ("a\r\nb\rc", [81, 201, 198, 82, 201, 83], None),
        ("<s></s><unk>", [44, 99, 29299, 99, 21198, 5131, 46], None),
    ],
    "qwen2.5-coder-1.5b": [
        ("\t\tif x:\n\t\t\treturn 1\n", [197, 743, 856, 510, 298, 853, 220, 16, 198], None),
        ("a\r\nb\rc", [64, 319, 65, 201, 66], None),
        ("<s></s><unk>", [44047, 29, 128247, 128243, 29], [44047, 1472, 82, 1784, 3122, 29]),
    ],
    "gemma-3-270m": [
        ("  two  spaces  ", [138, 13498, 138, 35220, 138], None),
        ("a\r\nb\rc", [236746, 251, 107, 236763, 251, 236755], None),
        ("<s></s><unk>", [203, 212, 3], [203, 954, 236751, 1798, 4984, 236813]),
    ],
}


@pytest.mark.parametrize("name", VECTORS)
def test_ids_are_those_of_llama_cpp(load, name):
    tokenizer = load(name)
    for text, ids, plain in VECTORS[name]:
        assert tokenizer.encode(text) == ids
        assert tokenizer.encode(text, special=False) == (ids if plain is None else plain)
        assert tokenizer.decode(plain or ids) == text


@pytest.mark.parametrize(
    ("name", "size", "bos", "eos"),
    [
        ("smollm2-135m", 49_152, None, ["<|im_end|>", "<|endoftext|>"]),
        ("qwen2.5-coder-1.5b", 151_665, None, ["<|im_end|>", "<|endoftext|>"]),
        ("gemma-3-270m", 262_144, "<bos>", ["<eos>", "<end_of_turn>"]),
    ],
)
def test_which_tokens_begin_and_end(load, name, size, bos, eos):
    tokenizer = load(name)
    assert tokenizer.size == size
    assert [tokenizer.token_text(i) for i in tokenizer.eos_ids] == eos
    first = tokenizer.prompt("x")[: 1 if bos else 0]
    assert [tokenizer.token_text(i) for i in first] == ([bos] if bos else [])


@pytest.mark.parametrize("name", ["smollm2-135m", "qwen2.5-coder-1.5b"])
def test_a_conversation_is_what_the_model_was_trained_on(load, name):
    tokenizer = load(name)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi é"}]
    start, end = (tokenizer.encode(mark) for mark in ("<|im_start|>", "<|im_end|>"))
    text = tokenizer.encode
    turns = [*start, *text("system\nBe brief."), *end, *text("\n")]
    turns += [*start, *text("user\nHi é"), *end, *text("\n"), *start, *text("assistant\n")]
    assert chat_ids(tokenizer, messages) == turns


def test_a_base_model_has_no_template(load):
    with pytest.raises(PacelineError, match="use generate instead"):
        chat_ids(load("gemma-3-270m"), [{"role": "user", "content": "Hi"}])


def test_models_of_different_families_are_told_apart(load):
    found = load("smollm2-135m").same_tokens(load("qwen2.5-coder-1.5b"))
    assert found.first == 0


def test_qwen_renders_tools_and_its_calls_can_be_made_valid(load):
    tokenizer = load("qwen2.5-coder-1.5b")
    call = {"type": "function", "function": {"name": "now", "arguments": '{"zone": "CET"}'}}
    zone = {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}
    tools = [{"type": "function", "function": {"name": "now", "parameters": zone}}]
    messages = [
        {"role": "user", "content": "What time is it?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "12:00"},
    ]
    ids = chat_ids(tokenizer, plain_messages(messages), tools=tools)
    text = tokenizer.decode(ids, skip_special=False)
    said = '<tool_call>\n{"name": "now", "arguments": {"zone": "CET"}}\n</tool_call>'
    assert json.dumps(tools[0]) in text
    assert f"<|im_start|>assistant\n{said}<|im_end|>\n" in text
    assert "<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>\n" in text
    matcher = tool_grammar(Grammars(tokenizer), tools).start()
    output = tokenizer.encode(f"Let me look.\n{said}\n{said}")
    for n, token in enumerate(output):
        assert matcher.allowed(output[:n], [], [])[0, token]
    begun = tokenizer.encode('<tool_call>\n{"name": "')
    (mask,) = matcher.allowed(begun, [], [])
    spelled = [tokenizer.decode([i]) for i in mask.nonzero().flatten().tolist()]
    assert sorted(spelled) == ["n", "no", "now"]
