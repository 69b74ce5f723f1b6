"""Batches: what a row holds does not depend on its neighbours, and anchors are what they should."""

from __future__ import annotations

import pytest
import torch

from distill.makers import CPU, answers, target
from paceline import kernels
from paceline.distill.data import LONGEST, Answer
from paceline.distill.features import Features
from paceline.distill.trainee import Batch, Needs, options
from paceline.errors import PacelineError
from paceline.models.load import load
from tiny import write_llama

VOCAB, LAYERS = 200, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_llama(tmp_path_factory.mktemp("target"), layers=LAYERS)


def native(folder, tmp_path_factory):
    if not kernels.available():
        pytest.skip(kernels.why_not())
    return load(folder, "fp16", cache_dir=tmp_path_factory.mktemp("packed"))[0]


@pytest.fixture(scope="module", params=["torch", "native"])
def model(request, folder, tmp_path_factory):
    return target(folder) if request.param == "torch" else native(folder, tmp_path_factory)


def test_a_batch_holds_what_the_model_makes_of_each_row_alone(model):
    needs = Needs(taps=(0, 2, LAYERS), cache=(1, 2))
    rows = answers(5, VOCAB)
    batch = Features(model, needs, VOCAB, CPU).read(rows)
    assert batch.tokens.shape == (5, max(len(row.ids) for row in rows))
    for b, row in enumerate(rows):
        n = len(row.ids)
        assert batch.tokens[b].tolist() == row.ids + [0] * (batch.tokens.shape[1] - n)
        assert (batch.lengths[b], batch.starts[b], batch.lines[b]) == (
            n,
            len(row.prompt_ids),
            b + 1,
        )
        with torch.no_grad():
            tapped = model.tapped(needs.taps)
            cache = tapped.new_cache(1, n)
            out = tapped.forward(torch.tensor([row.ids]), [0], cache)
            alone = out.hidden[0].unflatten(-1, (3, -1))
        torch.testing.assert_close(batch.hidden[b, :n], alone, atol=0, rtol=0)
        for part, kept in enumerate((batch.keys, batch.values)):
            wanted = cache.data[1:3, part, 0, :, :n]
            torch.testing.assert_close(kept[:, b, :, :n], wanted, atol=0, rtol=0)
        assert batch.top[b, :n].tolist() == out.logits[0, :, :VOCAB].argmax(-1).tolist()
        assert batch.hidden.isfinite().all()


def test_anchors_guess_inside_the_answer_and_their_own_token_is_known():
    batch = Batch(torch.zeros(3, 9, dtype=torch.int64), [9, 7, 4], [4, 1, 3], [1, 2, 3], None, None)  # type: ignore[arg-type]
    for step in range(4):
        mask = batch.mask(step)
        for b in range(3):
            for t in range(9):
                place = t + 1 + step  # where the step stands; it guesses what stands behind that
                # the prompt's end is the first place from which an answer's token is guessed
                after_prompt = t + 1 >= batch.starts[b] - 1
                inside = after_prompt and place + 1 <= batch.lengths[b] - 1
                assert bool(mask[b, t]) == inside, (step, b, t)
    assert batch.count == int(batch.mask(0).sum())


def test_anchors_are_counted_without_reading_a_row(folder):
    features = Features(target(folder), Needs(taps=(0,)), VOCAB, CPU)
    rows = [
        *answers(6, VOCAB, seed=3),
        Answer("one token", 0.0, [5], [6]),
        Answer("long", 0.0, [7] * 1000, [8] * 100),
        Answer("prompt alone", 0.0, [7] * (LONGEST + 5), [8] * 10),
    ]
    for row in rows[:-2]:
        assert features.read([row]).count == row.anchors
    assert [row.anchors for row in rows[-3:]] == [0, 24, 0]


def test_a_model_that_cannot_be_tapped_is_refused():
    class Opaque:
        vocab_size = VOCAB

    with pytest.raises(PacelineError, match="states in between cannot be had"):
        Features(Opaque(), Needs(taps=(0,)), VOCAB, CPU)  # type: ignore[arg-type]


def test_options_are_read_as_the_type_of_their_default():
    given = {"blocks": "3", "enter": "24", "frozen": "false", "rate": "0.5"}
    read = options(given, blocks=2, enter="", frozen=True, rate=1.0, rank=0)
    assert read == {"blocks": 3, "enter": "24", "frozen": False, "rate": 0.5, "rank": 0}
    with pytest.raises(PacelineError, match="unknown option on --set 'block'; did you mean 'bloc"):
        options({"block": "3"}, blocks=2)
    with pytest.raises(PacelineError, match="--set blocks=x: blocks must be a whole number"):
        options({"blocks": "x"}, blocks=2)
    with pytest.raises(PacelineError, match="--set f=2: f must be true or false"):
        options({"f": "2"}, f=True)
