"""Folders in Hugging Face's layout: what is read, and what is refused in one line."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from models import families
from paceline.errors import PacelineError
from paceline.models.config import Config, RopeScaling
from paceline.models.packed import PackedWeights
from paceline.models.rope import frequencies
from paceline.models.transformer import Transformer
from paceline.models.weights import INDEX, HfCheckpoint


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    families.save("llama", folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(saved, tmp_path / "copy"))


def edit(folder: Path, name: str = "config.json", **changes: Any) -> None:
    raw = json.loads((folder / name).read_text()) | changes
    raw = {key: value for key, value in raw.items() if value is not ...}
    (folder / name).write_text(json.dumps(raw))


class TestReading:
    def test_tensors_are_the_file_s(self, tmp_path: Path) -> None:
        theirs = families.save("qwen3", tmp_path).state_dict()
        ours = HfCheckpoint(tmp_path)
        for name, value in theirs.items():
            assert name in ours
            assert torch.equal(ours.tensor(name), value), name
        assert "model.layers.2.mlp.up_proj.weight" not in ours

    def test_gemma_norms_have_their_offset_added(self, tmp_path: Path) -> None:
        theirs = families.save("gemma3", tmp_path).state_dict()
        ours = HfCheckpoint(tmp_path)
        norms = [name for name in theirs if "norm" in name]
        assert len(norms) == 7 * 6 + 1
        for name in norms:
            assert torch.equal(ours.tensor(name), theirs[name] + 1), name

    def test_shards(self, tmp_path: Path) -> None:
        theirs = families.save("qwen2", tmp_path, shard="40KB")
        assert len([*tmp_path.glob("*.safetensors")]) > 3
        with PackedWeights(HfCheckpoint(tmp_path), "fp32", torch.device("cpu")) as weights:
            ours = Transformer(weights)
        ids = families.tokens(1, 20)
        with torch.no_grad():
            got = ours.forward(ids, [0], ours.new_cache(1, 20)).logits
            torch.testing.assert_close(got, theirs(ids).logits, atol=1e-4, rtol=0)

    @pytest.mark.parametrize("says", [True, False, ...])
    def test_a_missing_output_layer_is_the_embedding(self, tmp_path: Path, says: Any) -> None:
        families.save("llama-rope-llama3-tied", tmp_path)
        edit(tmp_path, tie_word_embeddings=says)
        assert HfCheckpoint(tmp_path).config.tied


class TestFingerprint:
    def test_same_bytes_elsewhere_and_other_bytes(self, folder: Path, saved: Path) -> None:
        weights = folder / "model.safetensors"
        same = HfCheckpoint(saved).fingerprint
        assert HfCheckpoint(folder).fingerprint == same
        state = weights.stat()
        os.utime(weights, ns=(state.st_atime_ns, state.st_mtime_ns + 1_000_000_000))
        touched = HfCheckpoint(folder).fingerprint
        assert touched != same
        os.utime(weights, ns=(state.st_atime_ns, state.st_mtime_ns))
        assert HfCheckpoint(folder).fingerprint == same
        edit(folder, rms_norm_eps=1e-3)
        assert HfCheckpoint(folder).fingerprint not in (same, touched)


class TestRefusals:
    def refused(self, folder: Path, *words: str) -> None:
        with pytest.raises(PacelineError) as e:
            HfCheckpoint(folder)
        assert "\n" not in str(e.value)
        for word in words:
            assert word in str(e.value)

    def test_no_config(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        self.refused(folder, "config.json", "does not exist")

    @pytest.mark.parametrize("text", ["", "{", "[1]", "\x00"])
    def test_config_that_is_no_object(self, folder: Path, text: str) -> None:
        (folder / "config.json").write_text(text)
        self.refused(folder, "config.json", "download it again")

    def test_no_weights(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        self.refused(folder, "model.safetensors", "does not exist")

    def test_missing_shard(self, tmp_path: Path) -> None:
        families.save("llama", tmp_path, shard="40KB")
        shard = min(tmp_path.glob("*.safetensors"))
        shard.unlink()
        self.refused(tmp_path, shard.name, "does not exist")

    @pytest.mark.parametrize("keep", [0, 4, 100, -1])
    def test_truncated_weights(self, folder: Path, keep: int) -> None:
        weights = folder / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:keep])
        self.refused(folder, "model.safetensors", "damaged or cut short")

    def test_index_without_a_map(self, folder: Path) -> None:
        (folder / INDEX).write_text('{"weight_map": 3}')
        self.refused(folder, INDEX)

    def test_missing_tensor(self, folder: Path) -> None:
        with pytest.raises(PacelineError, match=r"has no tensor 'model\.x\.weight'"):
            HfCheckpoint(folder).tensor("model.x.weight")

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"architectures": ["FalconForCausalLM"]}, ["'FalconForCausalLM'", "Qwen3ForCausalLM"]),
            ({"architectures": None, "model_type": "falcon"}, ["'falcon'"]),
            ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, ["'yarn'", "llama3"]),
            ({"rope_parameters": ..., "rope_scaling": {"type": "dynamic"}}, ["'dynamic'"]),
            ({"hidden_act": "relu"}, ["'relu'"]),
            ({"quantization_config": {"quant_method": "fp8"}}, ["'fp8'"]),
            ({"intermediate_size": 128}, ["gate_proj", "[64, 96]", "[128, 96]"]),
            ({"vocab_size": 97}, ["embed_tokens", "[96, 96]", "[97, 96]"]),
            ({"num_hidden_layers": 3}, ["no tensor 'model.layers.2.self_attn.q_proj.weight'"]),
            ({"rope_parameters": "none"}, ["makes no sense"]),
            ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor"]),
            ({"num_hidden_layers": ...}, ["num_hidden_layers"]),
            ({"num_hidden_layers": "many"}, ["many"]),
            ({"num_attention_heads": 0, "head_dim": ...}, ["config.json"]),
            ({"num_key_value_heads": 4}, ["6 heads", "4 key/value heads"]),
            ({"head_dim": 15}, ["15"]),
        ],
    )
    def test_configs(self, folder: Path, changes: dict[str, Any], words: list[str]) -> None:
        edit(folder, **changes)
        self.refused(folder, *words)

    def test_gemma_s_caps(self, tmp_path: Path) -> None:
        families.save("gemma3", tmp_path)
        edit(tmp_path, attn_logit_softcapping=50.0)
        self.refused(tmp_path, "attn_logit_softcapping")


GEMMA = {
    "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 7,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 32,
}


class TestConfig:
    def test_gemma_s_older_spelling(self) -> None:
        """One number for the pattern, two thetas at the top, as the published files have it."""
        raw = GEMMA | {
            "rope_theta": 500_000.0,
            "rope_local_base_freq": 9_000.0,
            "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            "sliding_window": 16,
            "sliding_window_pattern": 3,
        }
        config = Config.from_hf(raw)
        assert (config.rope_theta, config.rope_local_theta) == (500_000.0, 9_000.0)
        assert config.rope_scaling == RopeScaling("linear", factor=8.0)
        assert config.local == (True, True, False, True, True, False, True)
        assert config.attn_scale == 1 / 16
        assert config.embed_scale == 8.0
        assert config.tied
        assert Config.from_hf(raw | {"sliding_window_pattern": 6}).local == (
            *[True] * 5,
            False,
            True,
        )

    @pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3"])
    def test_windows_that_are_not_in_use(self, family: str) -> None:
        raw = GEMMA | {
            "architectures": [f"{family}ForCausalLM"],
            "sliding_window": 16,
            "use_sliding_window": False,
        }
        config = Config.from_hf(raw)
        assert config.sliding_window is None
        assert config.local == (False,) * 7
        assert not config.tied

    def test_llama_3_waves(self) -> None:
        """Short waves stay, long ones are stretched by the factor, and between is between."""
        scaling = RopeScaling("llama3", 8.0, 1.0, 4.0, 8192)
        plain = frequencies(500_000.0, 128)
        got = frequencies(500_000.0, 128, scaling)
        waves = 2 * torch.pi / plain
        short, long = waves < 8192 / 4, waves > 8192
        assert torch.equal(got[short], plain[short])
        torch.testing.assert_close(got[long], plain[long] / 8)
        middle = ~short & ~long
        assert middle.sum() > 3
        assert (got[middle] < plain[middle]).all()
        assert (got[middle] > plain[middle] / 8).all()

    def test_factors(self) -> None:
        got = frequencies(10_000.0, 8, RopeScaling("factors", factors=(1.0, 2.0, 4.0, 8.0)))
        expected = torch.tensor([1.0, 0.1 / 2, 0.01 / 4, 0.001 / 8])
        torch.testing.assert_close(got, expected)
