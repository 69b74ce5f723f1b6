"""Rows of different lengths, read in one pass without padding."""

from __future__ import annotations

import pytest
import torch

from kernels import tiny_decoders as tiny
from paceline import kernels

ISAS = kernels.load().isas()


@pytest.mark.parametrize("isa", ISAS)
def test_rows_of_any_length_go_anywhere_in_a_cache(isa: str) -> None:
    """Each with as many tokens as it has, none allowed, and nothing else is written to: logits,
    likeliest tokens, states and a tree's nodes are to the bit those of the row alone."""
    model = tiny.native(tiny.Weights(tiny.FAMILIES["llama"]), 2, isa)
    ids = tiny.tokens(4, 90)
    whole = torch.cat([tiny.read(model, ids[b : b + 1], [90]) for b in range(4)])
    cache, into, at = model.new_cache(6, 128), [4, 0, 5, 2], [20, 1, 7, 33]
    for b, row in enumerate(into):
        model.forward(ids[b : b + 1, : at[b]], [0], cache, row=row, logits=False)
    kept = cache.data.clone()
    for counts in ([3, 0, 1, 5], [0, 1, 0, 0], [1, 40, 2, 30], [9, 9, 9, 9]):
        width = max(counts)
        piece = torch.full((4, width), 10**6)  # what stands behind is no token
        for b, n in enumerate(counts):
            piece[b, :n] = ids[b, at[b] : at[b] + n]
        logits = model.forward(piece, at, cache, rows=into, counts=counts).logits
        top = model.best(piece, at, cache, rows=into, counts=counts).top
        for b, n in enumerate(counts):
            wanted = whole[b, at[b] : at[b] + n]
            assert torch.equal(logits[b, :n], wanted)
            assert torch.equal(top[b, :n], wanted.argmax(-1))
            at[b] += n
    for row in (1, 3):
        assert torch.equal(cache.data[:, :, row], kept[:, :, row])
    assert not cache.data[:, :, 0, :, at[1] :].any()
    paths = torch.tensor(
        [[-1, 0, 0, 1, -1], [-1, 0, 1, 2, 3], [-1, -1, -1, 1, 1], [-1, 0, 1, 1, 0]]
    )
    nodes, counts = tiny.tokens(4, 5, 3), [5, 0, 2, 4]
    logits = model.forward(nodes, at, cache, parents=paths, rows=into, counts=counts).logits
    for b, n in enumerate(counts):
        if n:
            alone = {"parents": paths[b : b + 1, :n], "row": into[b]}
            one = model.forward(nodes[b : b + 1, :n], at[b : b + 1], cache, **alone).logits
            assert torch.equal(logits[b, :n], one[0])
