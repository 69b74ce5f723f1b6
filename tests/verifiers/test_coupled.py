"""Coupled verification: the law of a race, one output whoever drafts, and how often drafts pass."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from checks import races
from exact import chi_square
from fakes import HashLM, model_drafter
from naive import joint_law
from paceline.core.noise import DRAFT, Noise, draw, race, uniforms
from paceline.core.params import SamplingParams
from paceline.core.target import Target
from paceline.core.types import Draft
from paceline.verifiers.coupled import Coupled


@pytest.mark.parametrize("over", ["seeds", "positions"])
def test_a_race_follows_its_weights(over: str) -> None:
    n, weights = 6000, torch.tensor([0.0, 3.0, 0.02, 0.0, 1.0, 1.98, 2.0])
    seeds, at = (range(n), [3] * n) if over == "seeds" else ([11] * n, range(n))
    counts = torch.bincount(race(weights.expand(n, 7), seeds, at), minlength=7).tolist()
    assert (counts[0], counts[3]) == (0, 0)
    expected = [n * w / 8 for w in weights.tolist() if w]
    statistic, edge = chi_square([c for c in counts if c], expected)
    assert statistic < edge


def test_a_race_over_many_is_the_first_arrival() -> None:
    """Against the definition, token by token: argmin -log(1 - u) / weight."""
    make = torch.Generator().manual_seed(1)
    weights = torch.rand(20, 3000, generator=make) ** 8
    alone = torch.eye(3000)[:3000]
    assert race(alone[:5], range(5), [1] * 5).tolist() == [0, 1, 2, 3, 4]
    halves = weights.clone()
    halves[:, ::2] = 0
    other = weights - halves
    a, b, both = (race(w, range(20), [1] * 20) for w in (halves, other, weights))
    assert bool(((both == a) | (both == b)).all())
    assert 2 < int((both == a).sum()) < 18
    assert torch.equal(race(weights * 1e-30, range(20), [1] * 20), both)


def test_no_race_without_a_distribution() -> None:
    weights = torch.tensor([[0.0, 0.0], [0.5, torch.nan], [torch.inf, 1.0], [0.0, 1e-40]])
    assert race(weights, range(4), [0] * 4).tolist() == [-1, -1, -1, 1]
    assert race(weights[:0], [], []).tolist() == []


def test_positions_are_independent() -> None:
    races.positions_are_independent()


def test_names_decide_not_places() -> None:
    races.names_decide_not_places()


def test_output_is_the_same_whoever_drafts() -> None:
    races.output_is_the_same_whoever_drafts((1, 4))


def test_output_is_the_same_for_every_window() -> None:
    plain = races.coupled_run(races.PROMPTS, races.PARAMS, k=0).ids
    make = model_drafter(HashLM(6, 2, jitter=0.3))
    for k in range(1, 9):
        assert races.coupled_run(races.PROMPTS, races.PARAMS, make, k).ids == plain


def test_a_perfect_drafter_is_accepted() -> None:
    races.perfect_drafters_are_accepted()


def test_joint_law_of_three_tokens() -> None:
    model, prompt, n = HashLM(4, 1, sharpness=1.0), [1, 2, 1], 1000
    each = [SamplingParams(temperature=0.9, max_tokens=3, seed=seed) for seed in range(n)]
    make = model_drafter(HashLM(4, 1, jitter=0.6))
    done = races.coupled_run([prompt] * n, each, make, 2, model=model)
    seen = Counter(map(tuple, done.ids))
    right = dict(joint_law(model, prompt, each[0], 3))
    statistic, edge = chi_square([seen[t] for t in right], [n * share for share in right.values()])
    assert statistic < edge


def test_coupled_drafts_pass_far_more_often_than_independent_ones() -> None:
    """At least with (1 - TV) / (1 + TV), where independent draws agree with Σ p q."""
    n = 2000
    make = torch.Generator().manual_seed(3)
    p, noise = torch.randn(30, generator=make), torch.randn(30, generator=make)
    p, q = p.softmax(-1), (p + 0.4 * noise).softmax(-1)
    seeds, at = range(n), [5] * n
    target = Target(None, torch.zeros(n, 2).long(), range(n), p.expand(n, 2, 30))
    u = uniforms(seeds, at, DRAFT, range(1))[:, 0]
    found = []
    for x in (race(q.expand(n, 30), seeds, at), draw(q.expand(n, 30), u)):
        draft = Draft(x[:, None], [1] * n, q.expand(n, 1, 30))
        accepted = Coupled().verify(target, draft, Noise.at(seeds, at, 1)).accepted
        found.append(float(accepted.double().mean()))
    distance = 1 - float(torch.minimum(p, q).sum())
    assert found[0] > (1 - distance) / (1 + distance) - 4 * 0.5 / n**0.5
    assert abs(found[1] - float((p * q).sum())) < 4 * 0.5 / n**0.5
    assert found[0] > 4 * found[1]


def test_a_tree_is_followed_as_far_as_the_target_goes() -> None:
    """Sampled and greedy rows, against draws at each position."""
    make = torch.Generator().manual_seed(4)
    parents = torch.tensor([[-1, -1, 0, 0, 1, 1, 2, 4]] * 40)
    tokens = torch.tensor([[0, 1, 0, 1, 0, 1, 0, 1]] * 40)
    logits = torch.randn(40, 9, 3, generator=make)
    dense = logits.softmax(-1)
    sampled = range(0, 40, 2)
    target = Target(logits, logits.argmax(-1), sampled, dense[0::2])
    draft = Draft(tokens, [8] * 40, parents=parents)
    verdict = Coupled().verify(target, draft, Noise.at(range(40), range(40), 8))
    for b in range(40):
        node, path, said = -1, [], []
        while True:
            token = int(logits[b, node + 1].argmax())
            if b in sampled:
                token = int(race(dense[b, node + 1][None], [b], [b + len(path)]))
            said.append(token)
            below = [c for c in range(8) if parents[b, c] == node and tokens[b, c] == token]
            if not below:
                break
            node = below[0]
            path.append(node)
        n = int(verdict.accepted[b])
        assert (n, verdict.path[b, :n].tolist()) == (len(path), path)
        assert verdict.path[b, n:].tolist() == [-1] * (8 - n)
        assert verdict.tokens[b, : n + 1].tolist() == said
    assert set(verdict.accepted.tolist()) == {0, 1, 2, 3}
