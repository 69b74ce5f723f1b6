"""Between two vocabularies: what is shared, how text is read, how a draft is written."""

from __future__ import annotations

import random

import pytest

from paceline.text.tokenizer import Tokenizer
from paceline.text.translate import Translation
from tiny_tokenizers import CONTROL, UNUSED, USER, byte_level, sentencepiece
from translated import pieces, translation

MERGES = ["t h", "th e", "Ġ the", "i n", "a b", "Ã ©", "â Ĥ", "âĤ ¬", "o n", "Ġ on", "Ġon e"]
OTHER = ["a b", "ab c", "Ġ t", "h e", "Ġt he", "i n", "in g", "âĤ ¬", "Ã ©", "e Ġ"]
WORDS = ["the", "one", "in", "abc", "thing", "café", "€", "x=1;", "\n\n  ", "日本", "e"]


def bpe(merges=MERGES, added=(("<|end|>", CONTROL),), **settings) -> Tokenizer:
    return Tokenizer.from_gguf(byte_level(merges, added, **settings))


def spm(prefix: bool = True) -> Tokenizer:
    names = ["▁", *"theonigabcx", "th", "the", "▁the", "▁t", "in", "on", "▁on", "é"]
    return Tokenizer.from_gguf(
        sentencepiece([(name, -float(i)) for i, name in enumerate(names)], add_space_prefix=prefix)
    )


PAIRS = {
    "byte level": (bpe(), bpe(OTHER)),
    "from sentencepiece": (bpe(), spm()),
    "to sentencepiece": (spm(), bpe(OTHER)),
    "no space in front": (bpe(OTHER), spm(prefix=False)),
    "alike": (bpe(), bpe()),
}


def text(rng: random.Random, words: int) -> str:
    return "".join(rng.choice(["", " ", " ", "\n"]) + rng.choice(WORDS) for _ in range(words))


def spelled(tokenizer: Tokenizer, ids: list[int]) -> bytes:
    return b"".join(tokenizer.token_bytes(i) for i in ids)


def read(table: Translation, ids: list[int]) -> list[int]:
    _, settled, rest = table.read(ids, True)
    return settled + rest


def test_strings_are_compared_as_text_and_controls_by_name() -> None:
    target = bpe(["Ġ t", "a b"], [("<|end|>", CONTROL), ("<|on|>", CONTROL), ("née", USER)])
    draft = Tokenizer.from_gguf(
        sentencepiece(
            [("▁t", -1), ("é", -2), ("ab", -3), ("a", -4), ("<|on|>", -5), ("née", -6)],
            [("<|end|>", CONTROL), ("<|pad|>", UNUSED)],
        )
    )
    table = translation(target, draft)
    at = {draft.token_text(i): i for i in range(draft.size)}
    assert target.token_bytes(table.to_target[at["▁t"]]) == b" t"
    assert target.token_bytes(table.to_target[at["née"]]) == "née".encode()
    assert target.token_text(table.to_target[at["<|end|>"]]) == "<|end|>"
    for name in ("<unk>", "<s>", "</s>", "é", "<|on|>", "<|pad|>"):  # <|on|> is text to the draft
        assert table.to_target[at[name]] == -1
    a = table.to_target[at["a"]]
    assert table.to_target[at["<0x61>"]] == a
    assert table.to_draft[a] == at["a"]  # of two that spell the same, not the byte token
    assert table.shared == 256 + len({" t", "ab", "née", "<|end|>"})


@pytest.mark.parametrize("pair", PAIRS)
def test_tables_agree_with_one_another(pair: str) -> None:
    target, draft = PAIRS[pair]
    table = translation(target, draft)
    for a, b, there, back in (
        (draft, target, table.to_target, table.to_draft),
        (target, draft, table.to_draft, table.to_target),
    ):
        assert len(there) == a.size
        for i, j in enumerate(there):
            if j < 0:
                continue
            assert a.is_special(i) == b.is_special(j)
            assert a.token_bytes(i) == b.token_bytes(j)
            assert a.token_bytes(back[j]) == a.token_bytes(i)


def test_ids_that_mean_the_same_in_both_stay_themselves() -> None:
    twice = pieces("a", "b", "a", "ab")
    assert translation(twice, twice).to_target == [0, 1, 2, 3]


