"""A draft model of another vocabulary, through the text."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from exact import loop_law
from fakes import Accepts, Faulty, HashLM, Scripted, TableModel, Windows, drive, run, sequences
from naive import decode, fresh_logits
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.model import ModelDrafter
from paceline.drafters.translate_text import TranslateText
from paceline.drafters.translated import Reader
from paceline.text.tokenizer import Tokenizer
from paceline.text.translate import Translation
from paceline.verifiers.rejection import Rejection
from tiny_tokenizers import byte_level
from translated import Permuted, as_built, by_text, pieces, translation

TARGET = pieces("a", "b", "ab", "c")
DRAFT = pieces("bc", "b", "a", "c", "cc")
ORDER = [2, 0, 3, 1]
SHUFFLED = pieces("ab", "a", "c", "b")  # the target's tokens under other numbers
MODEL, SMALL = HashLM(4, 1), HashLM(5, 2)
PROMPTS = [[0, 1, 2, 3, 1, 2], [2], [0, 1] * 20, [3, 3, 1, 3]]


PARAMS = SamplingParams(max_tokens=24)


@cache
def plain() -> list[list[int]]:
    """What the target alone says to PROMPTS."""
    return [decode(MODEL, prompt, PARAMS)[0] for prompt in PROMPTS]


def says(*ids: int, vocab: int) -> TableModel:
    """Position by position, whatever was read: at 0 the first of `ids`, the last for ever."""
    return TableModel((torch.nn.functional.one_hot(torch.tensor(ids), vocab) * 9.0).tolist())


@pytest.mark.parametrize("k", [1, 4, 8, Windows(4, 0, 8, 1, 3)])
def test_greedy_output_is_that_of_the_target_alone(k) -> None:
    for make in (by_text(SMALL, TARGET, DRAFT), as_built(MODEL, SMALL, TARGET, DRAFT)[0]):
        done = run(MODEL, PROMPTS, PARAMS, make, k)
        assert done.ids == plain()
        assert sum(row.drafted for rows in done.emitted for row in rows) > 40


def test_sampled_rows_follow_p_exactly() -> None:
    """A point mass where the draft is sure, whatever the temperature."""
    right = [0.25, 0.25, 0.375, 0.125]
    law = loop_law(
        TableModel.of_probs(right),
        by_text(says(1, 1, vocab=5), TARGET, DRAFT),
        SamplingParams(temperature=1),
        1,
        (1, 8, 24),
    )
    assert law.tolist() == pytest.approx(right, abs=1e-9)


@pytest.mark.parametrize("k", [[4, 4, 4, 4], [8, 1, 0, 2]])
def test_with_the_same_vocabulary_it_is_the_plain_drafter(k: list[int]) -> None:
    seqs = sequences(PROMPTS, SamplingParams())
    right = ModelDrafter(CachedModel(MODEL, 4, 256)).propose(seqs, k)
    draft = by_text(MODEL, TARGET, TARGET)(seqs).propose(seqs, k)
    assert draft.q is None
    assert draft.lengths == right.lengths
    for b, n in enumerate(k):
        assert draft.tokens[b, :n].tolist() == right.tokens[b, :n].tolist()


def test_the_target_under_other_numbers_is_always_accepted() -> None:
    """Also after another drafter, K = 0 and other requests in the same slots."""
    length = 300
    silly = Scripted(lambda ids, k: [len(ids) % 3] * k if len(ids) % 7 == 0 else [])
    scored, make = CachedModel(MODEL, 2, length), by_text(Permuted(MODEL, ORDER), TARGET, SHUFFLED)
    drafter = None
    for prompts in ([[1, 2], [0] * 20], [[2] * 11, [1]], [[2] * 11 + [0, 0], [1, 1]]):
        seqs = sequences(prompts, SamplingParams(max_tokens=60), (), length)
        drafter = drafter or make(seqs)
        loop = Loop(scored, FirstOf(silly, drafter), Rejection(), Windows(4, 0, 8, 1))
        done = drive(loop, seqs)
        drafted = 0
        for b, rows in enumerate(done.emitted):
            at = len(prompts[b])
            for row in rows:
                if at % 7:
                    assert row.accepted == row.drafted
                    drafted += row.drafted
                at += len(row.tokens)
        assert drafted > 50


@pytest.mark.parametrize("counts", [(0,), (4,), (0, 4, 1, 3, 2)])
def test_the_draft_cache_after_every_number_of_accepts(counts: tuple[int, ...]) -> None:
    """Whatever was accepted: each draft is that of a new drafter."""
    seqs = sequences(PROMPTS, SamplingParams(max_tokens=25))
    make = by_text(SMALL, TARGET, DRAFT)
    used = make(seqs)
    loop = Loop(CachedModel(MODEL, 4, 256), used, Accepts(*counts), Windows(4, 0, 1, 4))
    while any(seqs.running):
        new, again = make(seqs).propose(seqs, [3, 2, 3, 1]), used.propose(seqs, [3, 2, 3, 1])
        assert new.lengths == again.lengths
        assert new.tokens.tolist() == again.tokens.tolist()
        loop.step(seqs)


def test_what_was_read_is_not_read_again() -> None:
    """Only what is new, and what a longer token swallowed: the draft's cache is kept."""
    make = by_text(SMALL, TARGET, DRAFT)
    seqs = sequences([[0, 1] * 100], SamplingParams(max_tokens=50), length=300)
    drafter = make(seqs)
    drafter.propose(seqs, [1])
    before = SMALL.reads
    run_on = Loop(CachedModel(MODEL, 1, 300), drafter, Rejection(), Windows(4))
    drive(run_on, seqs)
    assert SMALL.reads - before < 50 * 14


