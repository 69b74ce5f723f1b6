"""Constrained decoding through the loop: the grammar's mask is part of p, whatever drafts."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest
import torch

from checks.trees import branches
from exact import chi_square, loop_law
from fake_tokenizer import ByteTokenizer
from fakes import HashLM, Scripted, TableModel, liars, model_drafter, run, sequences
from grammars import K_DIGITS, Rules, Words, greedy, k_digits, outputs
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.types import Draft
from paceline.drafters.lookup import Lookup
from paceline.drafters.none import NoDraft
from paceline.drafters.suffix import Suffix
from paceline.text.grammar import Grammars
from paceline.verifiers.block import Block
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.tree import Trees

BYTES = ByteTokenizer()
EOS = [BYTES.EOS]
PROMPT = [BYTES.BOS, *b"x"]
TREES = Trees(Rejection())
DRAFTERS = {  # makes a drafter beside HashLM(seed), and the verifier
    "none": (lambda model, seed: NoDraft(), Rejection()),
    "lookup": (lambda model, seed: Lookup(2), Rejection()),
    "suffix": (lambda model, seed: Suffix(), Rejection()),
    "suffix tree": (lambda model, seed: Suffix(branches=True), TREES),
    "the target itself": (lambda model, seed: model_drafter(model), Rejection()),
    "model": (
        lambda model, seed: model_drafter(HashLM(model.vocab_size, seed, 0.5)),
        Rejection(),
    ),
    "model, block": (
        lambda model, seed: model_drafter(HashLM(model.vocab_size, seed, 0.5)),
        Block(),
    ),
    "tree": (lambda model, seed: branches(HashLM(model.vocab_size, seed, 0.5), 3), TREES),
}


class Forks:
    """Drafts what `truth` says goes on, with an illegal byte and a legal one beside each token, and
    more behind the end."""

    def __init__(self, truth: list[int]) -> None:
        self.truth = truth

    def propose(self, seqs, k):
        tokens, parents, last = [], [], -1
        for token in [*self.truth[seqs.lengths[0] :], ord("}"), ord("1")][: k[0]]:
            siblings = [token, *({ord("x"), ord("7")} - {token})]
            parents += [last] * len(siblings)
            last = len(tokens)
            tokens += siblings
        return Draft(torch.tensor([tokens]), [len(tokens)], parents=torch.tensor([parents]))


@pytest.mark.parametrize("k", [1, 4, 8])
@pytest.mark.parametrize("shape", ["chain", "tree"])
@pytest.mark.parametrize("marker", [b"", b"<<"])
def test_drafts_do_not_disturb_the_grammar(k, shape, marker):
    """Case C14: the target prefers illegal bytes; the draft has legal and illegal ones, runs on
    behind the brace, and the marker lands in the middle of a block. After each round the matcher is
    as one that has read what was put out alone."""
    grammars = Grammars(BYTES)
    grammar = grammars.lark(K_DIGITS)
    rules = Rules(BYTES, k_digits, marker)
    for seed in range(3):
        model, spoken = HashLM(BYTES.size, seed), b""
        if marker:  # a target that says these words before anything else
            grammar, spoken = grammars.after("<<", grammars.lark(K_DIGITS)), b"say <<"
            scores = [[8.0 * (t == byte) for t in range(BYTES.size)] for byte in spoken]
            table = [[0.0] * BYTES.size] * (len(PROMPT) - 1) + scores
            table += HashLM(BYTES.size, seed).table[:40].tolist()
            model = TableModel(table)
        params = SamplingParams(grammar=grammar, max_tokens=30)
        truth = greedy(model, rules, PROMPT, 30)
        assert re.match(rb'(say <<)?{"k":[0-9]{1,6}}', bytes(t for t in truth if t < 256))
        assert truth != run(model, [PROMPT], SamplingParams(max_tokens=30), eos=EOS).ids[0]
        for wrong_at in range(3) if shape == "chain" else [0]:
            seqs = sequences([PROMPT], params, EOS)
            drafter = liars([PROMPT + truth], wrong_at, BYTES.size, beyond=4)
            if shape == "tree":
                drafter = Forks(PROMPT + truth)
            target = CachedModel(model, 1, 256)
            loop = Loop(target, drafter, TREES, Fixed(k))
            while any(seqs.running):
                loop.step(seqs)
                output = seqs.committed(0)[len(PROMPT) :].tolist()
                matcher = seqs.matchers[0]
                assert matcher is not None
                assert torch.equal(matcher.allowed(output, [], []), rules.allowed(output, [], []))
            assert output == truth


MIXED = [
    {"lark": K_DIGITS},
    {},
    {"lark": 'start: "[" (/[0-9]/ ","){3,20} /[a-z]/ "]"'},
    {"schema": {"type": "array", "items": {"enum": [1, "ab", None]}, "maxItems": 8}},
    {"lark": 'start: /(ab|ba)+c?/', "temperature": 1.0, "seed": 7},
    {"lark": 'start: "q" /[a-c]+/', "after": "a"},
]  # fmt: skip


def mixed(grammars: Grammars, **how) -> SamplingParams:
    grammar = None
    if "lark" in how:
        grammar = grammars.lark(how["lark"])
    elif "schema" in how:
        grammar = grammars.json_schema(how["schema"])
    if "after" in how:
        grammar = grammars.after(how["after"], grammar)
    rest = {key: how[key] for key in ("temperature", "seed") if key in how}
    return SamplingParams(grammar=grammar, max_tokens=48, **rest)


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_row_is_what_it_is_alone_and_greedy_ones_what_plain_decoding_says(name):
    make, verifier = DRAFTERS[name]
    grammars = Grammars(BYTES)
    each = [mixed(grammars, **how) for how in MIXED]
    model = HashLM(BYTES.size, 3)
    prompts = [[BYTES.BOS, *b"abababab1,1,1,"[: 4 + 2 * i]] for i in range(len(each))]

    def result(prompts, params):
        return run(model, prompts, params, make(model, 3), 4, EOS, verifier)

    together = result(prompts, each)
    plain = run(model, prompts, each, eos=EOS)
    for b, params in enumerate(each):
        assert result([prompts[b]], [params]).ids == [together.ids[b]]
        if params.greedy:
            assert together.ids[b] == plain.ids[b]
            assert together.finish()[b] == plain.finish()[b]


def test_a_perfect_drafter_is_accepted_wherever_the_grammar_agrees():
    """With a grammar that allows every text, p is the target's own and nothing is lost."""
    model = HashLM(128, 5)
    ascii_words = Words(*(bytes([byte]) for byte in range(1, 128)))
    grammar = Grammars(ascii_words).lark("start: /(?s:.*)/")
    params = SamplingParams(grammar=grammar, max_tokens=40)
    with_grammar = run(model, [[1]], params, model_drafter(model), 4, [127])
    without = run(model, [[1]], SamplingParams(max_tokens=40), model_drafter(model), 4, [127])
    assert with_grammar.ids == without.ids
    assert [e.accepted for e in with_grammar.emitted[0]] == [e.drafted for e in without.emitted[0]]


