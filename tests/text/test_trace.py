"""What a trace says of a round agrees with what the round did, whatever drafted and verified."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fake_tokenizer import ByteTokenizer
from fakes import HashLM
from paceline.build.verify import make_verifier
from paceline.controllers.adaptive import Adaptive
from paceline.controllers.cost import CostBook
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.noise import ACCEPT, uniforms
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller, Drafter
from paceline.core.tree import ancestry, depths
from paceline.drafters.branches import Branches
from paceline.drafters.first_of import FirstOf
from paceline.drafters.grow import TreeSize
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.paced import Paced
from paceline.drafters.sampling import growing
from paceline.errors import PacelineError
from paceline.text.decisions import Verifying
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.text.recorder import record as written
from paceline.text.trace import Node, RoundTrace, Trace
from paceline.text.trace_file import line, read

VOCAB = 258
TOKENIZER = ByteTokenizer(add_bos=False)
PROMPT = [97, 98, 97, 99, 97, 98]
Makes = Callable[[int, int], Drafter]


def near(batch: int, length: int) -> CachedModel:
    return CachedModel(HashLM(VOCAB, jitter=0.5, sharpness=3.0), batch, length)


DRAFTERS: dict[str, Makes] = {
    "model": lambda batch, length: ModelDrafter(near(batch, length)),
    "lookup": lambda batch, length: Lookup(2),
    "branches": lambda batch, length: Branches(near(batch * 4, length), 4),
    "nodes": lambda batch, length: ModelDrafter(growing(near(batch, length)), None, TreeSize(9)),
    "none": lambda batch, length: Lookup(60),
}


def generator(draft: str, how: Verifying, controller: Controller | None = None) -> Generator:
    """Of a target that is as sharp as a real one, so that drafts are accepted and refused."""
    parts = Parts(
        HashLM(VOCAB, sharpness=3.0),
        TOKENIZER,
        lambda batch, length, target: DRAFTERS[draft](batch, length),
        make_verifier(how.verify, how.lenience, how.deterministic),
        controller or Fixed(4),
        coupled=how.deterministic,
        k=4,
    )
    return Generator(parts, context=400)


def record(
    path: Path, source: Generator, params: SamplingParams, how: Verifying
) -> tuple[Trace, list[int]]:
    """The trace as it comes back from the file, and the ids."""
    stream = source.stream(PROMPT, params, rounds=True)
    for _ in written(str(path), {"model": "hash"}, stream, how, TOKENIZER):
        pass
    return read(str(path)), stream.completion.token_ids


GREEDY, HOT = SamplingParams(max_tokens=60), SamplingParams(max_tokens=60, temperature=0.8, seed=5)
CASES = [
    ("model", HOT, Verifying("rejection"), {"rejection"}),
    ("model", HOT, Verifying("rejection", 0.5), {"rejection"}),
    ("model", HOT, Verifying("auto"), {"block"}),
    ("lookup", HOT, Verifying("auto"), {"block"}),
    ("lookup", HOT, Verifying("rejection"), {"rejection"}),
    ("model", HOT, Verifying("typical"), {"typical"}),
    ("branches", HOT, Verifying("typical"), {"typical"}),
    ("branches", HOT, Verifying("kseq"), {"kseq", "block"}),
    ("branches", HOT, Verifying("specinfer"), {"candidates", "block"}),
    ("nodes", HOT, Verifying("auto"), {"candidates", "block"}),
    ("model", HOT, Verifying(deterministic=True), {"coupled"}),
    ("branches", HOT, Verifying(deterministic=True), {"coupled"}),
    ("model", GREEDY, Verifying("auto"), {"greedy"}),
    ("model", GREEDY, Verifying("rejection", 0.1), {"greedy"}),
    ("lookup", GREEDY, Verifying("auto"), {"greedy"}),
    ("branches", GREEDY, Verifying("auto"), {"greedy"}),
    ("nodes", replace(GREEDY, repetition_penalty=1.2), Verifying("auto"), {"greedy"}),
    ("none", GREEDY, Verifying("auto"), {"greedy"}),
]
IDS = [f"{d}-{p.temperature}-{h.verify}-{h.lenience}-{h.deterministic}" for d, p, h, _ in CASES]


@pytest.fixture(params=CASES, ids=IDS, scope="module")
def case(request, tmp_path_factory):
    """How a run was made, its trace, and what it put out."""
    draft, params, how, rules = request.param
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl"
    trace, ids = record(path, generator(draft, how), params, how)
    assert {each.rule for each in trace.rounds} <= rules
    return draft, params, how, trace, ids


def path_of(each: RoundTrace) -> list[Node]:
    return [node for node in each.nodes if node.state == "accepted"]


def test_the_rounds_say_every_token_and_its_origin(case) -> None:
    """Accepted tokens follow each other from the root; the one behind them is what its origin
    says: in the place of refused ones, behind a whole draft, or behind none."""
    _, _, _, trace, ids = case
    position, said = len(PROMPT), []
    for number, each in enumerate(trace.rounds, 1):
        assert (each.number, each.position) == (number, position)
        path = path_of(each)
        nodes = [each.nodes.index(node) for node in path]
        assert [node.parent for node in path] == [-1, *nodes][: len(path)]
        tokens = [token.id for token in each.emitted]
        assert tokens[: len(path)] == [node.id for node in path]
        assert len(tokens) - len(path) in ((1,) if each.finish is None else (0, 1))
        last = nodes[-1] if nodes else -1
        waiting = any(node.parent == last for node in each.nodes)
        origin = "plain" if not each.nodes else "recovered" if waiting else "bonus"
        assert [t.origin for t in each.emitted] == ["accepted"] * len(path) + [origin] * (
            len(tokens) - len(path)
        )
        said += tokens
        position += len(tokens)
    assert said == ids
    assert trace.text == TOKENIZER.decode(ids)


def test_it_changes_nothing(case) -> None:
    draft, params, how, _, ids = case
    done = generator(draft, how).generate([PROMPT], params)[0]
    assert done.token_ids == ids


def test_its_counts_are_the_run_s_own(case) -> None:
    _, _, _, trace, _ = case
    stats, end = trace.stats, trace.end["stats"]
    for name in ("rounds", "drafted", "accepted", "alpha", "alpha_at", "draft_s", "target_s"):
        assert getattr(stats, name) == end[name]


def test_its_uniforms_are_those_of_seed_and_position(case) -> None:
    *_, trace, _ = case
    for each in trace.rounds:
        seed, count = trace.header["seed"], len(each.nodes)
        known = uniforms([seed], [each.position], ACCEPT, range(count))[0].tolist()
        if each.rule in ("rejection", "block", "candidates", "kseq"):
            assert [node.u for node in each.nodes] == known
        else:
            assert all(node.u is None for node in each.nodes)


def test_each_p_is_the_target_s_behind_its_prefix(case) -> None:
    _, params, _, trace, ids = case
    if params.adjusts:
        return
    model, whole = HashLM(VOCAB, sharpness=3.0), [*PROMPT, *ids]

    def law(prefix: Sequence[int]) -> torch.Tensor:
        cache = model.new_cache(1, len(prefix))
        logits = model.forward(torch.tensor([list(prefix)]), [0], cache).logits[0, -1]
        return (logits / (params.temperature or 1.0)).softmax(-1)

    for each in trace.rounds[:8]:
        prefix = whole[: each.position]
        for node in each.nodes:
            above = ancestry([n.parent for n in each.nodes], node.parent)
            p = law([*prefix, *(each.nodes[i].id for i in above)])[node.id]
            assert node.p == pytest.approx(float(p), rel=1e-4)
        for i, token in enumerate(each.emitted):
            p = law([*prefix, *(t.id for t in each.emitted[:i])])[token.id]
            assert token.p == pytest.approx(float(p), rel=1e-4)


def test_margins_agree_with_the_decisions(case) -> None:
    """Each rule as the words of `paceline.text.decisions` have it."""
    draft, _, how, trace, _ = case
    for each in trace.rounds:
        accepted, refused = path_of(each), each.rejected
        if each.rule == "rejection":
            for node in each.nodes:
                assert node.need == pytest.approx(min(1, node.p / (how.lenience * node.q)))
        if each.rule in ("rejection", "candidates", "kseq"):
            assert all(node.u < node.need for node in accepted)
            assert all(node.u >= node.need for node in refused)
        if each.rule == "block" and each.finish is None:
            kept = [i for i, node in enumerate(each.nodes, 1) if node.u < node.need]
            assert max(kept, default=0) == each.accepted
        if each.rule in ("greedy", "coupled") and how.lenience == 1:
            assert all(node.id == node.said for node in accepted)
            assert all(node.id != node.said for node in refused)
            assert {node.said for node in refused} <= {each.emitted[-1].id, *map(_id, accepted)}
        if each.rule == "greedy":
            slack = -math.log(how.lenience) + 1e-6
            assert all(-1e-6 <= node.gap <= slack for node in accepted)
            assert all(node.gap >= slack - 2e-6 for node in refused)
        if each.rule == "typical":
            assert all(node.p > node.need for node in accepted)
            assert all(node.p <= node.need for node in refused)
    if draft != "none":
        assert any(each.rejected for each in trace.rounds)
    if draft not in ("none", "lookup"):  # the target repeats nothing
        assert trace.stats.accepted


def _id(node: Node) -> int:
    return node.id


def test_unused_tokens_stand_behind_refused_or_beside_accepted_ones(case) -> None:
    *_, trace, _ = case
    for each in trace.rounds:
        if each.finish is not None:
            continue
        parents = [node.parent for node in each.nodes]
        for i, node in enumerate(each.nodes):
            if node.state != "unused" or each.rule == "typical":
                continue
            above = node.parent >= 0 and each.nodes[node.parent].state != "accepted"
            assert above or any(n.state == "accepted" for n in each.nodes if n.parent == parents[i])
        assert each.drafted <= 1 + max(depths(parents), default=-1)


def test_an_adaptive_window_says_why() -> None:
    """What was weighed; a seed: nothing. Behind a rate that plain decoding beats nothing is
    drafted, but to try."""
    book = CostBook({1: [1.0 + 0.6 * n for n in range(9)]}, {1: [0.01, 0.5]})
    controller = Adaptive(4, book)

    def drafter(batch: int, length: int) -> Drafter:
        lookup = Paced(Lookup(2), controller.pace(0), 0)
        model = ModelDrafter(near(batch, length), pace=controller.pace(1, 0.0))
        return FirstOf(lookup, Paced(model, controller.pace(1), 1))

    source = generator("model", Verifying(), controller)
    source.parts = replace(source.parts, make_drafter=lambda b, n, target: drafter(b, n))
    rounds = [piece.seen for piece in source.stream(PROMPT, GREEDY, rounds=True)]
    assert all(seen.choice.decided for seen in rounds if seen.base < len(PROMPT) + 59)
    for seen in rounds:
        choice, n = seen.choice, seen.round.draft.lengths[0]
        best = max((rate for rate, window in choice.offers.values() if window), default=0.0)
        if n and choice.tried is None:
            assert best > choice.plain > 0
        if choice.tried is not None and n:
            assert n == 1
    assert {seen.choice.tried for seen in rounds} - {None}
    hot = next(source.stream(PROMPT, HOT, rounds=True)).seen
    assert not hot.choice.decided


@pytest.fixture
def good(tmp_path) -> Path:
    path = tmp_path / "good.jsonl"
    record(path, generator("model", Verifying()), HOT, Verifying())
    return path


def test_what_is_read_is_what_was_written(good) -> None:
    lines = good.read_text(encoding="utf-8").splitlines(keepends=True)
    assert [line(each.to_dict()) for each in read(str(good)).rounds] == lines[1:-1]


def test_a_torn_last_line_is_left_out_with_a_note(good) -> None:
    whole = good.read_bytes()
    good.write_bytes(whole[:-20])
    trace = read(str(good))
    assert trace.end is None
    assert trace.notes == ["the last line was torn and is left out", "the run was cut short"]
    good.write_bytes(whole[:-1])  # only the end of the line is missing
    assert read(str(good)).notes == []


def test_numbers_that_are_none_become_null_and_come_back(good) -> None:
    first = read(str(good)).rounds[0]
    node = replace(first.nodes[0], p=math.nan, need=math.inf)
    there = json.loads(line(replace(first, nodes=[node], drafted=1, accepted=0).to_dict()))
    assert (there["nodes"][0]["p"], there["nodes"][0]["need"]) == (None, None)
    back = RoundTrace.from_dict(there).nodes[0]
    assert math.isnan(back.p)
    assert back.need is None


BAD = [
    b"", b"\n", b"{}\n", b"[1]\n", b"no\n", b"\xff\xfe\n", b'{"kind": "round"}\n',
    b'{"kind": "trace"}\n', b'{"kind": "trace", "format": 99}\n', b'{"kind": "trace", "fo',
    b"[" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("content", BAD, ids=range(len(BAD)))
def test_what_is_no_trace_is_refused_in_one_line(tmp_path, content) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(PacelineError, match=r"no trace|of format") as caught:
        read(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(RoundTrace.__dataclass_fields__))
def test_a_round_with_a_broken_field_is_refused_with_its_line(good, name) -> None:
    lines = good.read_text(encoding="utf-8").splitlines()
    made = json.loads(lines[1])
    for broken in (object, {"x": 1}, [[1]], [{"id": "a"}], "x"):
        made[name] = broken
        if broken is object:
            del made[name]
        good.write_text("\n".join([lines[0], json.dumps(made), *lines[2:]]), encoding="utf-8")
        with pytest.raises(PacelineError, match="line 2, is no round"):
            read(str(good))


def test_a_file_that_cannot_be_written(tmp_path) -> None:
    with pytest.raises(PacelineError, match=r"--trace .* cannot be written"):
        record(tmp_path / "no" / "t.jsonl", generator("none", Verifying()), GREEDY, Verifying())
