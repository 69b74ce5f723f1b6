"""The native decoder against torch's transformer, and against itself read in other pieces."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kernels import tiny_decoders as tiny
from paceline import kernels
from paceline.core.tree import ancestry
from paceline.errors import PacelineError
from paceline.models.native import NativeTransformer

ISAS = kernels.load().isas()
CLOSE = {"atol": 2e-5, "rtol": 1e-5}
MIXED = {"q_proj": "q4_k", "k_proj": "q6_k", "v_proj": "fp16", "down": "q6_k", "lm_head": "q6_k"}


def quantised(kind: str) -> tiny.Weights:
    if kind == "mixed":
        return tiny.Weights(tiny.SUPER, "q4_k", MIXED)
    config = tiny.FAMILIES["gemma3" if kind == "int4" else "qwen2"]
    return tiny.Weights(config, kind)


@pytest.fixture(scope="module", params=tiny.FAMILIES)
def family(request: pytest.FixtureRequest) -> tiny.Weights:
    return tiny.Weights(tiny.FAMILIES[request.param])


@pytest.mark.parametrize("isa", ISAS)
class TestParity:
    def test_in_one_in_chunks_and_token_by_token(self, family: tiny.Weights, isa: str) -> None:
        ids = tiny.tokens(1, 40)
        wanted = tiny.read(tiny.reference(family), ids, [40])
        assert wanted.std() > 0.3  # a model that says the same everywhere would prove nothing
        ours = tiny.native(family, isa=isa)
        for pieces in ([40], [1, 2, 3, 13, 4, 16, 1], [1] * 40):
            torch.testing.assert_close(tiny.read(ours, ids, pieces), wanted, **CLOSE)

    def test_hidden_states(self, family: tiny.Weights, isa: str) -> None:
        ids = tiny.tokens(2, 12)
        theirs, ours = tiny.reference(family), tiny.native(family, isa=isa)
        wanted = theirs.forward(ids, [0, 0], theirs.new_cache(2, 12), logits=False)
        got = ours.forward(ids, [0, 0], ours.new_cache(2, 12), logits=False)
        assert got.logits is None
        torch.testing.assert_close(got.hidden, wanted.hidden, **CLOSE)

    @pytest.mark.parametrize("kind", ["int4", "int8", "mixed"])
    def test_on_codes(self, kind: str, isa: str) -> None:
        """Close to the same arithmetic in torch, far closer than that is to unrounded inputs."""
        weights = quantised(kind)
        ids = tiny.tokens(1, 24)
        exact = tiny.read(tiny.reference(weights), ids, [24])
        weights.rounded = True
        wanted = tiny.read(tiny.reference(weights), ids, [24])
        got = tiny.read(tiny.native(weights, isa=isa), ids, [24])
        ours, theirs = (got - wanted).norm(), (exact - wanted).norm()
        assert ours < theirs / 4
        assert ours < 0.01 * wanted.norm()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["fp16", "int4", "int8", "mixed"])
def test_rows_agree_to_the_bit(kind: str, isa: str) -> None:
    """The same tokens in one pass, in pieces, one by one, beside other rows, on more threads."""
    weights = quantised(kind)
    count, rows = 150, 3
    ids = tiny.tokens(rows, count)
    ours = tiny.native(weights, isa=isa)
    whole = torch.cat([tiny.read(ours, ids[b : b + 1], [count]) for b in range(rows)])
    assert whole.isfinite().all()
    pieces = [61, 1, 2, 3, 5, 8, 13, 1, 4, 1, 7, 2, 6, 1, 9, 10, 11, 5]
    for threads in (1, 2, 4):
        model = tiny.native(weights, threads, isa)
        assert torch.equal(tiny.read(model, ids[:1], pieces), whole[:1])
        everything = model.forward(ids, [0] * rows, model.new_cache(rows, count)).logits
        assert torch.equal(everything, whole)
        ragged(model, ids, whole, [130, 70, 3])
    assert torch.equal(tiny.read(ours, ids[:1], [1] * count), whole[:1])


def ragged(model: NativeTransformer, ids: Tensor, whole: Tensor, at: list[int]) -> None:
    """Rows at different lengths, in the middle of a larger cache, are read on together."""
    cache = model.new_cache(5, ids.shape[1])
    for b, n in enumerate(at):
        model.forward(ids[b : b + 1, :n], [0], cache, row=b + 1, logits=False)
    for n in (1, 5, 2, 8, 1):
        piece = torch.stack([ids[b, at[b] : at[b] + n] for b in range(len(at))])
        got = model.forward(piece, at, cache, row=1).logits
        assert got is not None
        for b in range(len(at)):
            assert torch.equal(got[b], whole[b, at[b] : at[b] + n])
        at = [p + n for p in at]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3"])
def test_a_trees_nodes_agree_with_chains_to_the_bit(name: str, isa: str) -> None:
    """Two trees side by side, of more nodes than one pass reads; and so do their likeliest."""
    ours = tiny.native(tiny.Weights(tiny.FAMILIES[name]), 2, isa)
    count, at = 40, [3, 12]
    ids, before = tiny.tokens(2, count, 1), tiny.tokens(2, 12)
    parents = torch.tensor(
        [[j - 1 - j * j % 7 if j > 6 else -1 for j in range(count)], [-1, *range(-1, count - 2)]]
    )
    cache = ours.new_cache(2, 128)
    ours.forward(before, [0, 0], cache)
    whole = ours.forward(ids, at, cache, parents=parents)
    top = ours.best(ids, at, cache, parents=parents, limit=90).top
    assert torch.equal(top, whole.logits[..., :90].argmax(-1))
    for b in (0, 1):
        for node in (0, 1, 9, 30, count - 1):
            path = ancestry(parents[b].tolist(), node)
            alone = ours.new_cache(1, 64)
            ours.forward(before[b : b + 1, : at[b]], [0], alone)
            chain = ours.forward(ids[b : b + 1, path], at[b : b + 1], alone)
            assert torch.equal(whole.logits[b, path], chain.logits[0])
            assert torch.equal(whole.hidden[b, path], chain.hidden[0])


@pytest.mark.parametrize("isa", ISAS)
def test_what_the_cache_holds_behind_never_matters(isa: str) -> None:
    for name in ("llama", "gemma3"):
        ours = tiny.native(tiny.Weights(tiny.FAMILIES[name]), 2, isa)
        ids = tiny.tokens(1, 30)
        clean = tiny.read(ours, ids, [11, 19])
        cache = ours.new_cache(1, 64)
        cache.data.fill_(math.nan)  # a slot that another request left behind
        first = ours.forward(ids[:, :11], [0], cache).logits
        cache.data[..., 11:, :] = math.inf
        second = ours.forward(ids[:, 11:], [11], cache).logits
        assert torch.equal(torch.cat((first, second), 1), clean)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_nan_stays_in_its_row_and_behind_its_place(kind: str, isa: str) -> None:
    weights = tiny.Weights(tiny.FAMILIES["llama"], kind)
    values = weights.values("model.embed_tokens.weight")
    values[7] = math.nan
    weights.matrices["model.embed_tokens.weight"] = weights.fill(kind, values)
    ids = tiny.tokens(4, 12)
    ids[ids == 7] = 8
    ours = tiny.native(weights, 2, isa)
    clean = ours.forward(ids, [0] * 4, ours.new_cache(4, 12)).logits
    spoilt = ids.clone()
    spoilt[2, 5] = 7
    cache = ours.new_cache(4, 12)
    got = ours.forward(spoilt, [0] * 4, cache).logits
    assert got[2, 5:].isnan().all()
    for b in (0, 1, 3):
        assert torch.equal(got[b], clean[b])
    assert torch.equal(got[2, :5], clean[2, :5])
    again = ours.forward(ids[2:3], [0], cache, row=2).logits
    assert torch.equal(again, clean[2:3])


@pytest.mark.parametrize("isa", ISAS)
def test_a_window_ends_where_it_should(isa: str) -> None:
    """One layer sees the last WINDOW positions, and not one more."""
    config = replace(tiny.FAMILIES["mistral-window"], layers=1, local=(True,))
    ours = tiny.native(tiny.Weights(config), isa=isa)
    ids = tiny.tokens(1, 40)
    whole = tiny.read(ours, ids, [40])
    for p in (8, 15, 39):
        for edge, same in ((p - tiny.WINDOW, True), (p - tiny.WINDOW + 1, False)):
            changed = ids.clone()
            changed[0, edge] = (ids[0, edge] + 1) % tiny.VOCAB
            got = tiny.read(ours, changed, [40])[0, p]
            assert torch.equal(got, whole[0, p]) == same


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("isa", ISAS)
class TestBest:
    def test_is_the_argmax(self, isa: str, threads: int) -> None:
        config = replace(tiny.FAMILIES["qwen2"], vocab_size=5003)  # several chunks
        weights = tiny.Weights(config)
        values = weights.values("lm_head.weight")
        values[4000:] = values[1000:2003]  # ties, far apart
        values[2003:2006] = values[1000:1003]
        weights.matrices["lm_head.weight"] = weights.fill("fp16", values)
        ours = tiny.native(weights, threads, isa)
        ids = tiny.tokens(2, 90)
        logits = ours.forward(ids, [0, 0], ours.new_cache(2, 90)).logits
        wanted = torch.stack([(row == row.amax()).int().argmax() for row in logits.view(-1, 5003)])
        assert (wanted >= 1000).any()
        for limit in (None, 5003, 1500, 1, 3999):
            got = ours.best(ids, [0, 0], ours.new_cache(2, 90), limit=limit)
            assert got.logits is None
            counted = logits[..., :limit].reshape(180, -1)
            wanted = (counted == counted.amax(-1, keepdim=True)).int().argmax(-1)
            assert torch.equal(got.top.view(-1), wanted)
        alone = [ours.best(ids[b : b + 1], [0], ours.new_cache(1, 90)) for b in (0, 1)]
        assert torch.equal(torch.cat([one.hidden for one in alone]), got.hidden)

    @pytest.mark.parametrize("value", [math.nan, math.inf])
    def test_is_none_where_there_is_none(self, isa: str, threads: int, value: float) -> None:
        weights = tiny.Weights(tiny.FAMILIES["llama"])
        ids = tiny.tokens(1, 20)
        good = best(tiny.native(weights, threads, isa), ids)
        # Values near the largest fp16 times a norm of 1e36 are infinite, up or down.
        values = weights.values("lm_head.weight")
        values[60] = 6e4 if value == math.inf else value
        weights.matrices["lm_head.weight"] = weights.fill("fp16", values)
        if value == math.inf:
            weights.vector("model.norm.weight").mul_(1e36)
        ours = tiny.native(weights, threads, isa)
        logits = ours.forward(ids, [0], ours.new_cache(1, 20)).logits
        top = best(ours, ids)
        spoilt = logits.isnan().any(-1) | (logits.amax(-1) == math.inf)
        assert spoilt.any()
        assert torch.equal(top == -1, spoilt)
        if value != math.inf:
            below = best(ours, ids, 60)
            assert (below >= 0).all()
            assert torch.equal(below[good < 60], good[good < 60])


def test_threads_may_share_a_model() -> None:
    """Passes wait for each other; each has its own result."""
    weights = tiny.Weights(tiny.FAMILIES["qwen2"], "int8")
    ours = tiny.native(weights, 2)
    rows = [tiny.tokens(1, 60, seed) for seed in range(4)]
    alone = [tiny.read(ours, ids, [20, 1, 39]) for ids in rows]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            got = pool.map(lambda ids: tiny.read(ours, ids, [20, 1, 39]), rows)
            assert all(torch.equal(a, b) for a, b in zip(alone, got, strict=True))


def best(model: NativeTransformer, ids: Tensor, limit: int | None = None) -> Tensor:
    top = model.best(ids, [0], model.new_cache(1, ids.shape[1]), limit=limit).top
    assert top is not None
    return top


@pytest.fixture(scope="module")
def model() -> NativeTransformer:
    return tiny.native(tiny.Weights(tiny.FAMILIES["llama"]))


class TestRefusals:
    def test_positions_that_do_not_fit(self, model: NativeTransformer) -> None:
        cache = model.new_cache(1, 64)
        for at in (63, -1, 1 << 40):
            with pytest.raises(ValueError, match="do not fit a cache of 64"):
                model.forward(tiny.tokens(1, 2), [at], cache)

    def test_rows_that_do_not_fit(self, model: NativeTransformer) -> None:
        cache, ids = model.new_cache(2, 64), tiny.tokens(2, 2)
        with pytest.raises(ValueError, match="row 2 does not fit a cache of 2"):
            model.forward(ids, [0, 0], cache, row=1)
        with pytest.raises(ValueError, match="row 1 is read into twice"):
            model.forward(ids, [0, 0], cache, rows=[1, 1])
        with pytest.raises(ValueError, match="a row of 2 tokens has not 3"):
            model.forward(ids, [0, 0], cache, counts=[3, 1])
        with pytest.raises(ValueError, match="a pass needs a token"):
            model.forward(ids, [0, 0], cache, counts=[0, 0])

    @pytest.mark.parametrize("token", [-1, tiny.VOCAB])
    def test_tokens_that_are_none(self, model: NativeTransformer, token: int) -> None:
        with pytest.raises(IndexError, match=f"token {token} is none of a vocabulary of 101"):
            model.forward(torch.tensor([[3, token]]), [0], model.new_cache(1, 64))

    @pytest.mark.parametrize(("node", "parent"), [(0, 0), (1, 2), (3, 3), (2, -2), (3, 1 << 40)])
    def test_parents_that_are_no_tree(
        self, model: NativeTransformer, node: int, parent: int
    ) -> None:
        parents = torch.tensor([[-1, 0, 1, 2]] * 2)
        parents[1, node] = parent
        cache = model.new_cache(2, 64)
        with pytest.raises(ValueError, match=f"node {node} cannot follow node {parent}"):
            model.forward(tiny.tokens(2, 3), [1, 1], cache, parents=parents)
        with pytest.raises(ValueError, match="node 3 is not at position 2"):
            model.forward(tiny.tokens(2, 1), [3, 2], cache, parents=parents)

    def test_another_models_cache(self, model: NativeTransformer) -> None:
        other = tiny.native(tiny.Weights(tiny.FAMILIES["gemma3"]))
        with pytest.raises(ValueError, match="another model's"):
            model.forward(tiny.tokens(1, 2), [0], other.new_cache(1, 64))

    def test_a_head_dim_that_no_vector_divides(self) -> None:
        config = replace(tiny.FAMILIES["llama"], head_dim=12)
        with pytest.raises(PacelineError, match="head_dim 12 is no multiple of 8"):
            tiny.native(tiny.Weights(config))


def test_nbytes_is_what_a_pass_reads() -> None:
    weights = tiny.Weights(tiny.FAMILIES["llama"], "int8")
    read = [m for name, m in weights.matrices.items() if "embed_tokens" not in name]
    assert tiny.native(weights).nbytes == sum(m.nbytes for m in read)
