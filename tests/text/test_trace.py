"""What a trace says of a round agrees with what the round did, whatever drafted and verified."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from traced import CASES, GREEDY, HOT, IDS, PROMPT, TOKENIZER, VOCAB, generator, near, record

from fakes import HashLM
from paceline.controllers.adaptive import Adaptive
from paceline.controllers.cost import CostBook
from paceline.core.noise import ACCEPT, uniforms
from paceline.core.protocols import Drafter
from paceline.core.tree import ancestry, depths
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.paced import Paced
from paceline.text.decisions import Verifying
from paceline.text.trace import Node, RoundTrace


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
