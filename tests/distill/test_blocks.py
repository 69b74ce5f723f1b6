"""The torch blocks against the transformer that they are copies of, in every family."""

from __future__ import annotations

import pytest
import torch

from distill.makers import target, teacher
from models import families

CLOSE = {"atol": 1e-4, "rtol": 1e-4}
COUNT = 20  # longer than the window


@pytest.fixture(scope="module", params=families.CASES)
def read(request, tmp_path_factory):
    """(the blocks, the states that enter and leave them [L+1, B, T, D], their cache)"""
    folder = tmp_path_factory.mktemp("model")
    families.save(request.param, folder)
    model, source = target(folder), teacher(folder)
    layers = source.config.layers
    tapped = model.tapped(range(layers + 1))
    cache = tapped.new_cache(2, COUNT)
    with torch.no_grad():
        out = tapped.forward(families.tokens(2, COUNT), [0, 0], cache)
        states = out.hidden.unflatten(-1, (layers + 1, -1)).movedim(2, 0)
    return [source.block(i) for i in range(layers)], states, cache.data[..., :COUNT, :]


def test_a_block_gives_the_models_states_keys_and_values(read):
    blocks, states, cache = read
    for i, block in enumerate(blocks):
        out, (keys, values) = block(states[i], torch.arange(COUNT))
        torch.testing.assert_close(out, states[i + 1], **CLOSE)
        torch.testing.assert_close(keys, cache[i, 0], **CLOSE)
        torch.testing.assert_close(values, cache[i, 1], **CLOSE)
        assert not any(p.requires_grad for p in block.parameters())


def test_unrolled_over_the_targets_cache_true_states_give_the_targets_states(read):
    """Anchor t at step j reads the state that stands at t+1+j over the cache up to t and its own
    earlier entries. Where those are the true ones, what comes out is the target's own state."""
    blocks, states, cache = read
    steps, index = 4, torch.arange(COUNT - 4)
    for i, block in enumerate(blocks):
        own = []
        for j in range(steps):
            at = index + 1 + j
            out, entry = block(
                states[i][:, at], at, context=(cache[i, 0], cache[i, 1]), seen=index + 1, own=own
            )
            torch.testing.assert_close(out, states[i + 1][:, at], **CLOSE)
            own.append(entry)


def test_an_anchor_sees_nothing_behind_what_it_was_given(read):
    blocks, states, cache = read
    torn = cache.clone()
    torn[..., 8:, :] = 1e4
    for i, block in enumerate(blocks):
        outs = [
            block(states[i][:, 8:9], torch.tensor([8]), (c[i, 0], c[i, 1]), torch.tensor([8]))[0]
            for c in (cache, torn)
        ]
        torch.testing.assert_close(outs[0], outs[1], atol=0, rtol=0)


def test_gradients_reach_the_weights_and_every_input(read):
    blocks, states, cache = read
    block = blocks[-1].requires_grad_(True)
    x = states[-2][:, 1:].clone().requires_grad_(True)
    places = torch.arange(COUNT - 1)
    first, entry = block(x, places + 1, (cache[-1, 0], cache[-1, 1]), places + 1)
    second, _ = block(first, places + 2, (cache[-1, 0], cache[-1, 1]), places + 1, [entry])
    second.square().mean().backward()
    assert x.grad is not None
    assert x.grad.abs().amax(-1).gt(0).all()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in block.parameters())
    block.requires_grad_(False).zero_grad()


def test_the_teacher_gives_embedding_and_output_rows_as_the_model_has_them(tmp_path):
    families.save("gemma3", tmp_path)
    model, source = target(tmp_path), teacher(tmp_path)
    ids = families.tokens(2, 9)
    with torch.no_grad():
        tapped = model.tapped([0, source.config.layers])
        out = tapped.forward(ids, [0, 0], tapped.new_cache(2, 9))
    entering, leaving = out.hidden.chunk(2, -1)
    torch.testing.assert_close(source.embed(ids), entering, **CLOSE)
    normed = torch.nn.functional.rms_norm(
        leaving, (leaving.shape[-1],), source.norm(), source.config.eps
    )
    rows = torch.tensor([3, 7, 50])
    torch.testing.assert_close(normed @ source.head(rows).T, out.logits[..., rows], **CLOSE)
