"""The transformer against transformers' own models, and against itself read in other pieces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from models import families
from paceline.models import attention, transformer
from paceline.models.packed import PackedWeights
from paceline.models.transformer import Transformer
from paceline.models.weights import HfCheckpoint

CPU = torch.device("cpu")
CLOSE = {"atol": 1e-4, "rtol": 0.0}


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def build(folder: Path, dtype: str = "fp32") -> Transformer:
    with PackedWeights(HfCheckpoint(folder), dtype, CPU) as weights:
        return Transformer(weights)


def read(model: Transformer, ids: Tensor, pieces: list[int]) -> Tensor:
    """Logits of one row, read in pieces of the given lengths."""
    cache = model.new_cache(1, ids.shape[1])
    out, start = [], 0
    for n in pieces:
        out.append(model.forward(ids[:, start : start + n], [start], cache).logits)
        start += n
    return torch.cat(out, 1)


@pytest.fixture(scope="module", params=families.CASES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("model")
    return families.save(request.param, folder), build(folder)


class TestParity:
    def test_in_one_in_chunks_and_token_by_token(self, pair) -> None:
        theirs, ours = pair
        ids = families.tokens(1, 40)
        wanted = theirs(ids).logits
        assert wanted.std() > 0.3  # a model that says the same everywhere would prove nothing
        for pieces in ([40], [1, 2, 3, 13, 4, 16, 1], [1] * 40):
            torch.testing.assert_close(read(ours, ids, pieces), wanted, **CLOSE)

    def test_ragged_batch(self, pair) -> None:
        """Three rows of different lengths, prefilled one by one into a larger cache, then read on
        together: each gets what it gets alone."""
        theirs, ours = pair
        ids = families.tokens(3, 30)
        wanted = theirs(ids).logits
        cache, at = ours.new_cache(5, 30), [3, 17, 9]
        for b, n in enumerate(at):
            got = ours.forward(ids[b : b + 1, :n], [0], cache, row=b + 1).logits
            torch.testing.assert_close(got, wanted[b : b + 1, :n], **CLOSE)
        for n in (1, 4, 2, 1):
            piece = torch.stack([ids[b, at[b] : at[b] + n] for b in range(3)])
            got = ours.forward(piece, at, cache, row=1).logits
            expected = torch.stack([wanted[b, at[b] : at[b] + n] for b in range(3)])
            torch.testing.assert_close(got, expected, **CLOSE)
            at = [p + n for p in at]

    def test_hidden_is_what_the_head_reads(self, pair) -> None:
        theirs, ours = pair
        ids = families.tokens(1, 12)
        got = ours.forward(ids, [0], ours.new_cache(1, 12), logits=False)
        assert got.logits is None
        torch.testing.assert_close(theirs.lm_head(got.hidden), theirs(ids).logits, **CLOSE)


def test_a_prompt_longer_than_a_tile_and_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cuts inside one forward change nothing, for one row and for several."""
    monkeypatch.setattr(attention, "TILE", 16)
    monkeypatch.setattr(transformer, "PASS", 48)
    theirs = families.save("gemma3", tmp_path)
    ours = build(tmp_path)
    ids = families.tokens(2, 101)
    wanted = theirs(ids).logits
    for rows in (1, 2):
        got = ours.forward(ids[:rows], [0] * rows, ours.new_cache(rows, 101)).logits
        torch.testing.assert_close(got, wanted[:rows], **CLOSE)


def test_reading_again_from_an_earlier_position(tmp_path: Path) -> None:
    """Rolling back is no operation: what was read behind `at` is forgotten."""
    theirs = families.save("qwen3", tmp_path)
    ours = build(tmp_path)
    kept, dropped, new = families.tokens(1, 10), families.tokens(1, 25, 1), families.tokens(1, 6, 2)
    cache = ours.new_cache(1, 40)
    ours.forward(torch.cat((kept, dropped), 1), [0], cache)
    got = ours.forward(new, [10], cache).logits
    torch.testing.assert_close(got, theirs(torch.cat((kept, new), 1)).logits[:, 10:], **CLOSE)


def test_nan_in_a_slot_does_not_reach_the_next_request(tmp_path: Path) -> None:
    families.save("llama", tmp_path)
    ours = build(tmp_path)
    ids = families.tokens(1, 8)
    clean = ours.forward(ids, [0], ours.new_cache(1, 64)).logits
    cache = ours.new_cache(1, 64)
    ours.forward(families.tokens(1, 50, 1), [0], cache)
    cache.data[..., :50, :] = torch.nan
    assert torch.equal(ours.forward(ids, [0], cache).logits, clean)


def test_positions_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    families.save("llama", tmp_path)
    ours = build(tmp_path)
    cache = ours.new_cache(1, 64)
    with pytest.raises(ValueError, match="do not fit a cache of 64"):
        ours.forward(families.tokens(1, 2), [63], cache)


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
@pytest.mark.parametrize("function", [transformer._silu, transformer._gelu])
def test_activations_agree_to_the_bit(function, threads: int) -> None:
    """Sizes at which the share of a thread would end inside of a vector."""
    x = torch.randn(128, 2 * 1216, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([function(row) for row in x.split(1)])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for n in (1, 2, 14, 20, 28, 41, 100, 128):
            assert torch.equal(function(x[:n]), alone[:n])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["int8", "fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3"])
def test_rows_agree_to_the_bit(name: str, dtype: str, tmp_path: Path) -> None:
    """The same tokens, read in one pass, in chunks, one by one, and beside other rows.

    The positions pass 192 and 384, where the products over the cache change their blocks.
    """
    families.save(name, tmp_path)
    ours = build(tmp_path, dtype)
    count = 400
    ids = families.tokens(3, count)
    whole = torch.cat([read(ours, ids[b : b + 1], [count]) for b in range(3)])
    steps = [61, 1, 2, 3, 5, 8, 13, 90, 1, 4, 1, 7, 2, 1, 150, 20, 5, 1, 1, 3, 9]
    for pieces in ([100] * 4, steps + [1] * (count - sum(steps))):
        assert torch.equal(read(ours, ids[:1], pieces), whole[:1])
    assert torch.equal(ours.forward(ids, [0] * 3, ours.new_cache(3, count)).logits, whole)
    cache = ours.new_cache(4, count)
    at = [380, 170, 30]  # each beside rows that are elsewhere
    for b, n in enumerate(at):
        ours.forward(ids[b : b + 1, :n], [0], cache, row=b, logits=False)
    for n in (1, 5, 2, 8, 1):
        piece = torch.stack([ids[b, at[b] : at[b] + n] for b in range(3)])
        got = ours.forward(piece, at, cache).logits
        for b in range(3):
            assert torch.equal(got[b], whole[b, at[b] : at[b] + n])
        at = [p + n for p in at]
