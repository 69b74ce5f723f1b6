"""Vocabularies from GGUF metadata: each pre-tokenizer, SentencePiece, whole tokens."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import PacelineError
from paceline.text.sentencepiece import SentencePiece
from paceline.text.tokenizer import Tokenizer
from tiny_tokenizers import ALPHABET, CONTROL, NORMAL, UNUSED, USER, byte_level, sentencepiece

# Merges that cross every edge on which the pre-tokenizers differ, so that the tokens show the cut.
MERGES = [
    *(
        "1 2",
        "12 3",
        "123 4",
        "' S",
        "' s",
        "! Ċ",
        "! !",
        "Ċ Ċ",
        "o W",
        "( a",
        "Ġ Ġ",
        "ĠĠ b",
        "Ġ b",
    ),
    *("/ /", "!Ċ /", "a Ì", "aÌ ģ", "Ì ģ"),
]
TEXTS = ["1234", "x'S", "x's", "!\n\n", "oW", "(a", "   b", "!\n/", "a\u0301", "!!"]
CUTS = {
    "gpt-2": "1234|x ' S|x 's|! ĊĊ|oW|( a|ĠĠ Ġb|! Ċ /|a Ìģ|!!",
    "smollm": "1 2 3 4|x ' S|x 's|! ĊĊ|oW|( a|ĠĠ Ġb|! Ċ /|a Ìģ|!!",
    "qwen2": "1 2 3 4|x 'S|x 's|!Ċ Ċ|oW|(a|ĠĠ Ġb|!Ċ /|a Ìģ|!!",
    "qwen35": "1 2 3 4|x 'S|x 's|!Ċ Ċ|oW|(a|ĠĠ Ġb|!Ċ /|aÌģ|!!",
    "llama-bpe": "123 4|x 'S|x 's|!Ċ Ċ|oW|(a|ĠĠ Ġb|!Ċ /|a Ìģ|!!",
    "tekken": "1 2 3 4|x 'S|x 's|!Ċ Ċ|o W|(a|ĠĠ Ġb|!Ċ/|aÌģ|!!",
    "gpt-4o": "123 4|x 'S|x 's|!Ċ Ċ|o W|(a|ĠĠ Ġb|!Ċ/|aÌģ|!!",
    "deepseek-coder": "1 2 3 4|x ' S|x ' s|! Ċ Ċ|oW|( a|ĠĠ Ġb|! Ċ /|a Ìģ|!!",
    "default": "123 4|x ' S|x ' s|! ĊĊ|oW|( a|ĠĠ Ġb|! Ċ /|a Ìģ|!!",
}


@pytest.mark.parametrize("pre", CUTS)
def test_each_pre_tokenizer_cuts_words_its_own_way(pre):
    tokenizer = Tokenizer.from_gguf(byte_level(MERGES, pre=pre))
    cut = [" ".join(map(tokenizer.token_text, tokenizer.encode(text))) for text in TEXTS]
    assert "|".join(cut) == CUTS[pre]


@pytest.mark.parametrize(
    ("alias", "name"),
    [("starcoder", "smollm"), ("deepseek-r1-qwen", "qwen2"), ("llama4", "gpt-4o")],
)
def test_models_share_pre_tokenizers(alias, name):
    one, other = (Tokenizer.from_gguf(byte_level(MERGES, pre=pre)) for pre in (alias, name))
    assert [one.encode(text) for text in TEXTS] == [other.encode(text) for text in TEXTS]


def test_llama_3_takes_a_whole_word_that_is_a_token_whatever_the_merges_say():
    added = [("abc", NORMAL), ("<|begin|>", CONTROL)]
    for pre, expected in [("llama-bpe", ["abc"]), ("gpt-2", ["a", "bc"])]:
        tokenizer = Tokenizer.from_gguf(byte_level(["b c"], added, pre, bos_token_id=258))
        assert [tokenizer.token_text(i) for i in tokenizer.encode("abc")] == expected
        assert tokenizer.add_bos is (pre == "llama-bpe")


def test_every_byte_has_its_own_token():
    tokenizer = Tokenizer.from_gguf(byte_level())
    assert sorted(tokenizer.token_bytes(i) for i in range(256)) == [bytes([b]) for b in range(256)]
    spelled = {ALPHABET[i]: tokenizer.token_bytes(i) for i in range(256)}
    known = {"A": b"A", "Ġ": b" ", "Ċ": b"\n", "ÿ": b"\xff", "Ń": b"\xad", "Ā": b"\x00"}
    assert {char: spelled[char] for char in known} == known


# ids: 256 "th", 257 "<|end|>", 258 "<tool>", 259 "</s>", 260 "<tool>>", 261 padding
WHOLE = byte_level(
    ["t h"],
    [("<|end|>", CONTROL), ("<tool>", USER), ("</s>", NORMAL), ("<tool>>", USER), ("[P]", UNUSED)],
    eos_token_id=257,
)


def test_whole_tokens_are_found_longest_first():
    tokenizer = Tokenizer.from_gguf(WHOLE)
    th, end, tool, tools = 256, 257, 258, 260
    assert tokenizer.encode("th<|end|>th<tool>>th<tool>") == [th, end, th, tools, th, tool]
    plain = tokenizer.encode("th<|end|>th<tool>>th<tool>", special=False)
    assert plain == [th, *map(ALPHABET.index, "<|end|>"), th, tools, th, tool]


def test_a_marker_that_the_file_calls_text_is_found_by_name_but_stays_text():
    tokenizer = Tokenizer.from_gguf(WHOLE)
    assert tokenizer.encode("a</s>") == [ALPHABET.index("a"), 259]
    assert tokenizer.encode("</s>", special=False) == list(map(ALPHABET.index, "</s>"))
    assert (tokenizer.token_bytes(259), tokenizer.is_special(259)) == (b"</s>", False)
    assert tokenizer.eos_ids == (257,)


def test_padding_at_the_end_is_not_known():
    tokenizer = Tokenizer.from_gguf(WHOLE)
    assert tokenizer.size == 261
    assert tokenizer.encode("[P]") == list(map(ALPHABET.index, "[P]"))
    assert (tokenizer.token_bytes(261), tokenizer.is_special(261)) == (b"", True)


PIECES = [("▁", -9.0), ("a", -9.0), ("b", -9.0), ("▁a", -1.0), ("ab", -2.0), ("aa", -2.0)]
FIRST = 3 + 256  # the id of the first piece


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("ab", ["▁a", "b"]),  # the better score first: ▁a before ab
        ("bab", ["▁", "b", "ab"]),
        ("baaa", ["▁", "b", "aa", "a"]),  # a tie: the leftmost
        ("</s>ab</s>b", ["</s>", "▁a", "b", "</s>", "▁", "b"]),  # a space after control tokens too
        ("é\n", ["▁", "<0xC3>", "<0xA9>", "<0x0A>"]),
    ],
)
def test_sentencepiece_with_a_space_in_front(text, pieces):
    tokenizer = Tokenizer.from_gguf(sentencepiece(PIECES))
    assert [tokenizer.token_text(i) for i in tokenizer.encode(text)] == pieces


def test_sentencepiece_without_a_space_in_front():
    tokenizer = Tokenizer.from_gguf(sentencepiece(PIECES, add_space_prefix=False))
    ids = tokenizer.encode("ab ab")
    assert [tokenizer.token_text(i) for i in ids] == ["ab", "▁a", "b"]
    assert tokenizer.decode(ids) == "ab ab"
    assert (tokenizer.add_bos, tokenizer.bos_id, tokenizer.eos_ids) == (True, 1, (2,))


def test_runs_of_spaces_that_are_whole_tokens_come_out_as_such():
    added = [("  ", USER), ("   ", USER)]
    tokenizer = Tokenizer.from_gguf(sentencepiece(PIECES, added, add_space_prefix=False))
    assert tokenizer.encode("a   a  b", special=False) == [FIRST + 3, 4, FIRST + 3, 3, FIRST + 4]


def test_a_character_without_bytes_is_unknown_or_refused():
    assert SentencePiece(["<unk>", "a"], [0, 0], unknown=0).encode("aé") == [1, 0, 0]
    with pytest.raises(PacelineError, match="no token for 'é'"):
        SentencePiece(["a"], [0]).encode("aé")


def joined_by_hand(tokens: list[str], scores: list[float], text: str) -> list[str]:
    """The rule itself: join the best-scored pair of neighbours, the leftmost on a tie; repeat."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [
            (-scores[tokens.index(a + b)], at)
            for at, (a, b) in enumerate(pairwise(parts))
            if a + b in tokens
        ]
        if not pairs:
            return parts
        at = min(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.text("ab▁<", min_size=2, max_size=4), max_size=12, unique=True),
    st.lists(st.integers(-3, 0), min_size=16, max_size=16),
    st.text("ab <", max_size=14),
)
def test_sentencepiece_is_the_rule_also_across_words(longer, scores, text):
    tokens = ["a", "b", "▁", "<", *longer]
    model = SentencePiece(tokens, scores)
    for _ in range(2):  # the second time from what it kept
        assert [tokens[i] for i in model.encode(text)] == joined_by_hand(tokens, scores, text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": []}, "no tokenizer in it"),
        ({"model": "gpt-2"}, "unknown tokenizer kind 'gpt-2'; did you mean 'gpt2'?"),
        ({"pre": "qwen3"}, "unknown pre-tokenizer 'qwen3'; did you mean 'qwen35'?"),
        ({"merges": []}, "no merges"),
        ({"token_type": [1]}, "not one type for each token"),
        ({"model": "llama"}, "no scores"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_refused(change, message):
    metadata = byte_level() | {f"tokenizer.ggml.{key}": value for key, value in change.items()}
    with pytest.raises(PacelineError, match=re.escape(message)):
        Tokenizer.from_gguf(metadata)
