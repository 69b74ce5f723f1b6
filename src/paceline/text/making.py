"""How the tokens of a round were made: for those who want to see it."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.params import SamplingParams
from paceline.core.tree import parents_of
from paceline.core.types import Round
from paceline.text.completion import Making


def makings(
    round: Round, row: int, params: SamplingParams, path: Sequence[int], tokens: Sequence[int]
) -> list[Making]:
    """Of each of `tokens`, which that row emitted in the round: the accepted drafted ones on
    `path`, and perhaps one of the target."""
    parents = parents_of(round.draft, row)
    found: list[Making] = []
    for i, token in enumerate(tokens):
        above = path[i - 1] if i else -1
        node = path[i] if i < len(path) else _first_child(parents, above)
        p = _p(round, row, params, above + 1, token)
        if node is None:
            found.append(Making(p))
        else:
            proposed = int(round.draft.tokens[row, node])
            found.append(Making(p, proposed, _q(round, row, node, proposed)))
    return found


def _first_child(parents: Sequence[int], node: int) -> int | None:
    return next((child for child, parent in enumerate(parents) if parent == node), None)


def _p(round: Round, row: int, params: SamplingParams, place: int, token: int) -> float:
    target = round.target
    if not params.greedy:
        assert target.dense is not None
        return float(target.dense[list(target.sampled).index(row), place, token])
    assert target.logits is not None  # `argmax_suffices` saw to it
    logits = target.adjusted.get(row, target.logits[row])[place]
    return float(logits.float().softmax(-1)[token])


def _q(round: Round, row: int, node: int, token: int) -> float:
    q = round.draft.q
    return 1.0 if q is None else float(q[row, node, token])