def test_ids_past_either_end_are_never_named() -> None:
    """Heads that are wider or narrower than the tokenizer."""
    table = Translation(pieces("a", "b", "c"), pieces("c", "b", "a"), 2, 5)
    assert table.to_target == [-1, 1, 0, -1, -1]
    assert table.to_draft == [2, 1]
    assert table.rewrite([], [1, 2, 0, 1]) == [1, 0]  # "c" is past the target's head
    assert table.ends(4)


@pytest.mark.parametrize("pair", PAIRS)
def test_text_is_read_as_the_draft_would_read_it(pair: str) -> None:
    target, draft = PAIRS[pair]
    table, rng = translation(target, draft), random.Random(1)
    for _ in range(40):
        words = text(rng, rng.randrange(1, 120))
        ids = read(table, target.encode(words))
        assert spelled(draft, ids) == spelled(target, target.encode(words))
        whole = draft.encode(spelled(target, target.encode(words)).decode())
        if pair in ("byte level", "alike"):
            assert ids == whole


@pytest.mark.parametrize("pair", PAIRS)
def test_reading_does_not_depend_on_how_the_text_came(pair: str) -> None:
    """Any tokens at all: also such as no text has, half characters and control tokens."""
    target, draft = PAIRS[pair]
    table, rng = translation(target, draft), random.Random(2)
    for turn in range(6):
        ids = [rng.randrange(target.size) for _ in range(300)]
        if turn % 2:
            ids = target.encode(text(rng, 150))
            ids[7:9] = [target.size - 1]
        done: list[int] = []
        known = end = 0
        while end < len(ids):
            end = min(len(ids), end + rng.randrange(1, 9))
            closed, settled, rest = table.read(ids[known:end], known == 0)
            done += settled
            known += closed
            assert done + rest == read(table, ids[:end])
        assert known > 40


def test_tokens_that_no_text_gives_are_read_one_by_one() -> None:
    """The draft of the same vocabulary reads just what the target wrote."""
    table = translation(pieces("a", "b", "ab", "c"), pieces("c", "ab", "b", "a"))
    assert read(table, [2, 0, 1, 3]) == [1, 3, 2, 0]
    assert read(table, [0, 3, 0, 1, 1]) == [3, 0, 3, 2, 2]


@pytest.mark.parametrize("add_bos", [False, True])
def test_each_reads_with_its_own_bos(add_bos: bool) -> None:
    bare, led = pieces("b", "a"), pieces("a", "<bos>", "b", "<turn>", add_bos=True)
    if add_bos:
        table = translation(bare, led)
        assert read(table, [1, 0]) == [1, 0, 2]
        assert read(table, []) == [1]
    else:
        table = translation(led, bare)
        assert read(table, [1, 0, 2]) == [1, 0]
        assert read(table, [1]) == []
        assert table.read([1, 0], True) == (1, [], [1])


def test_a_control_token_that_the_draft_lacks_is_read_by_its_name() -> None:
    target = bpe(added=[("<|end|>", CONTROL), ("<|turn|>", CONTROL)])
    draft = bpe(OTHER)
    ids = read(translation(target, draft), target.encode("<|turn|>in<|end|>the"))
    assert ids == [*draft.encode("<|turn|>in", special=False), *draft.encode("<|end|>the")]


def test_what_looks_like_a_control_token_stays_text() -> None:
    target, draft = bpe(), bpe(OTHER)
    ids = read(translation(target, draft), target.encode("<|end|>", special=False))
    assert ids == draft.encode("<|end|>", special=False)


@pytest.mark.parametrize("pair", PAIRS)
def test_half_a_character_is_read_byte_by_byte(pair: str) -> None:
    target, draft = PAIRS[pair]
    table = translation(target, draft)
    pieces_of = [i for i in range(target.size) if len(target.token_bytes(i)) == 1]
    byte = {target.token_bytes(i): i for i in reversed(pieces_of)}
    euro = [byte[bytes([b])] for b in "€".encode()]
    half = [i for i in read(table, euro[:2]) if not draft.is_special(i)]
    assert [draft.token_bytes(i) for i in half] == [b"\xe2", b"\x82"]
    assert spelled(draft, read(table, [*euro, *euro[:1]])) == "€".encode() + b"\xe2"


