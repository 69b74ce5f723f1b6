"""Prompts, answers and their order."""

from __future__ import annotations

import gzip
import json
from collections import Counter

import pytest
from safetensors.torch import load_file, save_file

from distill.makers import answers, target
from paceline.core.params import SamplingParams
from paceline.distill.answers import Sampler
from paceline.distill.data import (
    Answer,
    Order,
    append,
    drop_half_line,
    read_answers,
    split,
)
from paceline.distill.vocab import cut
from paceline.errors import PacelineError
from paceline.text.tokenizer import Tokenizer
from tiny import write_llama

VOCAB = 257
END = 256


class TestAnswers:
    def test_what_is_appended_is_read_also_in_gzip(self, tmp_path):
        made = answers(4, VOCAB)
        for answer in made:
            append(tmp_path / "a.jsonl", answer)
        assert read_answers(tmp_path / "a.jsonl", VOCAB) == made
        packed = tmp_path / "a.jsonl.gz"
        packed.write_bytes(gzip.compress((tmp_path / "a.jsonl").read_bytes()))
        assert read_answers(packed, VOCAB) == made

    @pytest.mark.parametrize("cut_at", [1, 40, 90])
    def test_half_a_line_at_the_end_is_dropped(self, tmp_path, cut_at):
        path, made = tmp_path / "a", answers(3, VOCAB)
        whole = "".join(answer.to_line() for answer in made[:2])
        path.write_text(whole + made[2].to_line()[:cut_at])
        assert read_answers(path, VOCAB) == made[:2]
        drop_half_line(path)
        assert path.read_text() == whole

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"completion_ids": []}, "a:2 is no answer: completion_ids must be a list of token"),
            ({"prompt_ids": [1, "2"]}, "a:2 is no answer: prompt_ids"),
            (
                {"completion_ids": [1, VOCAB]},
                r"a:2: token 257 in completion_ids, but the model has",
            ),
            ({"prompt": None}, "a:2 is no answer: it needs a prompt"),
        ],
    )
    def test_what_is_no_answer_is_refused_with_its_line(self, tmp_path, change, message):
        good = json.loads(answers(1, VOCAB)[0].to_line())
        lines = [good, {**good, **change}, good]
        (tmp_path / "a").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(PacelineError, match=message):
            read_answers(tmp_path / "a", VOCAB)


class TestSplit:
    def test_a_tenth_of_the_prompts_is_held_out_whatever_the_order(self):
        made = answers(1000, VOCAB)
        train, held = split(made, seed=1)
        assert 60 < len(held) < 140
        assert sorted(a.line for a in train + held) == [a.line for a in made]
        again = {a.prompt for a in split(made[::-1], seed=1)[1]}
        assert again == {a.prompt for a in held}
        assert {a.prompt for a in split(made, seed=2)[1]} != again

    def test_all_answers_to_one_prompt_are_on_one_side(self):
        made = [a for a in answers(50, VOCAB) for _ in range(3)]
        train, held = split(made, seed=0)
        assert not {a.prompt for a in train} & {a.prompt for a in held}

    def test_of_few_prompts_one_is_held_out(self):
        for seed in range(20):
            train, held = split(answers(2, VOCAB), seed)
            assert len(train) == len(held) == 1
        with pytest.raises(PacelineError, match="answers to 1 prompts are too few"):
            split(answers(1, VOCAB), seed=0)


