"""Models of transformers behind our protocol: equal logits, and refusals by name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from models import families
from paceline.errors import MissingExtra, PacelineError
from paceline.models.hf import HfModel

CLOSE = {"atol": 1e-4, "rtol": 0.0}
SHAPE: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "vocab_size": families.VOCAB,
    "bos_token_id": 0,
    "eos_token_id": 1,
}
ATTENTION = {
    "gpt2": (
        "GPT2Config",
        {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_positions": 64, "vocab_size": 96},
    ),
    "gpt-neox": ("GPTNeoXConfig", SHAPE | {"max_position_embeddings": 128}),
    "bloom": ("BloomConfig", {"n_layer": 2, "n_head": 2, "hidden_size": 16, "vocab_size": 96}),
}
OTHERS = {
    "mamba": ("MambaConfig", SHAPE | {"state_size": 4}, "LinearAttentionLayer"),
    "rwkv": ("RwkvConfig", SHAPE | {"attention_hidden_size": 16}, "list"),
    "lfm2": (
        "Lfm2Config",
        SHAPE | {"num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
        "LinearAttentionLayer",
    ),
    "gemma2": (
        "Gemma2Config",
        SHAPE | {"num_key_value_heads": 2, "head_dim": 8},
        "DynamicSlidingWindowLayer",
    ),
}


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def random_model(kind: str, config: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, kind)(**({"bos_token_id": 0, "eos_token_id": 1} | config))
    model = transformers.AutoModelForCausalLM.from_config(made).eval()
    for value in model.parameters():
        if value.dim() > 1:
            value.mul_(5)
    return model


@pytest.fixture(scope="module", params=ATTENTION)
def plain(request: pytest.FixtureRequest) -> Any:
    with torch.no_grad():
        return random_model(*ATTENTION[request.param])


class TestAttentionModels:
    def test_logits_in_one_in_chunks_and_token_by_token(self, plain: Any) -> None:
        ours, ids = HfModel(plain), families.tokens(1, 24)
        wanted = plain(ids).logits
        assert wanted.std() > 0.1
        for pieces in ([24], [1, 7, 3, 13], [1] * 24):
            cache, start = ours.new_cache(1, 24), 0
            for n in pieces:
                got = ours.forward(ids[:, start : start + n], [start], cache).logits
                torch.testing.assert_close(got, wanted[:, start : start + n], **CLOSE)
                start += n

    def test_ragged_rows_and_a_rewind(self, plain: Any) -> None:
        """Rows at different positions, after each read tokens that were then dropped."""
        ours, ids = HfModel(plain), families.tokens(2, 20)
        wanted = plain(ids).logits
        cache, at = ours.new_cache(3, 20), [4, 11]
        for b, n in enumerate(at):
            out = ours.forward(ids[b : b + 1, :n], [0], cache, row=b + 1, logits=False)
            assert out.logits is None
        ours.forward(families.tokens(2, 6, seed=1), at, cache, row=1)  # rejected
        for n in (5, 1, 3):
            piece = torch.stack([ids[b, at[b] : at[b] + n] for b in range(2)])
            got = ours.forward(piece, at, cache, row=1).logits
            expected = torch.stack([wanted[b, at[b] : at[b] + n] for b in range(2)])
            torch.testing.assert_close(got, expected, **CLOSE)
            at = [p + n for p in at]

    def test_positions_that_do_not_fit_are_refused(self, plain: Any) -> None:
        ours = HfModel(plain)
        cache = ours.new_cache(1, 8)
        for at in (-1, 1, 7):  # nothing has been read yet
            with pytest.raises(ValueError, match="cannot read 2 tokens"):
                ours.forward(families.tokens(1, 2), [at], cache)
        with pytest.raises(ValueError, match="8 fit"):
            ours.forward(families.tokens(1, 9), [0], cache)


def test_sizes() -> None:
    ours = HfModel(random_model(*ATTENTION["gpt2"]))
    assert (ours.vocab_size, ours.context) == (96, 64)
    assert HfModel(random_model(*ATTENTION["gpt-neox"])).context == 128


@pytest.mark.parametrize("name", OTHERS)
def test_other_state_is_refused_by_the_name_of_its_class(name: str) -> None:
    kind, config, state = OTHERS[name]
    with pytest.raises(PacelineError, match=f"keeps its past in a .*{state}, which") as e:
        HfModel(random_model(kind, config))
    assert "\n" not in str(e.value)


class TestLoading:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        random_model(*ATTENTION["gpt2"]).save_pretrained(tmp_path)
        return tmp_path

    def test_from_a_folder(self, folder: Path) -> None:
        ids = families.tokens(1, 9)
        wanted = random_model(*ATTENTION["gpt2"])(ids).logits
        ours = HfModel(folder, "fp32", "cpu")
        got = ours.forward(ids, [0], ours.new_cache(1, 9)).logits
        torch.testing.assert_close(got, wanted, **CLOSE)

    def test_bf16_weights_give_float32_logits(self, folder: Path) -> None:
        ours, ids = HfModel(folder, "bf16"), families.tokens(1, 9)
        got = ours.forward(ids, [0], ours.new_cache(1, 9)).logits
        wanted = random_model(*ATTENTION["gpt2"])(ids).logits
        assert got.dtype is torch.float32
        assert 0 < (got - wanted).abs().max() < 0.05 * wanted.abs().max()

    @pytest.mark.parametrize(("dtype", "says"), [("int8", "use fp16"), ("fp23", "did you mean")])
    def test_dtypes_that_it_lacks(self, folder: Path, dtype: str, says: str) -> None:
        with pytest.raises(PacelineError, match=says):
            HfModel(folder, dtype)

    def test_no_such_folder_and_no_such_architecture(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "abacus"}')
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(PacelineError, match=f"transformers cannot load {path}: ") as e:
                HfModel(path)
            assert "\n" not in str(e.value)

    def test_without_transformers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "transformers", None)
        with pytest.raises(MissingExtra, match=r"pip install 'paceline\[hf\]'"):
            HfModel("anything")
