"""A small model out of a target's layers, and the command from end to end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from distill.makers import CPU, answers, target, teacher
from models import families
from paceline import LLM
from paceline.cli import run
from paceline.distill import export
from paceline.distill.features import Features
from paceline.distill.model import ModelTrainee, model
from paceline.distill.scores import evaluate
from paceline.errors import PacelineError
from tiny import write_llama, write_tokenizer

VOCAB = families.VOCAB


class TestTrainee:
    @pytest.fixture(params=["llama", "qwen2-window-above", "qwen3", "gemma3"])
    def folder(self, request, tmp_path) -> Path:
        families.save(request.param, tmp_path / "target")
        write_tokenizer(tmp_path / "target")
        return tmp_path / "target"

    def test_all_layers_are_the_target_itself(self, folder, tmp_path):
        source = teacher(folder)
        whole = ModelTrainee(source, torch.arange(VOCAB), range(source.config.layers))
        batch = Features(target(folder), whole.needs, VOCAB, CPU).read(answers(4, VOCAB))
        found = evaluate(whole, [batch])
        assert found.loss == pytest.approx(0, abs=1e-5)
        assert found.alpha_at == found.agree_at == [1.0] * 4
        assert found.overlap_at == pytest.approx([1.0] * 4, abs=1e-3)
        export.write(tmp_path, whole.export(), source, "")
        ids = families.tokens(1, 20)
        before, after = (
            each.forward(ids, [0], each.new_cache(1, 20)).logits
            for each in (target(folder), target(tmp_path))
        )
        torch.testing.assert_close(before, after, atol=0.03, rtol=0.01)  # fp16 on disk
        assert before.std() > 0.3

    def test_what_is_trained_is_what_is_loaded(self, folder, tmp_path):
        """Some layers, moved by a few steps: the exported model says what the trainee says."""
        source = teacher(folder)
        small = ModelTrainee(source, torch.arange(VOCAB), [0])
        features = Features(target(folder), small.needs, VOCAB, CPU)
        batch = features.read(answers(6, VOCAB))
        adam = torch.optim.Adam(small.parameters(), 1e-2)
        first = small.loss(batch, 1).loss
        for _ in range(10):
            adam.zero_grad()
            small.loss(batch, 1).loss.backward()
            adam.step()
        step = small.loss(batch, 1)
        assert step.loss < 0.7 * first
        export.write(tmp_path, small.export(), source, "")
        loaded = target(tmp_path)
        out = loaded.forward(batch.tokens, [0] * 6, loaded.new_cache(*batch.tokens.shape))
        agree = out.logits[:, 1:].argmax(-1) == batch.top[:, 1:]
        mask = batch.mask(0)
        same = (agree == step.agree[0][:, :-1])[mask[:, :-1]]
        assert same.float().mean() > 0.97  # fp16 may turn a near tie
        other = ModelTrainee(source, torch.arange(VOCAB), [0])
        kept = other.parameters()
        other.load(small.state())
        assert all(a is b for a, b in zip(kept, other.parameters(), strict=True))
        assert torch.equal(other.loss(batch, 1).loss, step.loss)

    def test_a_token_outside_the_vocabulary_counts_as_missed(self, folder):
        source = teacher(folder)
        few = torch.arange(0, VOCAB, 7)
        whole = ModelTrainee(source, few, range(source.config.layers))
        batch = Features(target(folder), whole.needs, VOCAB, CPU).read(answers(8, VOCAB))
        tops = torch.nn.functional.pad(batch.top, (0, 1))[:, 1:]
        mask = batch.mask(0)
        assert torch.equal(whole.loss(batch, 1).agree[0][mask], torch.isin(tops, few)[mask])

    def test_layers_by_number_and_by_list(self, folder):
        source = teacher(folder)
        total = source.config.layers
        made = model(source, torch.arange(VOCAB), {"layers": "2"})
        assert made.settings == {"layers": [0, total - 1]}
        assert model(source, torch.arange(VOCAB), {}).settings == {"layers": [0, total - 1]}
        for wrong in ("x", "0", "1,0", f"0,{total}", "-1,1", str(total + 1)):
            with pytest.raises(PacelineError, match=f"--set layers={wrong}: give how many of"):
                model(source, torch.arange(VOCAB), {"layers": wrong})


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("distill")
    write_llama(place / "tiny", layers=3)
    words = ("tree", "river", "stone", "cloud", "road", "light", "paper", "glass")
    lines = [json.dumps({"prompt": f"tell me of a {word}"}) for word in words]
    (place / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    return place


class TestCommand:
    """`paceline distill model`, as a user runs it."""

    @pytest.fixture
    def command(self, place):
        environment = {**os.environ, "PACELINE_HOME": str(place / "home"), "OMP_NUM_THREADS": "1"}

        def start(*args: str) -> subprocess.Popen:
            return subprocess.Popen(
                [sys.executable, "-m", "paceline", *args],
                cwd=place, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip

        return start

    COMMON = (
        "distill", "model", "-m", "tiny", "--prompts", "prompts.jsonl", "--tokens", "3000",
        "--vocab", "257", "--dtype", "fp16", "--threads", "1", "--set", "layers=2",
    )  # fmt: skip

    def test_from_prompts_to_a_draft(self, command, place, monkeypatch, capsys):
        done = command(*self.COMMON, "--json")
        out, err = done.communicate(timeout=120)
        assert done.returncode == 0, err.decode()
        report = json.loads(out)
        assert report["out"] == "tiny-model"
        assert report["tokens_trained"] >= 3000
        assert report["tau"] > 1
        assert b"\xce\xb1 by position" in err  # α
        names = {path.name for path in (place / "tiny-model").iterdir()}
        assert names == {
            "README.md", "answers.jsonl", "config.json", "log.jsonl", "model.safetensors",
            "run.json", "tokenizer.json", "tokenizer_config.json",
        }  # fmt: skip
        monkeypatch.chdir(place)
        monkeypatch.setenv("PACELINE_HOME", str(place / "home"))
        assert run([*self.COMMON, "--json"]) == 0  # it is finished: the same report, at once
        assert json.loads(capsys.readouterr().out) == report
        llm = LLM("tiny", draft="none", dtype="fp16")
        answers = [each.generate("a tree") for each in (llm, llm.with_draft("model:tiny-model"))]
        assert answers[0].token_ids == answers[1].token_ids
        assert answers[1].stats.alpha > 0.3

    def test_ctrl_c_is_continued_to_the_same_weights(self, command, place):
        stopped = command(*self.COMMON, "--out", "stopped")
        deadline = time.monotonic() + 60
        while not (place / "stopped" / "checkpoint.pt").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        stopped.send_signal(signal.SIGINT)
        _, err = stopped.communicate(timeout=60)
        assert stopped.returncode == 130, err.decode()
        assert err.decode().splitlines()[-1].startswith("stopped; the same command goes on from")
        assert (place / "stopped" / "checkpoint.pt").exists()
        assert not (place / "stopped" / "config.json").exists()
        weights = []
        for name in ("stopped", "whole"):
            done = command(*self.COMMON, "--out", name)
            _, err = done.communicate(timeout=120)
            assert done.returncode == 0, err.decode()
            weights.append((place / name / "model.safetensors").read_bytes())
        assert weights[0] == weights[1]

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (("head", "--prompts", "prompts.jsonl", "--kind", "jmp"), "unknown kind of head 'jmp'"),
            (("model",), "nothing to train on: give --prompts FILE, or --answers FILE"),
            (("model", "--prompts", "none"), "none does not exist"),
            (("model", "--prompts", "prompts.jsonl", "--minutes", "0"), "--minutes must be more"),
            (("model", "--prompts", "prompts.jsonl", "--set", "layers"), "must be NAME=VALUE"),
            (("model", "--prompts", "prompts.jsonl", "--set", "size=3"), "unknown option on --set"),
            (("model", "--prompts", "prompts.jsonl", "--out", "."), ". is not empty and holds no"),
        ],
    )
    def test_mistakes_are_one_line_and_leave_nothing(
        self, place, args, message, monkeypatch, capsys
    ):
        monkeypatch.chdir(place)
        monkeypatch.setenv("PACELINE_HOME", str(place / "home"))
        out = ("--out", "wrong") if "--out" not in args else ()
        assert run(["distill", args[0], "-m", "tiny", *args[1:], *out]) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if line[:6] != "dtype "]
        assert len(lines) == 1
        assert message in lines[0]
        assert not (place / "wrong").exists()
