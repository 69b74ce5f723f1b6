"""What a run writes down: weights, config, card; folders that are read back as they were."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from distill.makers import Linear, answers, teacher
from models import families
from paceline.distill import export
from paceline.distill.card import Data, card
from paceline.distill.folder import hf_config, tokenizer_files
from paceline.errors import PacelineError
from paceline.models.config import Config, RopeScaling
from paceline.models.weights import HfCheckpoint
from paceline.text.tokenizer import Tokenizer
from tiny import TEMPLATE, write_llama
from tiny_tokenizers import byte_level, sentencepiece

LINE = {
    "alpha_at": [0.5, 0.25], "tau": 1.625, "tokens": 1200, "anchors": 80, "weights": "average",
}  # fmt: skip


def test_a_folder_holds_the_weights_and_names_its_target(tmp_path):
    source = teacher(write_llama(tmp_path / "target", layers=3))
    trainee = Linear(source, 20)
    export.write(tmp_path, trainee.export(), source, "a card")
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {
        "kind": "linear",
        "target": {
            "name": "tiny",
            "fingerprint": source.fingerprint,
            "hidden": 32,
            "vocab": 257,
            "layers": 3,
        },
    }
    read = load_file(tmp_path / "model.safetensors")
    assert {name: t.tolist() for name, t in read.items()} == {
        name: t.tolist() for name, t in trainee.state().items()
    }
    assert (tmp_path / "README.md").read_text() == "a card"
    assert not list(tmp_path.glob("*.new"))


def test_the_card_says_target_data_and_figures(tmp_path):
    source = teacher(write_llama(tmp_path))
    data = Data(answers(10, 50), answers(3, 50, seed=1))
    text = card("jump", source, data, LINE, 3400, "paceline distill head -m tiny")
    tokens = sum(len(a.completion_ids) for a in data.train)
    for part in (
        "# A draft head for tiny", source.fingerprint, "`paceline distill head -m tiny`",
        f"| train | 10 | 10 | {tokens} | 5 at T = 0, 5 at T = 0.7 |", "| held_out | 3 | 3 |",
        "Trained on 3,400 tokens", "those after 1,200 (average)", "| α | 0.500 | 0.250 |",
        "K = 2, greedy, predicted from these: 1.62 tokens a round", "Of 80 positions",
    ):  # fmt: skip
        assert part in " ".join(text.split("\n")) or part in text, part


class TestConfig:
    @pytest.mark.parametrize("name", families.CASES)
    def test_every_family_is_read_back_as_it_was(self, tmp_path, name):
        families.save(name, tmp_path)
        config = HfCheckpoint(tmp_path).config
        for kept in ([*range(config.layers)], [1], [0]):
            part = replace(config, layers=len(kept), local=tuple(config.local[i] for i in kept))
            back = Config.from_hf(hf_config(part))
            assert back.attn_scale == pytest.approx(part.attn_scale)
            back = replace(back, attn_scale=part.attn_scale, norm_offset=part.norm_offset)
            if not any(part.local):  # then a window binds nothing
                part, back = (replace(c, sliding_window=None) for c in (part, back))
            assert back == part

    def test_llama_3s_frequencies_in_a_gguf_file_become_their_rule(self, tmp_path):
        from paceline.models.rope import frequencies

        rule = RopeScaling("llama3", 32.0, 1.0, 4.0, 8192)
        plain = frequencies(500_000.0, 64)
        factors = tuple((plain / frequencies(500_000.0, 64, rule)).tolist())
        families.save("llama", tmp_path)
        config = HfCheckpoint(tmp_path).config
        written = hf_config(replace(config, rope_scaling=RopeScaling("factors", factors=factors)))
        assert Config.from_hf(written).rope_scaling == rule
        odd = RopeScaling("factors", factors=(1.0, 3.0))
        with pytest.raises(PacelineError, match="train on its Hugging Face folder instead"):
            hf_config(replace(config, rope_scaling=odd))


class TestTokenizer:
    TEXTS = ("the other <|end|>then", "a\n\n  b 123", "café <|pad|> it's")

    def gguf(self, path, metadata):
        from gguf import GGUFWriter

        writer = GGUFWriter(path, "llama")
        tokens = {k.removeprefix("tokenizer.ggml."): v for k, v in metadata.items()}
        writer.add_tokenizer_model(tokens["model"])
        writer.add_token_list(tokens["tokens"])
        writer.add_token_types(tokens["token_type"])
        if "merges" in tokens:
            writer.add_tokenizer_pre(tokens["pre"])
            writer.add_token_merges(tokens["merges"])
            writer.add_eos_token_id(len(tokens["tokens"]) - 2)
            writer.add_chat_template(TEMPLATE)
        else:
            writer.add_token_scores(tokens["scores"])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return path

    @pytest.mark.parametrize("pre", ["gpt-2", "qwen2", "smollm", "llama-bpe"])
    def test_a_gguf_files_is_the_same_as_a_folder(self, tmp_path, pre):
        added = [("<|end|>", 3), ("<|pad|>", 4)]
        metadata = byte_level(["t h", "th e", "Ġ the", "o t"], added, pre)
        path = self.gguf(tmp_path / "m.gguf", metadata)
        for name, text in tokenizer_files(path).items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        ours, theirs = Tokenizer.from_folder(tmp_path), Tokenizer.from_gguf(path)
        assert ours.same_tokens(theirs).message == ""
        assert (ours.size, ours.eos_ids, ours.bos_id, ours.add_bos, ours.chat_template) == (
            theirs.size, theirs.eos_ids, theirs.bos_id, theirs.add_bos, theirs.chat_template,
        )  # fmt: skip
        for text in self.TEXTS:
            for special in (True, False):
                assert ours.encode(text, special) == theirs.encode(text, special), text
            assert ours.decode(ours.encode(text)) == theirs.decode(theirs.encode(text))

    def test_a_folders_files_come_along(self, tmp_path):
        folder = write_llama(tmp_path)
        files = tokenizer_files(folder)
        assert {*files} == {"tokenizer.json", "tokenizer_config.json"}
        assert files["tokenizer.json"] == (folder / "tokenizer.json").read_text()

    def test_sentencepiece_in_a_gguf_file_is_refused(self, tmp_path):
        path = self.gguf(tmp_path / "m.gguf", sentencepiece([("a", 0.0)]))
        with pytest.raises(PacelineError, match="train on the model's Hugging Face folder"):
            tokenizer_files(path)


def test_bf16_and_fp16_tensors_are_kept_as_they_are(tmp_path):
    source = teacher(write_llama(tmp_path / "target"))
    tensors = {"a": torch.ones(2, dtype=torch.bfloat16), "b": torch.ones(3, 2).T}
    export.write(tmp_path, replace(Linear(source, 5).export(), tensors=tensors), source, "")
    read = load_file(tmp_path / "model.safetensors")
    assert read["a"].dtype is torch.bfloat16
    assert read["b"].shape == (2, 3)
