"""Training: the same bits after a stop, a kill or none; what it keeps, refuses and says."""

from __future__ import annotations

import json
import math
from itertools import islice, pairwise

import pytest
import torch

from distill.makers import CPU, Linear, answers, target, teacher
from paceline.distill import checkpoint, scores
from paceline.distill.features import Features
from paceline.distill.plan import Plan
from paceline.distill.train import CHECKPOINT, LOG, Stopped, Training
from paceline.distill.trainee import Batch, Step
from paceline.errors import PacelineError
from tiny import write_llama

VOCAB = 200
PLAN = Plan(tokens=600, lr=1e-2, batch=60, seed=1, every=1e9, evaluations=6, patience=99)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    folder = write_llama(tmp_path_factory.mktemp("target"), layers=1)
    return target(folder), teacher(folder), answers(30, VOCAB), answers(6, VOCAB, seed=9)


@pytest.fixture
def training(parts, tmp_path):
    model, source, train, held = parts

    def make(folder="run", plan=PLAN, trainee=None, **changes):
        (tmp_path / folder).mkdir(exist_ok=True)
        trainee = trainee or Linear(source, VOCAB)
        features = Features(model, trainee.needs, VOCAB, CPU)
        return Training(trainee, features, train, held, plan, tmp_path / folder, **changes)

    return make


def result(run: Training) -> tuple[bytes, bytes, list]:
    line = run.run()
    timeless = [{k: v for k, v in entry.items() if k != "seconds"} for entry in run.log]
    assert line in run.log
    weights = run.trainee.state()
    return weights["weight"].numpy().tobytes(), weights["offset"].numpy().tobytes(), timeless


class Killed(BaseException):
    pass


def killed_at(step: int):
    """A progress callback that dies in the middle of a run, as a process would."""
    count = iter(range(1, 10**9))

    def progress(done: int, total: int, what: str) -> None:
        if what == "training" and next(count) == step:
            raise Killed

    return progress


class TestContinuing:
    def test_stopped_twice_and_continued_is_bit_for_bit_the_same(self, training):
        whole = training("whole")
        wanted = result(whole)
        assert whole.step >= 15
        for after in (4, 9):
            checks = iter(range(10**9))
            part = training("parts", stopped=lambda c=checks, n=after: next(c) > n)
            with pytest.raises(Stopped):
                part.run()
            assert 0 < part.step < whole.step
        assert result(training("parts")) == wanted

    def test_killed_at_any_step_loses_no_more_than_one_interval(self, training):
        wanted = result(training("whole"))
        for step in (1, 7, 12):
            name = f"killed {step}"
            every = Plan(**{**PLAN.__dict__, "every": 0.0})
            with pytest.raises(Killed):
                training(name, every, progress=killed_at(step)).run()
            again = training(name, every)
            again._resume()
            assert again.step == step - 1  # with a checkpoint a step, the step in hand is lost
            assert result(training(name, every)) == wanted

    def test_a_run_that_is_over_is_not_trained_further(self, training):
        wanted = result(training())
        assert result(training()) == wanted

    def test_another_seed_or_order_gives_other_weights(self, training):
        other = Plan(**{**PLAN.__dict__, "seed": 2})
        assert result(training())[0] != result(training("other", other))[0]

    def test_a_trainee_of_other_settings_is_refused_by_their_name(self, training, parts):
        training().run()
        other = Linear(parts[1], VOCAB)
        other.settings = {"size": 64}
        with pytest.raises(PacelineError, match="holds a run with size 32, not 64: choose another"):
            training(trainee=other).run()

    def test_a_damaged_checkpoint_is_refused(self, training, tmp_path):
        training().run()
        path = tmp_path / "run" / CHECKPOINT
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(PacelineError, match=r"checkpoint\.pt is damaged .* another --out"):
            training().run()

    def test_a_write_that_fails_leaves_what_was_there(self, tmp_path):
        path = tmp_path / "x"
        checkpoint.save(path, {"a": torch.ones(2)})

        def fails(file):
            file.write_bytes(b"half")
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            checkpoint.write_whole(path, fails)
        assert checkpoint.load(path)["a"].tolist() == [1, 1]


