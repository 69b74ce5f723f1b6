"""A block that is trained by what thin matrices add to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from kernels.tiny_decoders import FAMILIES
from paceline.distill.blocks import Block
from paceline.distill.jump import merged
from paceline.distill.lowrank import LowRank, adapt

LINEARS = 7  # q, k, v, o, gate, up, down


def block(family: str = "qwen2") -> Block:
    """A frozen random one."""
    make = torch.Generator().manual_seed(3)
    made = Block(replace(FAMILIES[family]), 0)
    with torch.no_grad():
        for value in made.parameters():
            value.copy_(torch.randn(value.shape, generator=make) * value.shape[-1] ** -0.5)
    return made.requires_grad_(False)


def states(seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 9, 72, generator=torch.Generator().manual_seed(seed))


PLACES = torch.arange(9)


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("rank", [1, 4, -1])
def test_it_starts_as_the_block_itself(family: str, rank: int) -> None:
    plain, adapted = block(family), block(family)
    adapt(adapted, rank)
    assert torch.equal(adapted(states(), PLACES)[0], plain(states(), PLACES)[0])
    whole = merged(adapted)
    assert {*whole} == {*plain.state_dict()}
    for name, value in plain.state_dict().items():
        assert torch.equal(whole[name], value)


def test_what_is_trained_is_what_was_added() -> None:
    adapted = block()
    adapt(adapted, 4)
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * LINEARS
    assert {name.rpartition(".")[2] for name in trained} == {"a", "b"}
    assert trained["mlp.down_proj.a"].shape == (4, 52)
    assert trained["mlp.down_proj.b"].shape == (72, 4)
    whole = block()
    adapt(whole, -1)
    names = {n for n, p in whole.named_parameters() if p.requires_grad}
    assert names == {n for n, _ in block().named_parameters() if "norm" not in n}


@pytest.mark.parametrize("rank", [2, -1])
def test_merged_is_what_it_computes_after_training(rank: int) -> None:
    """A block with the merged tensors in it gives the same states, and has moved."""
    adapted, other = block(), block()
    adapt(adapted, rank)
    leaves, make = [p for p in adapted.parameters() if p.requires_grad], torch.Generator()
    for value in leaves:
        value.data += 0.3 * torch.randn(value.shape, generator=make.manual_seed(len(value)))
    adapted(states(), PLACES)[0].pow(2).mean().backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in leaves)
    tensors = merged(adapted)
    assert not any(value.requires_grad for value in tensors.values())
    other.load_state_dict(tensors)
    found, wanted = (b(states(5), PLACES)[0].detach() for b in (other, adapted))
    assert float((found - wanted).abs().max()) < 1e-5
    assert float((found - block()(states(5), PLACES)[0]).abs().max()) > 1e-2


@torch.no_grad()
def test_one_linear() -> None:
    linear = nn.Linear(5, 3).requires_grad_(False)
    low = LowRank(linear, 2)
    x = torch.randn(4, 5)
    assert torch.equal(low(x), linear(x))
    low.b.data.normal_()
    right = x @ (linear.weight + low.b @ low.a).T + linear.bias
    assert float((low(x) - right).abs().max()) < 1e-5
    assert float((low.merged() - linear.weight - low.b @ low.a).abs().max()) < 1e-6
    assert [*low.state_dict()] == ["a", "b"]  # the target's own stays where it is
