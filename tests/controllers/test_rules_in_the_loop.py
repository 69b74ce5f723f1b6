"""What the rules that end drafts promise while they draft: the law stays p, a token that was drawn
stays, requests stand alone, and lookups are none of their business."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from pacing import paced_drafter
from torch import Tensor

from exact import loop_law
from fakes import HashLM, TableModel, drive, model_drafter, run, sequences
from naive import fresh_pass
from paceline.controllers.adaedl import AdaEDL
from paceline.controllers.confidence import Confidence
from paceline.controllers.rules import Ruled
from paceline.controllers.svip import SVIP
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.model import ModelDrafter
from paceline.drafters.paced import Paced
from paceline.verifiers.rejection import Rejection

RULES: dict[str, Callable[[int], Ruled]] = {
    "confidence": lambda k: Confidence(k, 0.6),
    "confidence:auto": lambda k: Confidence(k, 0.6, tuned=True),
    "adaedl": lambda k: AdaEDL(k, bound=0.65),
    "svip": lambda k: SVIP(k, 0.7),
}


@pytest.mark.parametrize("name", RULES)
def test_the_law_stays_exactly_p(name: str) -> None:
    """Two tokens behind the prompt, enumerated. The drafter is certain behind tokens 1 and 2, torn
    behind token 0 (largest probability 1/2, H = ln 2, a bound of 0.628), so a draft is of one token
    or two, by what it is drawn behind and, for AdaEDL, by what is drawn first."""
    p = [[0.25, 0.25, 0.5], [0.25, 0.5, 0.25], [0.5, 0.0, 0.5]]
    q = [[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    target, draft = (TableModel(torch.tensor(t).log().tolist(), by="token") for t in (p, q))
    controller, lengths = RULES[name](2), set[int]()
    observe = controller.observe

    def watch(round):
        lengths.update(round.draft.lengths)
        observe(round)

    controller.observe = watch
    params = SamplingParams(temperature=1)
    drafter = paced_drafter(draft, controller)
    law = loop_law(target, drafter, params, 2, (2, 2, 4), tokens=2, controller=controller)
    right = torch.tensor(p)[0][:, None] * torch.tensor(p)
    assert float((law - right).abs().max()) <= 1e-9
    assert {1, 2} <= lengths  # 0: of rows that have ended


def behind(doubtful: list[bool]) -> int:
    """Up to the first doubtful token and with it."""
    return ([*doubtful, True].index(True) + 1) if any(doubtful) else len(doubtful)


def before(doubtful: list[bool]) -> int:
    """Up to the first doubtful token and without it, but at least one."""
    return [False, *doubtful[1:], True].index(True)


def entropies(q: Tensor) -> list[float]:
    return [-sum(x * math.log(x) for x in row if x) for row in q.tolist()]


ENDS: dict[str, tuple[Callable[[int], Ruled], Callable[[Tensor], int]]] = {
    "confidence": (
        lambda k: Confidence(k, 0.6),
        lambda q: behind([max(row) < 0.6 for row in q.tolist()]),
    ),
    "adaedl": (
        lambda k: AdaEDL(k, bound=0.6),
        lambda q: before([1 - math.sqrt(0.2 * h) < 0.6 for h in entropies(q)]),
    ),
    "svip": (
        lambda k: SVIP(k, 0.9),
        lambda q: behind([math.sqrt(h) > 0.9 for h in entropies(q)]),
    ),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", ENDS)
def test_a_draft_ends_fairly(name: str, temperature: float) -> None:
    """The draft is the one that never stops, cut at a place that its distributions name, which the
    tokens drawn from them have no part in: so no token is dropped for what it is."""
    make, ends = ENDS[name]
    batch, k, model = 60, 6, HashLM(4, seed=3)
    params = [SamplingParams(temperature=temperature, seed=seed) for seed in range(batch)]
    prompts = [[b % 3, b % 2, b // 6 % 3, 1] for b in range(batch)]
    controller, seqs = make(k), sequences(prompts, params)
    drafter = paced_drafter(model, controller)(seqs)
    cut = drafter.propose(seqs, controller.window(seqs))
    whole = model_drafter(model)(seqs).propose(seqs, [k] * batch)
    assert len({*cut.lengths}) > 3
    for b, n in enumerate(cut.lengths):
        drafted = whole.tokens[b].tolist()
        assert cut.tokens[b, :n].tolist() == drafted[:n]
        logits = fresh_pass(model, prompts[b] + drafted[:-1])[-k:]
        assert n == ends(torch.softmax(logits.double(), -1))
        if temperature:
            assert torch.equal(cut.q[b, :n], whole.q[b, :n])


def state(controller: Ruled, row: int, index: int = 0) -> dict[str, object]:
    """What its rule for the drafter of that number knows of the request in `row`."""
    rule = controller.pace(index)
    return dict(vars((rule.known if isinstance(controller, Confidence) else rule.history)[row]))


ADAPTS = ["confidence:auto", "adaedl"]


@pytest.mark.parametrize("name", ADAPTS)
def test_a_request_is_drafted_for_as_if_it_were_alone(name: str) -> None:
    """Beside others, and in a row that others had before."""
    model, near = HashLM(6, seed=1), HashLM(6, seed=1, jitter=0.4)
    prompts = [[1], [2, 4], [3] * 5]
    params = [SamplingParams(max_tokens=60, temperature=t, seed=7) for t in (0.0, 1.0, 0.0)]

    def alone(b: int):
        controller = RULES[name](6)
        done = run(model, [prompts[b]], [params[b]], paced_drafter(near, controller), controller)
        return done.emitted[0], state(controller, 0)

    controller = RULES[name](6)
    seqs = sequences(prompts, params)
    drafter = paced_drafter(near, controller)(seqs)
    loop = Loop(CachedModel(model, 3, 256), drafter, Rejection(), controller)
    done = drive(loop, seqs)
    for b in range(3):
        assert (done.emitted[b], state(controller, b)) == alone(b)
    assert state(controller, 0) != state(controller, 1)
    seqs.admit(2, prompts[0], params[0])
    done = drive(loop, seqs)
    assert (done.emitted[2], state(controller, 2)) == alone(0)


@pytest.mark.parametrize("name", ADAPTS)
def test_lookups_are_neither_cut_nor_learned_from(name: str) -> None:
    """They say how sure they are in a measure of their own. What the model drafts beside them, and
    that alone, is the rule's."""
    target, near = HashLM(3, seed=1), HashLM(3, seed=1, jitter=0.5)
    controller, lookup = RULES[name](6), Lookup(5, 4)
    paces = [controller.pace(0), controller.pace(1)]
    guesses = ModelDrafter(CachedModel(near, 1, 256), pace=paces[1])
    drafter = FirstOf(Paced(lookup, paces[0], 0), Paced(guesses, paces[1], 1))
    loop = Loop(CachedModel(target, 1, 256), drafter, Rejection(), controller)
    seqs = sequences([[0, 1, 2, 0, 1, 2, 0]], SamplingParams(max_tokens=200))
    windows = controller.window(seqs)
    untaught = state(controller, 0)
    copied = tested = 0
    while any(seqs.running):
        found = lookup.propose(seqs, windows).lengths
        round = loop.step(seqs)
        if round.draft.by == [0]:
            assert round.draft.lengths == found
            copied += found[0]
        else:
            tested += round.emitted[0].tested
        windows = controller.window(seqs)
    assert min(copied, tested) > 20
    assert state(controller, 0) == untaught
    if name == "adaedl":
        assert state(controller, 0, 1) != untaught
    else:
        assert len(state(controller, 0, 1)["sure"]) == tested
