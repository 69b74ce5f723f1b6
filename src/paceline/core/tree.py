"""Trees of drafted tokens, on the host: who follows whom, and how far down it goes."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.types import Draft


def parents_of(draft: Draft, row: int) -> list[int]:
    """The parent of each drafted token of a row; -1: the last committed token."""
    count = draft.lengths[row]
    if draft.parents is None:
        return list(range(-1, count - 1))
    found: list[int] = draft.parents[row, :count].tolist()  # pyright: ignore
    return found


def depths(parents: Sequence[int]) -> list[int]:
    """How many drafted tokens each one has before it on its path."""
    found: list[int] = []
    for parent in parents:
        found.append(found[parent] + 1 if parent >= 0 else 0)
    return found


def heights(parents: Sequence[int]) -> list[int]:
    """[n + 1]: how many tokens follow the last committed one, and each of the n drafted ones, on
    the longest path from there."""
    found = [0] * (len(parents) + 1)
    for node in range(len(parents) - 1, -1, -1):  # a parent stands before its children
        above = parents[node] + 1
        found[above] = max(found[above], found[node + 1] + 1)
    return found


def children(parents: Sequence[int]) -> list[list[int]]:
    """[n + 1]: what follows the last committed token, and each of the n drafted ones, in order."""
    found: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        found[parent + 1].append(node)
    return found


def ancestry(parents: Sequence[int], node: int) -> list[int]:
    """The path to `node`, root first, itself included; empty for -1."""
    path: list[int] = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return path[::-1]
