"""The tokenizer's promises, held on tiny vocabularies."""

from __future__ import annotations

import re

import pytest
from gguf import GGUFWriter
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing

from fake_tokenizer import ByteTokenizer
from paceline.errors import PacelineError
from paceline.text.tokenizer import Tokenizer
from tiny_tokenizers import (
    ALPHABET,
    CONTROL,
    UNUSED,
    USER,
    byte_level,
    sentencepiece,
    write_byte_level,
    write_json,
    write_sentencepiece,
)

MERGES = ["t h", "Ġ th", "1 2", "Ã ©", "Ġ Ġ"]
MARKS = [("<|begin|>", True), ("<|end|>", True), ("<|tool|>", False), ("<|stop|>", True)]
BEGIN, END, TOOL, STOP = range(261, 265)


@pytest.fixture
def folder(tmp_path):
    write_byte_level(tmp_path, MERGES, MARKS)
    return tmp_path


@pytest.fixture(scope="module")
def tiny():
    added = [(token, CONTROL if special else USER) for token, special in MARKS]
    gguf = byte_level(MERGES, added, "smollm", bos_token_id=BEGIN, eos_token_id=END)
    return Tokenizer.from_gguf(gguf)


SPACED = Tokenizer.from_gguf(
    sentencepiece([("▁", -9), ("é", -9), ("t", -9), ("▁t", -1)], add_space_prefix=False)
)


@settings(deadline=None)
@given(st.text("th12 é\n😀語<|endtool>", max_size=20) | st.text(max_size=20))
def test_decoding_gives_the_text_back(tiny, text):
    for tokenizer in (tiny, ByteTokenizer()):
        ids = tokenizer.encode(text, special=False)
        assert tokenizer.decode(ids) == text
        assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()
    spaced = text.replace("▁", "")  # to SentencePiece this character is a space
    assert SPACED.decode(SPACED.encode(spaced, special=False)) == spaced


@settings(deadline=None)
@given(st.text("th12 é\n語<|endtoolsp>", max_size=30), st.booleans())
def test_a_folder_and_a_gguf_file_of_one_model_agree(tmp_path_factory, tiny, text, special):
    folder = tmp_path_factory.getbasetemp() / "agree"
    if not folder.exists():
        folder.mkdir()
        write_byte_level(folder, MERGES, MARKS)
    tokenizer = Tokenizer.from_folder(folder)
    assert tokenizer.encode(text, special=special) == tiny.encode(text, special=special)
    assert tokenizer.same_tokens(tiny) == (None, "")


def test_special_text_is_a_token_or_text(folder, tiny):
    text = "th<|end|>12<|tool|>"
    for tokenizer in (tiny, Tokenizer.from_folder(folder)):
        th, digits = 256, [ALPHABET.index("1"), ALPHABET.index("2")]
        assert tokenizer.encode(text) == [th, END, *digits, TOOL]
        plain = [th, *map(ALPHABET.index, "<|end|>"), *digits, TOOL]
        assert tokenizer.encode(text, special=False) == plain
        assert tokenizer.encode(text) == [th, END, *digits, TOOL]


def test_control_tokens_have_a_name_but_no_text(tiny):
    ids = [BEGIN, *tiny.encode("é"), TOOL, END, 99_999]
    assert tiny.decode(ids) == "é<|tool|>"
    assert tiny.decode(ids, skip_special=False) == "<|begin|>é<|tool|><|end|>"
    assert [tiny.is_special(i) for i in ids] == [True, False, False, True, True]
    assert [tiny.token_bytes(i) for i in ids] == [b"", "é".encode(), b"<|tool|>", b"", b""]


def test_bytes_that_are_no_character_are_replaced(tiny):
    halves = [ALPHABET.index("Ã"), ALPHABET.index("A"), ALPHABET.index("©")]
    assert tiny.decode(halves) == "\ufffdA\ufffd"


def test_half_a_surrogate_pair_is_refused(tiny):
    with pytest.raises(PacelineError, match=r"half a character \(U\+D83D\) at position 2"):
        tiny.encode("ab\ud83d")