class TestOrder:
    def test_every_row_once_an_epoch_in_batches_that_fit(self):
        lengths = [len(a.ids) for a in answers(100, VOCAB)] + [90]
        order = Order(lengths, tokens=60, seed=3)
        for epoch in range(3):
            batches = order.epoch(epoch)
            assert sorted(row for batch in batches for row in batch) == list(range(101))
            for batch in batches:
                assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= 60
        assert order.epoch(1) == Order(lengths, 60, 3).epoch(1)
        assert order.epoch(0) != order.epoch(1)
        assert order.epoch(0) != Order(lengths, 60, 4).epoch(0)

    def test_little_is_spent_on_padding(self):
        lengths = [len(a.ids) for a in answers(300, VOCAB)]
        batches = Order(lengths, tokens=100, seed=0).epoch(0)
        read = sum(len(batch) * max(lengths[row] for row in batch) for batch in batches)
        assert read < 1.2 * sum(lengths)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model that is not sure of what it says."""
    folder = write_llama(tmp_path_factory.mktemp("target"))
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"] *= 0.1
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def sampler(folder):
    model, tokenizer = target(folder), Tokenizer.from_folder(folder)

    def make(path, **changes):
        prompts = [f"say {word}" for word in ("one", "two", "three", "four", "five")]
        return Sampler(model, tokenizer, prompts, path, seed=5, longest=12, **changes)

    return make


@pytest.fixture(scope="module")
def everything(sampler, tmp_path_factory):
    path = tmp_path_factory.mktemp("all") / "a"
    sampler(path).run([])
    return read_answers(path, VOCAB)


class TestSampling:
    @staticmethod
    def facts(answers: list[Answer]) -> set[tuple]:
        return {(a.prompt, a.temperature, *a.completion_ids) for a in answers}

    def test_each_prompt_once_greedily_and_else_at_a_temperature(self, everything):
        warm = Counter((a.prompt, a.temperature) for a in everything)
        assert len(warm) == 10
        assert all(n == (1 if t == 0 else 3) for (_, t), n in warm.items())
        sampled = [tuple(a.completion_ids) for a in everything if a.temperature]
        assert len(set(sampled)) > 10  # each time another answer

    def test_a_greedy_answer_is_the_models_own(self, everything, folder):
        from paceline import LLM

        llm = LLM(str(folder), draft="none", dtype="fp32")
        for answer in everything:
            if answer.temperature == 0:
                done = llm.generate(answer.prompt, SamplingParams(max_tokens=12))
                assert answer.completion_ids == done.token_ids

    def test_stopped_and_continued_gives_what_one_run_gives(self, sampler, everything, tmp_path):
        path = tmp_path / "a"
        path.touch()
        for stop_after in (3, 20, 41, 10**9):
            steps = iter(range(10**9))
            given = read_answers(path, VOCAB)
            sampler(path, stopped=lambda s=steps, n=stop_after: next(s) >= n).run(given)
            lines = read_answers(path, VOCAB)
            if stop_after < 10**9:  # as if killed: what was in flight is lost
                kept = [a for a in lines if self.facts([a]) <= self.facts(everything)]
                path.write_text("".join(a.to_line() for a in kept))
        assert self.facts(read_answers(path, VOCAB)) == self.facts(everything)

    def test_it_stops_at_a_number_of_tokens_and_counts_those_that_are_given(
        self, sampler, tmp_path
    ):
        path = tmp_path / "a"
        path.touch()
        sampler(path, tokens=30).run([])
        first = read_answers(path, VOCAB)
        assert 30 <= sum(len(a.completion_ids) for a in first) < 30 + 5
        sampler(path, tokens=30).run(first)
        assert read_answers(path, VOCAB) == first

    def test_no_time_no_answers(self, sampler, tmp_path):
        (tmp_path / "a").touch()
        sampler(tmp_path / "a", seconds=0.0).run([])
        assert read_answers(tmp_path / "a", VOCAB) == []

    def test_prompts_that_are_too_long_are_left_out_with_a_word(self, sampler, tmp_path):
        said: list[str] = []
        one = sampler(tmp_path / "a", note=said.append)
        one.prompts = ["x" * 600, "short"]
        one.run([])
        assert {a.prompt for a in read_answers(tmp_path / "a", VOCAB)} == {"short"}
        assert said == ["1 prompts of more than 510 tokens are left out"]
        one.prompts = ["x" * 600]
        with pytest.raises(PacelineError, match="all prompts are longer than 510 tokens"):
            one.run([])


def test_the_cut_vocabulary_is_end_tokens_frequent_ones_bytes_then_the_rest(tmp_path):
    write_llama(tmp_path)
    tokenizer = Tokenizer.from_folder(tmp_path)
    said = [Answer("a", 0.0, [200], [9, 9, 40, 40, 7, 9])]
    assert cut(said, tokenizer, 3).tolist() == [9, 40, END]
    assert cut(said, tokenizer, 6).tolist() == [0, 1, 7, 9, 40, END]
    assert cut(said, tokenizer, 1000).tolist() == list(range(VOCAB))
