"""What coupled verification promises: one output, whoever drafts."""

from __future__ import annotations

import torch

from fakes import HashLM, Result, drive, liars, model_drafter, oracle, sequences
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.noise import race
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.drafters.lookup import Lookup
from paceline.drafters.none import NoDraft
from paceline.verifiers.coupled import Coupled

MODEL = HashLM(6, seed=2)
PROMPTS = [[1, 2, 3], [5] * 7, [2, 4] * 4, [1, 2, 3]]
PARAMS = [
    SamplingParams(max_tokens=20, temperature=1.5, seed=7),
    SamplingParams(max_tokens=9, temperature=0.8, top_k=4, seed=8),
    SamplingParams(max_tokens=17),
    SamplingParams(max_tokens=20, temperature=1.5, seed=9, frequency_penalty=0.5),
]


def coupled_run(
    prompts, params, make=None, k: int = 4, coupled: bool = True, model=MODEL
) -> Result:
    seqs = sequences(prompts, params)
    seqs.coupled = coupled
    drafter = make(seqs) if make else NoDraft()
    target = CachedModel(model, seqs.batch, 256)
    return drive(Loop(target, drafter, Coupled(), Fixed(k)), seqs)


def drafters(truths: list[list[int]]) -> dict:
    """Makers of drafters: perfect, bad, of a model, of a narrower one, and mixed."""
    return {
        "perfect": lambda seqs: oracle(MODEL, seqs),
        "bad": lambda seqs: liars(truths, 0, 6),
        "good now and then": lambda seqs: liars(truths, 2, 6),
        "model": model_drafter(HashLM(6, 2, jitter=0.5)),
        "narrow": model_drafter(HashLM(6, 2, jitter=0.5), vocab=4),
        "greedy": model_drafter(HashLM(6, 2, jitter=0.5), 0.0),
        "lookup": lambda seqs: FirstOf(Lookup(2), oracle(HashLM(6, 3), seqs)),
    }


def output_is_the_same_whoever_drafts(windows=(3,)) -> None:
    """As plain decoding has it: for every drafter, drawing by the same races or not, and alone."""
    plain = coupled_run(PROMPTS, PARAMS, k=0).ids
    truths = [ids + new for ids, new in zip(PROMPTS, plain, strict=True)]
    for make in drafters(truths).values():
        for k in windows:
            for coupled in (False, True):
                assert coupled_run(PROMPTS, PARAMS, make, k, coupled).ids == plain
    for ids, params, new in zip(PROMPTS, PARAMS, plain, strict=True):
        assert coupled_run([ids], [params], drafters(truths)["model"], 3).ids == [new]
        assert coupled_run([ids], [params], k=0).ids == [new]


def perfect_drafters_are_accepted() -> None:
    """The target's own weights, drawn from by the same races: nothing is refused."""
    done = coupled_run(PROMPTS, [*PARAMS[:3], PARAMS[0]], lambda seqs: oracle(MODEL, seqs))
    assert all(row.accepted == row.drafted for rows in done.emitted for row in rows[:-1])


def positions_are_independent(n: int = 2000) -> None:
    """Tokens drawn side by side from one law are equal as often as independent ones."""
    weights = torch.tensor([0.5, 0.25, 0.25]).expand(n, 3)
    here, next_one = (race(weights, range(n), [at] * n) for at in (4, 5))
    other = race(weights, range(1, n + 1), [4] * n)
    equal = 0.5**2 + 2 * 0.25**2
    for tokens in (next_one, other):
        share = float((here == tokens).double().mean())
        assert abs(share - equal) < 4 * (equal * (1 - equal) / n) ** 0.5


def names_decide_not_places(n: int = 200) -> None:
    """A token is the same runner wherever it stands, and whichever others there are."""
    weights = torch.rand(n, 7, generator=torch.Generator().manual_seed(0))
    seeds, at = range(n), range(n)
    ids = torch.tensor([5, 0, 3, 6, 1, 4, 2])
    whole = race(weights, seeds, at)
    assert torch.equal(ids[race(weights[:, ids], seeds, at, ids)], whole)
    few = weights.clone()
    few[:, [1, 4]] = 0
    some = torch.tensor([6, 3, 2, 0, 5])
    assert torch.equal(some[race(few[:, some], seeds, at, some)], race(few, seeds, at))
    kept = (whole != 1) & (whole != 4)  # who wins among all wins among fewer
    assert torch.equal(race(few, seeds, at)[kept], whole[kept])