@pytest.mark.parametrize("text", ["hi", "<bos>hi", "<bos><bos>hi"])
def test_a_prompt_begins_with_exactly_one_bos(text):
    assert ByteTokenizer().prompt(text) == [ByteTokenizer.BOS, *b"hi"]


def test_a_prompt_of_a_model_without_bos_is_left_alone():
    assert ByteTokenizer(add_bos=False).prompt("<bos>hi") == [ByteTokenizer.BOS, *b"hi"]
    assert ByteTokenizer(add_bos=False).prompt("hi") == [*b"hi"]


def test_an_empty_prompt_is_the_bos_or_refused():
    assert ByteTokenizer().prompt("") == [ByteTokenizer.BOS]
    with pytest.raises(PacelineError, match="the prompt is empty"):
        ByteTokenizer(add_bos=False).prompt("")


def test_a_folder_says_which_tokens_begin_and_end(folder):
    write_json(folder / "config.json", eos_token_id=3, bos_token_id=4)
    write_json(folder / "special_tokens_map.json", bos_token={"content": "<|begin|>"})
    write_json(folder / "generation_config.json", eos_token_id=[STOP, END])
    write_json(folder / "tokenizer_config.json", eos_token="<|end|>", add_bos_token=True)
    tokenizer = Tokenizer.from_folder(folder)
    assert (tokenizer.bos_id, tokenizer.add_bos) == (BEGIN, True)
    assert tokenizer.eos_ids == (END, STOP)
    assert (tokenizer.size, tokenizer.chat_template) == (265, None)


def test_ids_of_the_model_hold_where_the_tokenizer_names_none(folder):
    write_json(folder / "config.json", eos_token_id=STOP, bos_token_id=BEGIN)
    tokenizer = Tokenizer.from_folder(folder)
    # <|end|> is known by name to end answers; the model's own comes first
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (BEGIN, (STOP, END))
    assert tokenizer.add_bos is False


def test_the_post_processor_says_whether_a_prompt_begins_with_bos(folder):
    write_json(folder / "tokenizer_config.json", bos_token="<|begin|>")
    tokenizer = write_byte_level(folder, MERGES, MARKS)
    tokenizer.post_processor = TemplateProcessing("<|begin|> $A", None, [("<|begin|>", BEGIN)])
    tokenizer.enable_truncation(2)  # left over from training: must not cut prompts
    tokenizer.save(str(folder / "tokenizer.json"))
    loaded = Tokenizer.from_folder(folder)
    assert loaded.prompt("thxyz") == [BEGIN, 256, *map(ALPHABET.index, "xyz")]
    assert loaded.encode("thx") == [256, ALPHABET.index("x")]


def test_where_chat_templates_lie(folder):
    config = folder / "tokenizer_config.json"
    templates = [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]
    for given_template, found in [("T", "T"), (templates, "D"), (templates[:1], "R"), (None, None)]:
        write_json(config, chat_template=given_template)
        assert Tokenizer.from_folder(folder).chat_template == found
    write_json(config, chat_template="T")
    (folder / "chat_template.jinja").write_text("J é", encoding="utf-8")
    assert Tokenizer.from_folder(folder).chat_template == "J é"


def test_a_sentencepiece_folder(tmp_path):
    write_sentencepiece(tmp_path, ["▁", "t", "▁t", "é"], ["▁ t"])
    write_json(tmp_path / "tokenizer_config.json", bos_token="<s>", eos_token="</s>")
    tokenizer = Tokenizer.from_folder(tmp_path)
    ids = tokenizer.encode("</s> té\n")
    assert [tokenizer.token_text(i) for i in ids] == ["</s>", "▁t", "é", "<0x0A>"]
    assert (tokenizer.decode(ids), tokenizer.eos_ids) == (" té\n", (2,))
    assert tokenizer.decode([tokenizer.size - 1]) == "   "