@pytest.mark.parametrize("pair", PAIRS)
def test_a_draft_is_written_as_the_target_writes_the_text(pair: str) -> None:
    """Where the target cuts at the edge anyway: tail and draft are then the whole text's ids."""
    target, draft = PAIRS[pair]
    table, rng = translation(target, draft), random.Random(3)
    for _ in range(60):
        before, behind = text(rng, rng.randrange(8)), " " + text(rng, 5).lstrip()
        tail = target.encode(before) if before else []
        _, _, rest = table.read(tail, True)
        whole = draft.encode(spelled(target, tail).decode() + behind)
        if whole[: len(rest)] != rest or not behind.strip():
            continue
        ids = table.rewrite(tail, whole[len(rest) :])
        assert spelled(target, ids) == behind.encode()
        right = target.encode(spelled(target, tail).decode() + behind)
        if right[: len(tail)] == tail and pair != "to sentencepiece":
            assert tail + ids == right


@pytest.mark.parametrize("pair", PAIRS)
def test_whatever_is_drafted_is_written_to_the_byte(pair: str) -> None:
    target, draft = PAIRS[pair]
    table, rng = translation(target, draft), random.Random(4)
    textual = [i for i in range(draft.size) if not draft.is_special(i)]
    for _ in range(200):
        tail = [rng.randrange(target.size - 1) for _ in range(rng.randrange(6))]
        drafted = rng.choices(textual, k=rng.randrange(1, 9))
        if rng.random() < 0.5:
            drafted = draft.encode(text(rng, 4)) or drafted
        ids = table.rewrite([i for i in tail if not target.is_special(i)], drafted)
        assert spelled(target, ids) == spelled(draft, drafted)


def test_one_token_for_the_draft_and_two_for_the_target_across_the_edge() -> None:
    target, draft = pieces("a", "b", "c", "bc"), pieces("ab", "c", "a", "b", "cc")
    table = translation(target, draft)
    assert read(table, [0]) == [2]  # the prompt ends with "a": the draft says "b", not "ab"
    assert table.rewrite([0], [3]) == [1]
    assert table.rewrite([0], [3, 1]) == [3]  # "bc" is one token of the target's
    assert read(table, [0, 1]) == [0]
    assert table.rewrite([0, 1], [1, 3]) == [2, 1]  # not "bc": its "b" is committed
    assert table.rewrite([0, 1], [0]) == [0, 1]
    swapped = translation(draft, target)
    assert read(swapped, [2]) == [0]  # "ab" is one token of the target's, its "a" is committed
    assert swapped.rewrite([2], [1]) == [3]
    assert swapped.rewrite([1], [2]) == [1]
    assert swapped.rewrite([1], [2, 2]) == [4]


def test_a_draft_may_end_and_says_nothing_behind_it() -> None:
    target, draft = pieces("a", "<end>", "b"), pieces("b", "a", "<end>", "<other>")
    table = translation(target, draft)
    assert [table.ends(i) for i in range(4)] == [False, False, True, True]
    assert table.rewrite([0], [0, 1, 2]) == [2, 0, 1]
    assert table.rewrite([0], [2]) == [1]
    assert table.rewrite([0], [3]) == []
    assert table.rewrite([0], [1, 3]) == [0]


def test_what_the_target_cannot_spell_ends_the_draft() -> None:
    table = translation(pieces("a", "b", "ab"), pieces("a", "z", "b"))
    assert table.rewrite([], [0, 2, 1, 0]) == [0, 1]
    assert table.rewrite([], [1, 0]) == []


def test_the_overlap_is_told() -> None:
    table = translation(pieces("a", "b", "ab", "c", "d"), pieces("b", "x", "a", "y"))
    message = "S drafts for B through 2 shared tokens (50 % of its own, 40 % of B's)"
    assert table.message("B", "S") == message


def test_a_normal_token_of_no_text_is_shared_with_nothing() -> None:
    table = translation(pieces("a", ""), pieces("", "a"))
    assert table.to_target == [-1, 0]