def test_a_model_without_an_end_token_ends_where_nothing_may_follow():
    model = HashLM(BYTES.size, 1)
    words = Words(*(bytes([byte]) for byte in range(256)), eos=False)
    grammar = Grammars(words).lark(K_DIGITS)
    params = SamplingParams(grammar=grammar, max_tokens=40)
    truth = greedy(model, Rules(words, k_digits), PROMPT, 40)
    truth = truth[: truth.index(ord("}")) + 1]
    for k in (0, 1, 4, 8):
        drafter = liars([PROMPT + truth], -1, 256, beyond=8)
        done = run(model, [PROMPT], params, drafter, k, vocab=256)
        assert done.ids == [truth]
        assert done.finish() == ["stop"]


LETTERS = Words("a", "b", "c")


def test_two_tokens_follow_the_masked_law_exactly():
    """p and q in eighths, so that the grid holds every edge. At the first token the grammar masks
    half of p, at the second a part that depends on the first, and q draws what is masked."""
    p = [[2, 1, 1, 4], [3, 1, 1, 3], [2, 2, 2, 2]]
    q = [[1, 4, 1, 2], [4, 0, 0, 4], [2, 2, 2, 2]]
    model, other = (TableModel.of_probs(*(torch.tensor(r) / 8).tolist()) for r in (p, q))
    grammar = Grammars(LETTERS).lark('start: "a" /[ac]/ | /[bc]/ /[bc]/')
    params = SamplingParams(grammar=grammar, temperature=1)
    law = loop_law(model, model_drafter(other), params, 1, (8, 2, 4), tokens=2)
    first = torch.tensor([0.5, 0.25, 0.25, 0], dtype=law.dtype)
    second = torch.tensor([[0.75, 0, 0.25, 0], *[[0, 0.5, 0.5, 0]] * 3], dtype=law.dtype)
    assert float((law - first[:, None] * second).abs().max()) <= 1e-9