def test_folders_that_cannot_be_read_are_refused_in_one_line(folder):
    path = folder / "tokenizer.json"
    good = path.read_text(encoding="utf-8")
    no_bytes = re.sub(r'"decoder":\{.*?\}', '"decoder":null', re.sub(r"\s", "", good))
    for text, message in [("{", "cannot be read"), (no_bytes, "only byte-level"), (None, "has no")]:
        path.write_text(text, encoding="utf-8") if text is not None else path.unlink()
        with pytest.raises(PacelineError, match=message) as error:
            Tokenizer.from_folder(folder)
        assert "\n" not in str(error.value)
    path.write_text(good, encoding="utf-8")
    (folder / "config.json").write_text("{oops", encoding="utf-8")
    with pytest.raises(PacelineError, match=r"config\.json is not valid JSON"):
        Tokenizer.from_folder(folder)


def test_a_gguf_file_gives_what_its_metadata_gives(tmp_path):
    metadata = byte_level(MERGES, [("<|end|>", CONTROL)], "qwen2", eos_token_id=261)
    writer = GGUFWriter(tmp_path / "t.gguf", "qwen2")
    for key, value in metadata.items():
        add = {str: writer.add_string, int: writer.add_uint32, list: writer.add_array}[type(value)]
        add(key, value)
    writer.add_chat_template("{{ messages }}")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    tokenizer = Tokenizer.from_gguf(tmp_path / "t.gguf")
    assert tokenizer.encode("the12<|end|>") == Tokenizer.from_gguf(metadata).encode("the12<|end|>")
    assert tokenizer.eos_ids == (261,)
    assert tokenizer.chat_template == "{{ messages }}"


def changed(edit: dict[int, str], kinds: dict[int, int] | None = None, **settings) -> Tokenizer:
    """The tokenizer with some tokens (and their kinds) replaced; `settings` as in GGUF."""
    metadata = byte_level(MERGES, [(t, CONTROL) for t, _ in MARKS], eos_token_id=END, **settings)
    for i, token in edit.items():
        metadata["tokenizer.ggml.tokens"][i] = token
    for i, kind in (kinds or {}).items():
        metadata["tokenizer.ggml.token_type"][i] = kind
    return Tokenizer.from_gguf(metadata)


def test_two_swapped_tokens_are_refused_by_the_first():
    found = changed({}).same_tokens(changed({40: ALPHABET[41], 41: ALPHABET[40]}))
    assert found.first == 40
    assert found.message == (
        f"token 40 is {ALPHABET[40]!r} in one vocabulary and {ALPHABET[41]!r} in the other"
    )


def test_one_differing_unused_token_is_a_warning():
    found = changed({}).same_tokens(changed({STOP: "<|other|>"}))
    assert found == (
        None,
        f"one unused token differs in the two vocabularies (id {STOP}: '<|stop|>', '<|other|>')",
    )


@pytest.mark.parametrize(
    ("edit", "kinds", "settings"),
    [
        ({END: "<|other|>"}, {}, {}),  # ends answers
        ({BEGIN: "<|other|>"}, {}, {"bos_token_id": BEGIN}),
        ({TOOL: "word"}, {TOOL: USER}, {}),  # text in one, a control token in the other
    ],
)
def test_a_differing_token_that_is_used_is_refused(edit, kinds, settings):
    ours, theirs = changed({}, **settings), changed(edit, kinds, **settings)
    assert ours.same_tokens(theirs).first == theirs.same_tokens(ours).first == next(iter(edit))


def test_a_control_token_of_the_chat_template_is_used():
    ours, theirs = changed({}), changed({STOP: "<|other|>"})
    theirs.chat_template = "{{ messages }}<|other|>"
    assert ours.same_tokens(theirs).first == theirs.same_tokens(ours).first == STOP


def test_padding_and_size_do_not_matter():
    padded = changed({STOP: "[PAD264]"}, {STOP: UNUSED})
    assert (padded.size, changed({}).size) == (264, 265)
    assert padded.same_tokens(changed({})) == changed({}).same_tokens(padded) == (None, "")
    inside = changed({TOOL: "[PAD263]"}, {TOOL: UNUSED})
    assert inside.same_tokens(changed({})).first is None
    assert "one unused token differs" in inside.same_tokens(changed({})).message
