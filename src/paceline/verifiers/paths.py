"""Verdicts of rules that follow a draft on the host: a chain is a tree of one path."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from paceline.core.tree import children
from paceline.core.types import Draft, Verdict


def follow(
    parents: Sequence[int], tokens: Sequence[int], says: Callable[[int, int], int]
) -> tuple[list[int], int]:
    """Down a row's draft as long as it holds the token that `says(node, n)` gives behind `node`
    (-1: the committed tokens), n nodes down. The nodes of the path, and what is said behind it."""
    below = children(parents)
    path: list[int] = []
    while True:
        token = says(path[-1] if path else -1, len(path))
        behind = below[path[-1] + 1 if path else 0]
        node = next((child for child in behind if tokens[child] == token), None)
        if node is None:
            return path, token
        path.append(node)


def verdict(
    draft: Draft, paths: Sequence[Sequence[int]], last: Sequence[int], device: torch.device
) -> Verdict:
    """Row b accepts the nodes `paths[b]`, root first; `last[b]` is the token behind them."""
    width = draft.tokens.shape[1]
    drafted: list[list[int]] = draft.tokens.tolist()  # pyright: ignore
    tokens = [
        [*(drafted[b][node] for node in path), last[b], *[0] * (width - len(path))]
        for b, path in enumerate(paths)
    ]
    nodes = [[*path, *[-1] * (width - len(path))] for path in paths]
    return Verdict(
        torch.tensor(tokens, dtype=torch.int64, device=device),
        torch.tensor([len(path) for path in paths], device=device),
        None if draft.parents is None else torch.tensor(nodes, dtype=torch.int64, device=device),
    )