@pytest.mark.parametrize("name", DRAFTERS)
def test_whole_outputs_are_distributed_as_those_of_plain_constrained_decoding(name):
    make, verifier = DRAFTERS[name]
    grammar = Grammars(LETTERS).lark('start: ("a" | "bc" | /c[ab]/){1,2}')
    rules = Rules(LETTERS, follows_of(["a", "bc", "ca", "cb"]))
    model, rows = HashLM(LETTERS.size, 2, sharpness=1.0), 800
    each = [SamplingParams(grammar=grammar, temperature=1, seed=s) for s in range(rows)]
    law = dict(outputs(model, rules, [0, 1, 0], each[0]))
    assert abs(sum(law.values()) - 1) < 1e-6
    done = run(model, [[0, 1, 0]] * rows, each, make(model, 2), 3, LETTERS.eos_ids, verifier, 64)
    seen = Counter(tuple(ids) for ids in done.ids)
    assert set(seen) <= set(law)
    statistic, edge = chi_square([seen[o] for o in law], [rows * p for p in law.values()])
    assert statistic < edge


def follows_of(words: list[str]):
    """One or two of these words."""
    whole = [w.encode() for w in [*words, *(a + b for a in words for b in words)]]

    def follows(text: bytes) -> tuple[set[int], bool]:
        longer = {w[len(text)] for w in whole if w.startswith(text) and len(w) > len(text)}
        return longer, text in whole

    return follows


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "n": {"type": "integer", "minimum": -5, "maximum": 120},
        "on": {"type": "boolean"},
        "of": {"type": "array", "items": {"enum": ["a", 2, None]}, "maxItems": 2},
    },
    "required": ["name", "n"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},  # short
}


def valid(text: str) -> bool:
    """Under SCHEMA."""
    value = json.loads(text)
    return (
        isinstance(value, dict)
        and {"name", "n"} <= set(value) <= set(SCHEMA["properties"])
        and isinstance(value["name"], str)
        and len(value["name"]) <= 3
        and type(value["n"]) is int
        and -5 <= value["n"] <= 120
        and isinstance(value.get("on", True), bool)
        and isinstance(of := value.get("of", []), list)
        and len(of) <= 2
        and all(item in ("a", 2, None) for item in of)
    )


@pytest.mark.parametrize("name", ["none", "lookup", "suffix", "model, block", "tree"])
def test_300_outputs_at_temperature_1_are_all_valid_under_the_schema(name):
    make, verifier = DRAFTERS[name]
    grammar = Grammars(BYTES).json_schema(SCHEMA)
    model, rows = HashLM(BYTES.size, 4), 300
    each = [SamplingParams(grammar=grammar, temperature=1, seed=s) for s in range(rows)]
    done = run(model, [PROMPT] * rows, each, make(model, 4), 4, EOS, verifier, 700)
    texts = [BYTES.decode(ids) for ids in done.ids]
    assert set(done.finish()) == {"stop"}
    assert all(valid(text) for text in texts)
    assert len(set(texts)) > 250


def test_a_target_that_has_nothing_left_to_say_ends_with_an_error_and_others_go_on():
    """The model has no "}" in its vocabulary's reach: a bias forbids it."""
    grammar = Grammars(BYTES).lark(K_DIGITS)
    stuck = SamplingParams(grammar=grammar, logit_bias={ord("}"): float("-inf")})
    fine = SamplingParams(grammar=grammar)
    model = HashLM(BYTES.size, 0)
    for drafter in (NoDraft(), Scripted(lambda ids, k: list(b'{"k":1}')[:k])):
        done = run(model, [PROMPT, PROMPT], [stuck, fine], drafter, 4, EOS)
        assert done.finish() == ["error", "stop"]
        assert BYTES.decode(done.ids[0]) == '{"k":' + BYTES.decode(done.ids[0])[5:]
        assert len(done.ids[0]) == 11


def test_a_grammar_that_becomes_too_complex_ends_the_request_where_plain_decoding_does(monkeypatch):
    """There are more and more ways to read a longer text; at some token it is given up."""
    monkeypatch.setattr("paceline.text.grammar._AMBIGUITY", 150)
    grammar = Grammars(BYTES).lark('start: s\ns: "a" | s s | s s s s s s')
    model = TableModel([[0.0] * 97 + [9.0] + [0.0] * (BYTES.size - 98)])
    params = SamplingParams(grammar=grammar, max_tokens=400)
    plain = run(model, [PROMPT], params, eos=EOS, length=500)
    assert plain.finish() == ["error"]
    assert len(plain.ids[0]) > 8
    for k in (1, 4):
        drafter = Scripted(lambda ids, k: [97] * k)
        done = run(model, [PROMPT], params, drafter, k, EOS, length=500)
        assert done.ids == plain.ids
        assert done.finish() == ["error"]
