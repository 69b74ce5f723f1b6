"""What every controller promises. A new one joins by a line in `CONTROLLERS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter

import pytest
from pacing import paced_drafter

from fakes import HashLM, model_drafter, sequences
from naive import decode
from paceline.controllers.adaedl import AdaEDL
from paceline.controllers.adaptive import Adaptive
from paceline.controllers.confidence import Confidence
from paceline.controllers.cost import CostBook
from paceline.controllers.fixed import Fixed
from paceline.controllers.heuristic import Heuristic
from paceline.controllers.svip import SVIP
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.protocols import Controller
from paceline.verifiers.rejection import Rejection

TIMED = CostBook({3: [0.01 + 0.001 * n for n in range(9)]}, {3: [0.1]})

CONTROLLERS: dict[str, Callable[[int], Controller]] = {  # made from the largest K
    "adaptive": partial(Adaptive, book=TIMED),
    "fixed": Fixed,
    "heuristic": Heuristic,
    "confidence": partial(Confidence, threshold=0.6),
    "confidence:auto": partial(Confidence, tuned=True),
    "adaedl": partial(AdaEDL, bound=0.7),
    "svip": partial(SVIP, h=0.7),
}


@pytest.mark.parametrize("name", CONTROLLERS)
@pytest.mark.parametrize("k", [0, 1, 4, 8])
def test_windows_fit_the_rows_and_the_output_is_the_targets(name: str, k: int) -> None:
    model = HashLM(6, seed=1)
    prompts = [[1], [2] * 5, [3, 4]]
    params = [SamplingParams(max_tokens=n) for n in (12, 3, 20)]
    seqs = sequences(prompts, params, length=64)
    controller = CONTROLLERS[name](k)
    near = paced_drafter(HashLM(6, seed=1, jitter=0.3), controller)(seqs)
    loop = Loop(CachedModel(model, 3, 64), near, Rejection(), controller)
    while any(seqs.running):
        windows = controller.window(seqs)
        assert len(windows) == 3
        for b, window in enumerate(windows):
            left = seqs.limits[b] - seqs.lengths[b]
            assert 0 <= window <= k
            assert window == 0 or (seqs.running[b] and window < left)  # room for its own token too
        loop.step(seqs)
    for b, ids in enumerate(prompts):
        assert seqs.committed(b)[len(ids) :].tolist() == decode(model, ids, params[b])[0]


def test_fixed_is_fixed_but_for_the_room_that_is_left() -> None:
    seqs = sequences([[1], [1], [1], [1]], [SamplingParams(max_tokens=n) for n in (50, 5, 4, 1)])
    assert list(Fixed(4).window(seqs)) == [4, 4, 3, 0]
    seqs.finish(0)
    assert list(Fixed(2).window(seqs)) == [0, 2, 2, 0]
    assert list(Fixed(0).window(seqs)) == [0, 0, 0, 0]


def test_a_controller_sees_every_round_as_it_was() -> None:
    seqs = sequences([[1, 2], [3]], SamplingParams(max_tokens=6), length=64)
    seen = []

    class Watching(Fixed):
        def observe(self, round):
            seen.append(round)

    drafter = model_drafter(HashLM(6, seed=2))(seqs)
    loop = Loop(CachedModel(HashLM(6, seed=1), 2, 64), drafter, Rejection(), Watching(3))
    began, rounds = perf_counter(), []
    while any(seqs.running):
        rounds.append(loop.step(seqs))
    wall = perf_counter() - began
    assert seen == rounds
    parts = [t for r in rounds for t in (r.seconds.draft, r.seconds.target, r.seconds.overhead)]
    assert min(parts) > 0
    assert sum(parts) <= wall
    for b, given in enumerate((2, 1)):
        tokens = [t for r in rounds if (row := r.emitted[b]) for t in row.tokens]
        assert tokens == seqs.committed(b)[given:].tolist()
