"""The greedy part, on tiny models that are loaded as a user's are."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from paceline.check.greedy import check_greedy
from paceline.check.pair import open_pair
from paceline.check.run import Request
from paceline.core.noise import Noise
from paceline.core.target import Target
from paceline.core.types import Draft, Verdict
from paceline.errors import PacelineError
from tiny import write_llama

PROMPTS = ("abcabcabcabc", "Übung 🙂")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    target = write_llama(folder / "target")
    draft = write_llama(folder / "draft", seed=1)
    return open_pair(str(target), f"model:{draft}", dtype="fp32")


class Wrong:
    """Says the token beside the first drafted one."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        n = torch.tensor([min(1, n) for n in draft.lengths])
        tokens = torch.cat([(draft.tokens + 1) % 256, p.top[:, :1]], 1)
        return Verdict(tokens.scatter(1, n[:, None], p.top.gather(1, n[:, None])), n)


def test_a_sound_pair_is_identical(pair) -> None:
    greedy, answers = check_greedy(pair, PROMPTS, 3)
    assert (greedy.identical, greedy.prompts, greedy.divergences) == (2, 2, [])
    assert greedy.ok
    assert greedy.tokens == sum(len(answer.ids) for answer in answers)
    assert greedy.tau >= 1


def test_a_divergence_is_shown_with_both_logits(pair) -> None:
    greedy, answers = check_greedy(replace(pair, verifier=Wrong()), PROMPTS, 3)
    assert not greedy.ok
    first = greedy.divergences[0]
    assert first.plain_logit > first.drafted_logit  # the plain token is the likeliest
    assert first.tolerance == 0
    assert not first.near_tie
    assert 0 <= first.at < len(answers[0].ids)


def test_where_passes_round_a_near_tie_is_none(pair) -> None:
    greedy, _ = check_greedy(replace(pair, verifier=Wrong()), PROMPTS[:1], 3)
    gap = greedy.divergences[0].plain_logit - greedy.divergences[0].drafted_logit
    near = replace(greedy.divergences[0], tolerance=gap * 1.01)
    far = replace(greedy.divergences[0], tolerance=gap * 0.99)
    assert near.near_tie
    assert not far.near_tie


BAD = [
    ({"prompts": 0}, "--prompts must be from 1"),
    ({"prompts": 10_000}, "--prompts must be from 1"),
    ({"contexts": 0}, "--contexts must be at least 1"),
    ({"rounds": 10}, "--rounds must be at least 1000"),
    ({"verify": "blok"}, "did you mean 'block'"),
    ({"lenience": 2.0}, "lenience"),
    ({"lenience": 0.5, "verify": "block"}, "--lenience"),
    ({"k": 0}, "--k must be at least 1"),
    ({"k": 99}, "k must be"),
    ({"draft": "lookup"}, "give --model too"),
]


@pytest.mark.parametrize(("values", "says"), BAD)
def test_what_means_nothing_is_refused(values, says) -> None:
    with pytest.raises(PacelineError, match=says):
        Request(**values)