def test_one_token_for_the_draft_and_two_for_the_target_across_the_edge() -> None:
    target, draft = pieces("a", "b", "c", "x"), pieces("c", "ab", "a", "b")
    after = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]  # c: ab; ab: c; a: b; b: a
    make = by_text(TableModel(after, by="token"), target, draft)
    for prompt, right in (
        ([2, 0, 1], [2, 0, 1, 2]),  # it reads c, ab
        ([2, 2, 0], [1, 0, 1, 0]),  # it reads c, c, a
        ([2, 2], [0, 1, 2, 0]),
    ):
        seqs = sequences([prompt], SamplingParams())
        assert make(seqs).propose(seqs, [4]).tokens.tolist() == [right]


def test_a_longer_token_that_only_the_draft_has_stands_for_the_last_one() -> None:
    """The text ends with a line break; the draft joins it to the spaces behind, and goes on."""
    target, draft = pieces("a", "\n", "  ", "b", "c"), pieces("\n", "\n  ", "c", "b", " ", "a")
    after = [  # a: "\n  "; "\n": c; "\n  ": c; c: b; b: c
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [1, 2, 0, 0, 0, 0],
    ]
    make = by_text(TableModel(after, by="token"), target, draft)
    seqs = sequences([[0, 1], [0, 0], [3, 1]], SamplingParams())
    right = [[2, 4, 3], [1, 2, 4], [4, 3, 4]]  # behind b a line break is nothing else
    assert make(seqs).propose(seqs, [3, 3, 3]).tokens.tolist() == right
    for b, prompt in enumerate([[0, 1], [0, 0]]):
        one = sequences([prompt], SamplingParams())
        assert make(one).propose(one, [3]).tokens.tolist() == [right[b]]


def test_behind_a_joined_token_the_draft_model_reads_that_one() -> None:
    target, draft = pieces("a", "\n", "  ", "b"), pieces("\n", "\n  ", "b", "a", " ")
    table, joined = translation(target, draft), 0
    for seed in range(20):
        small = HashLM(5, seed=seed)
        seqs = sequences([[0, 1], [0, 3, 1]], SamplingParams())
        drawn = by_text(small, target, draft)(seqs).propose(seqs, [3, 3])
        for b, own in enumerate([[3, 0], [3, 2, 0]]):
            before = fresh_logits(small, own[:-1])
            said = [4, 4] if before[1] > before[0] else []
            own = [*own[:-1], 1] if said else own
            joined += bool(said)
            for _ in range(8):
                logits = fresh_logits(small, own)
                own.append(logits.index(max(logits)))
                said.append(own[-1])
            n = drawn.lengths[b]
            tail = seqs.committed(b).tolist()
            drafts = [table.rewrite(tail, said[:i])[:3] for i in range(len(said) + 1)]
            assert drawn.tokens[b, :n].tolist() == next(
                (d for d in drafts if len(d) == 3), drafts[6]
            )
    assert 5 < joined < 35


def test_a_slot_is_used_again() -> None:
    """What was settled before a control token belongs to one request."""
    target, draft = pieces("a", "b", "ab", "<t>"), pieces("<t>", "b", "a")
    make = by_text(HashLM(3, seed=4), target, draft)
    used = make(sequences([[0]], SamplingParams()))
    for prompt in [0, 3, 1], [1, 3, 1], [1, 1, 3, 1], [1, 3, 3], [0, 3, 3], [2, 0, 3, 0, 3, 1], [3]:
        seqs = sequences([prompt], SamplingParams())
        for _ in range(2):
            right = make(seqs).propose(seqs, [4]).tokens.tolist()
            assert used.propose(seqs, [4]).tokens.tolist() == right


def test_a_longer_token_whose_rest_cannot_be_spelled_is_left_alone() -> None:
    target, draft = pieces("a", "\n", "  "), pieces("\n", "\n  ", "a")
    model = TableModel([[0, 0, 1], [0, 0, 1], [0, 2, 0]], by="token")
    seqs = sequences([[0, 1]], SamplingParams())
    assert by_text(model, target, draft)(seqs).propose(seqs, [1]).tokens.tolist() == [[0]]
    seqs = sequences([[1]], SamplingParams())  # nothing stands before it
    assert by_text(model, target, draft)(seqs).propose(seqs, [1]).tokens.tolist() == [[0]]


