"""A sick drafter changes no output, it only slows: so its health is tested by itself."""

from __future__ import annotations

import pytest
import torch

from checks import health
from fakes import Accepts, HashLM, Windows, model_drafter, oracle, run, sequences
from naive import fresh_logits, fresh_pass, probabilities
from paceline.core.params import SamplingParams


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("k", [1, 4, 8])
def test_a_perfect_drafter_is_always_accepted(temperature: float, k: int) -> None:
    model = HashLM(20, seed=5)
    params = SamplingParams(max_tokens=200, temperature=temperature, seed=3)
    done = run(model, [[1, 2, 3]], params, lambda s: oracle(model, s), k)
    assert len(done.ids[0]) == 200
    assert all(row.accepted == row.drafted for row in done.emitted[0])
    assert len(done.rounds) == -(-200 // (k + 1))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_also_beside_another_drafter_with_other_windows_and_in_used_slots(temperature) -> None:
    health.perfect_drafter_is_accepted(temperature)


def test_a_perfect_drafter_with_the_same_shaping_is_accepted() -> None:
    """q is truncated as p is: what the target cannot say is not drafted."""
    model = HashLM(20, seed=5, sharpness=0.7)
    params = SamplingParams(max_tokens=100, temperature=1.2, top_k=6, top_p=0.8, min_p=0.1, seed=3)
    done = run(model, [[1, 2, 3], [4]], params, lambda s: oracle(model, s), 4)
    assert all(row.accepted == row.drafted for rows in done.emitted for row in rows)


@pytest.mark.parametrize(
    "counts", [(0,), (1,), (3,), (4,), (0, 4, 1, 3, 4, 2, 0)], ids=lambda counts: f"{counts}"
)
def test_the_draft_cache_after_every_number_of_accepts(counts) -> None:
    health.draft_cache_is_true(counts, seed=len(counts))


@pytest.mark.parametrize("accepted", [0, 1, 3, 4])
def test_drafts_stay_as_good_as_fresh_ones(accepted: int) -> None:
    """Greedy drafts too: each is what an uncached pass would have drafted."""
    model, drafting = HashLM(6, seed=1), HashLM(6, seed=2)
    seqs = sequences([[1, 2, 3], [4] * 7], SamplingParams(max_tokens=60))
    loop = health.Loop(
        health.CachedModel(model, 2, 256),
        model_drafter(drafting)(seqs),
        Accepts(accepted),
        Windows(4),
    )
    for _ in range(8):
        before = [seqs.committed(b).tolist() for b in range(2)]
        draft = loop.step(seqs).draft
        for b, ids in enumerate(before):
            n = draft.lengths[b]
            right = fresh_pass(drafting, ids + draft.tokens[b, : n - 1].tolist())
            assert draft.tokens[b, :n].tolist() == right[-n:].argmax(-1).tolist()


@pytest.mark.parametrize("temperature", [None, 0.5, 1.0])
def test_q_is_the_very_distribution_that_the_token_was_drawn_from(temperature) -> None:
    """Over many seeds the drafted tokens follow the q that came with them, at any temperature."""
    model = HashLM(5, seed=1, sharpness=1.0)
    asked = {"temperature": 0.8, "top_k": 4}
    n = 4000
    params = [SamplingParams(seed=seed, **asked) for seed in range(n)]
    seqs = sequences([[1, 2]] * n, params, length=8)
    draft = model_drafter(model, temperature)(seqs).propose(seqs, [1] * n)
    shaped = SamplingParams(**{**asked, "temperature": temperature or 0.8})
    right = torch.tensor(probabilities(fresh_logits(model, [1, 2]), shaped))
    assert float((draft.q[:, 0] - right).abs().max()) < 1e-6
    seen = torch.bincount(draft.tokens[:, 0], minlength=5) / n
    assert float((seen - right).abs().max()) < 0.02


def test_lookup_copies_what_followed() -> None:
    health.lookup_copies_what_followed()


def test_merged_drafts_keep_their_q() -> None:
    health.merged_drafts_keep_their_q()
