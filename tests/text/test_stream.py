"""Streaming: the joined pieces are the text, nothing is taken back, blocks do not matter."""

from __future__ import annotations

import codecs
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_tokenizer import ByteTokenizer
from paceline.errors import PacelineError
from paceline.text.stream import TextStream


class Pieces:
    """A tokenizer of the given tokens that counts how often each id is spelled."""

    def __init__(self, *tokens: bytes) -> None:
        self.tokens, self.asked = tokens, [0] * len(tokens)

    def token_bytes(self, token_id: int) -> bytes:
        self.asked[token_id] += 1
        return self.tokens[token_id]


def complete_characters(data: bytes) -> str:
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


def first_complete(text: str, stops: list[str]) -> tuple[str, str] | None:
    """(text before it, stop string) for the first one complete, the longer on a tie."""
    for end in range(1, len(text) + 1):
        for stop in sorted(stops, key=len, reverse=True):
            if text[:end].endswith(stop):
                return text[: end - len(stop)], stop
    return None


def plain(tokens: list[bytes], stops: list[str]) -> tuple[str, int, str | None]:
    """Text, kept tokens and stop string, by looking at all of the text after every token."""
    for n in range(1, len(tokens) + 1):
        if found := first_complete(complete_characters(b"".join(tokens[:n])), stops):
            return found[0], n, found[1]
    text = b"".join(tokens).decode(errors="replace")
    if found := first_complete(text, stops):
        return found[0], len(tokens), found[1]
    return text, len(tokens), None


def streamed(tokenizer, ids: list[int], cuts: list[int], stops: list[str]):
    """The pieces, kept tokens and stop string of `ids` pushed in the blocks that `cuts` makes."""
    stream, pieces = TextStream(tokenizer, stops), []
    edges = [0, *sorted(cuts), len(ids)]
    for start, end in pairwise(edges):
        pieces.append(stream.push(ids[start:end]))
    pieces.append(stream.finish())
    return pieces, stream.kept, stream.stopped


@pytest.mark.parametrize("block", [1, 2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize(
    ("text", "stops", "expected", "kept", "stopped"),
    [
        ("abc###def", ["##"], "abc", 5, "##"),
        ("abc###def", ["#"], "abc", 4, "#"),
        ("#abcdefghijk", ["#"], "", 1, "#"),
        ("one two STOP HERE three", [" STOP HERE "], "one two", 18, " STOP HERE "),
        ("aabaabaaab", ["aabaaa"], "aab", 9, "aabaaa"),
        ("xabcdy", ["abcd", "bc"], "xa", 4, "bc"),
        ("xabcy", ["c", "abc"], "x", 4, "abc"),
        ("na\u00efve caf\u00e9 \u2013 d", ["\u00e9 \u2013"], "na\u00efve caf", 16, "\u00e9 \u2013"),
        ("abc##", ["###"], "abc##", 5, None),
        ("", ["#"], "", 0, None),
    ],
)
def test_a_stop_string_cuts_the_same_at_every_block_size(
    text, stops, expected, kept, stopped, block
):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    pieces, n, found = streamed(tokenizer, ids, list(range(block, len(ids), block)), stops)
    assert ("".join(pieces), n, found) == (expected, kept, stopped)


def test_a_stop_string_inside_one_token():
    pieces, kept, stopped = streamed(Pieces(b"say", b" hi##there", b"!"), [0, 1, 2], [], ["##"])
    assert ("".join(pieces), kept, stopped) == ("say hi", 2, "##")


def test_text_after_the_stop_is_ignored():
    stream = TextStream(ByteTokenizer(), ["."])
    assert stream.push(b"Yes. And") == "Yes"
    assert stream.push(b" more. And more.") == ""
    assert (stream.finish(), stream.kept, stream.stopped) == ("", 4, ".")


def test_what_may_become_a_stop_string_waits_and_then_comes_out():
    stream = TextStream(ByteTokenizer(), ["\n\nQ:"])
    assert [stream.push([byte]) for byte in b"a\n\n\nQ.b"] == ["a", "", "", "\n", "", "\n\nQ.", "b"]


def test_a_character_waits_for_its_last_byte():
    stream = TextStream(ByteTokenizer())
    assert [stream.push([byte]) for byte in "é😀".encode()] == ["", "é", "", "", "", "😀"]
    assert stream.finish() == ""


def test_a_character_that_never_becomes_complete_is_replaced_at_the_end():
    stream = TextStream(ByteTokenizer(), ["#"])
    assert stream.push("a😀".encode()[:4]) == "a"
    assert (stream.finish(), stream.kept) == ("\ufffd", 4)


def test_bytes_that_are_no_character_are_replaced_once_that_is_certain():
    stream = TextStream(ByteTokenizer())
    assert [stream.push([byte]) for byte in (0x80, 0xE2, 0x41)] == ["\ufffd", "", "\ufffdA"]


def test_control_tokens_have_no_text_and_count_as_tokens():
    stream = TextStream(ByteTokenizer(), ["ab"])
    assert stream.push([ByteTokenizer.BOS, ord("a"), ByteTokenizer.EOS, ord("b")]) == ""
    assert (stream.kept, stream.stopped) == (4, "ab")


def test_an_empty_stop_string_is_refused():
    with pytest.raises(PacelineError, match="a stop string is empty"):
        TextStream(ByteTokenizer(), ["a", ""])


def test_one_string_is_one_stop_string():
    stream = TextStream(ByteTokenizer(), "##")
    assert (stream.push(b"a#b##c"), stream.stopped) == ("a#b", "##")


def test_each_token_is_spelled_once():
    tokenizer = Pieces(*(b"#" * (n % 3) + b"x" for n in range(200)))
    streamed(tokenizer, list(range(200)), list(range(0, 200, 7)), ["####", "x##x##x##y"])
    assert tokenizer.asked == [1] * 200


# Characters of one to four bytes, cut anywhere, among bytes that are none: few of each, so that
# stop strings of the same characters are often met.
CHARACTERS = "a#\u00e9\u4e2d\U0001f600"
TOKENS = st.one_of(
    st.text(CHARACTERS, max_size=3).map(str.encode),
    st.binary(max_size=1),
    st.sampled_from([b"\xf0\x9f", b"\x98\x80", b"\xe4\xb8", b"\xad", b"\xc3"]),
)
STOPS = st.lists(st.text(CHARACTERS + "\ufffd", min_size=1, max_size=4), max_size=3)


@settings(deadline=None, max_examples=400)
@given(st.lists(TOKENS, max_size=12), STOPS, st.data())
def test_any_blocks_give_what_plain_decoding_gives(tokens, stops, data):
    cuts = data.draw(st.lists(st.integers(0, len(tokens)), max_size=6))
    pieces, kept, stopped = streamed(Pieces(*tokens), list(range(len(tokens))), cuts, stops)
    assert ("".join(pieces), kept, stopped) == plain(tokens, stops)


@settings(deadline=None, max_examples=400)
@given(st.lists(TOKENS, max_size=12), STOPS)
def test_held_back_is_exactly_what_may_still_change(tokens, stops):
    stream, said = TextStream(Pieces(*tokens), stops), ""
    for n in range(len(tokens)):
        said += stream.push([n])
        if stream.stopped is not None:
            break
        text = complete_characters(b"".join(tokens[: n + 1]))
        begun = [k for s in stops for k in range(len(s)) if text.endswith(s[:k])]
        assert said == text[: len(text) - max(begun, default=0)]