def test_half_a_character_is_finished() -> None:
    """The target has one token a byte, the draft one for the whole character."""
    target = Tokenizer.from_gguf(byte_level())
    draft = Tokenizer.from_gguf(byte_level(["â Ĥ", "âĤ ¬", "a b"]))
    table = Translation(target, draft, target.size, draft.size)
    euro = target.encode("€")
    seqs = sequences([[*target.encode("x"), *euro[:2]]], SamplingParams())
    model = says(table.to_draft[euro[2]], vocab=draft.size)
    assert by_text(model, target, draft)(seqs).propose(seqs, [1]).tokens.tolist() == [[euro[2]]]


def test_a_control_token_ends_the_draft_and_is_proposed_if_the_target_has_it() -> None:
    target, draft = pieces("a", "<end>", "b"), pieces("b", "a", "<end>", "<other>")
    for end, right in (2, [2, 0, 1]), (3, [2, 0]):
        seqs = sequences([[0]], SamplingParams())
        model = says(0, 1, end, 0, vocab=4)
        drafted = by_text(model, target, draft)(seqs).propose(seqs, [6])
        assert drafted.tokens.tolist() == [right]


@pytest.mark.parametrize("start", [0, 3, 4])
def test_a_draft_model_without_a_distribution_drafts_no_further(start: int) -> None:
    seqs = sequences([[3, 1, 3, 0]], SamplingParams())  # the draft reads "bc" as one: 3 ids
    faulty, sound = (
        by_text(m, TARGET, DRAFT)(seqs).propose(seqs, [4])
        for m in (Faulty(SMALL, start=start), SMALL)
    )
    said = max(0, start - 2)
    text = "".join(TARGET.token_text(i) for i in sound.tokens[0].tolist())
    cut = "".join(TARGET.token_text(i) for i in faulty.tokens[0].tolist())
    assert text.startswith(cut)
    assert (cut == "") == (said == 0)
    done = run(MODEL, PROMPTS, PARAMS, by_text(Faulty(SMALL, 1, start), TARGET, DRAFT), 4)
    assert done.ids == plain()


def test_nothing_is_drafted_beyond_the_drafts_own_context() -> None:
    target, draft = pieces("aa", "b", "a"), pieces("a", "b")
    make = by_text(says(1, vocab=2), target, draft, context=10, length=3)  # says "b" for ever
    seqs = sequences([[0, 0, 1], [0, 1, 0, 1, 0], [0, 0, 0, 0, 1, 1], [1]], SamplingParams())
    assert make(seqs).propose(seqs, [8] * 4).lengths == [6, 3, 1, 8]
    used = make(seqs)
    for prompt, most in ([0] * 5, 1), ([0] * 6, 0), ([0] * 80, 0), ([0] * 3, 5), ([0, 0, 1], 6):
        one = sequences([prompt] * 4, SamplingParams())
        assert used.propose(one, [8] * 4).lengths == [most] * 4
    short = by_text(SMALL, TARGET, DRAFT, context=10)
    assert run(MODEL, PROMPTS, PARAMS, short, 4).ids == plain()


def test_a_draft_with_larger_tokens_asks_its_model_no_more_than_it_must() -> None:
    asked: list[int] = []

    class Counted(TableModel):
        def forward(self, tokens, at, cache, *, row=0, logits=True):
            asked.append(tokens.shape[1])
            return super().forward(tokens, at, cache, row=row, logits=logits)

    target, draft = pieces("a", "b"), pieces("a", "abab", "b")
    model = Counted([[0.0, 1.0, 0.0]])
    seqs = sequences([[0]], SamplingParams())
    assert by_text(model, target, draft)(seqs).propose(seqs, [4]).tokens.tolist() == [[0, 1, 0, 1]]
    assert len(asked) == 1


def test_a_padded_head_is_never_drafted_from() -> None:
    small = TableModel([[0.0, 1.0, 2.0, 0.0, 0.0, 50.0]])
    make, notes = as_built(HashLM(6, seed=3), small, TARGET, DRAFT)
    seqs = sequences([[0]], SamplingParams())
    assert make(seqs).propose(seqs, [3]).tokens.tolist() == [[0, 0, 0]]
    assert notes == [
        "small drafts for big through 3 shared tokens (60 % of its own, 75 % of big's)"
    ]


def test_the_reader_grows_with_the_text() -> None:
    table = translation(TARGET, DRAFT)
    seqs = sequences([[0, 1, 3] * 20, [2]], SamplingParams(max_tokens=60))
    rooms: list[int] = []

    def make(room: int) -> CachedModel:
        rooms.append(room)
        return CachedModel(SMALL, 2, room, 5)

    drafter = TranslateText(Reader(make, table, 2, 8, 1000), table)
    fresh = by_text(SMALL, TARGET, DRAFT)(seqs).propose(seqs, [4, 4])
    assert drafter.propose(seqs, [4, 4]).tokens.tolist() == fresh.tokens.tolist()
    assert rooms == [8, 64]