class TestLearning:
    def test_the_loss_falls_and_the_best_weights_are_kept(self, training, tmp_path):
        run = training()
        line = run.run()
        losses = [entry["held_out_loss"] for entry in run.log]
        assert min(losses) < 0.9 * losses[0]
        assert line["tau"] == max(entry["tau"] for entry in run.log)
        found = scores.evaluate(run.trainee, run._held_out())
        assert found.to_dict() == {k: line[k] for k in found.to_dict()}  # the trainee has them
        logged = [json.loads(text) for text in (tmp_path / "run" / LOG).read_text().splitlines()]
        assert logged == run.log
        assert [entry["tokens"] for entry in logged] == sorted(e["tokens"] for e in logged)
        assert logged[0]["step"] == 0
        assert logged[-1]["tokens"] == run.trained >= 600

    def test_the_average_is_kept_where_it_is_better(self, training):
        jumpy = Plan(**{**PLAN.__dict__, "lr": 0.3})
        run = training(plan=jumpy)
        run.run()
        assert any(line["weights"] == "average" for line in run.log)

    def test_it_ends_early_when_nothing_gets_better(self, training):
        still = Plan(**{**PLAN.__dict__, "lr": 1e-12, "patience": 2})
        run = training(plan=still)
        run.run()
        assert run.share < 1
        assert len(run.log) < 6

    def test_by_time_it_ends_in_time(self, training):
        run = training(plan=Plan(seconds=1.0, batch=60))
        run.run()
        assert run.share == 1
        assert run.log[-1]["step"] == run.step  # what it ended with was measured

    def test_a_nan_is_named_with_its_step_and_lines(self, training, parts):
        run = training(trainee=Linear(parts[1], VOCAB, nan_at=5))
        with pytest.raises(PacelineError) as error:
            run.run()
        fifth = next(  # one batch went into the start
            islice(training("other")._batches(), 5, None)
        )[1]
        lines = ", ".join(map(str, fifth.lines))
        message = f"the loss of step 5 is not a number; its batch is lines {lines} of"
        assert message in str(error.value)
        assert "\n" not in str(error.value)

    def test_every_evaluation_is_a_line(self, training):
        said: list[str] = []
        run = training(note=said.append)
        run.run()
        assert said[0].startswith("reading the answers once")
        assert len(said[1:]) == len(run.log)
        assert all("α by position" in line and "τ" in line for line in said[1:])


def test_the_rate_warms_up_and_falls_to_a_tenth():
    plan = Plan(tokens=1, lr=2.0, warmup=0.1)
    rates = [plan.rate(i / 1000) for i in range(1001)]
    assert rates.index(max(rates)) == 100
    assert max(rates) == pytest.approx(2.0)
    assert 0 < rates[0] < 0.1
    assert rates[-1] == pytest.approx(0.2)
    assert all(a > b for a, b in pairwise(rates[100:]))


class Scripted:
    """Agrees as a table says."""

    def __init__(self, agree: list[list[int]]) -> None:
        self.agree = agree

    def loss(self, batch: Batch, steps: int) -> Step:
        agree = [torch.tensor([row]).bool() for row in self.agree]
        return Step(torch.tensor(2.0), agree)


def test_acceptance_by_position_is_conditional_and_tau_is_its_product():
    batch = Batch(torch.zeros(1, 9, dtype=torch.int64), [9], [2], [1], None, None)  # type: ignore[arg-type]
    # seven anchors 0..6; step j counts the first 7 - j of them
    table = [
        [1, 1, 1, 1, 0, 0, 1, 1, 1],
        [1, 0, 1, 1, 1, 1, 1, 1, 1],
        [0, 1, 1, 0, 1, 1, 1, 1, 1],
        [1, 1, 1, 1, 1, 1, 1, 1, 1],
    ]
    found = scores.evaluate(Scripted(table), [batch])  # type: ignore[arg-type]
    assert found.alpha_at == [5 / 7, 3 / 4, 1 / 3, 1.0]
    assert found.agree_at == [5 / 7, 5 / 6, 3 / 5, 1.0]
    reach = [math.prod(found.alpha_at[: j + 1]) for j in range(4)]
    assert found.tau == pytest.approx(1 + sum(reach))
    assert (found.loss, found.anchors, found.overlap_at) == (2.0, 7, [])
