"""Trees: what comes out is distributed exactly as p, and greedy rows say what the target would."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from exact import Q3, Tree, tree
from exact_trees import Drafted, Shape, TreeLaw, independent, merged, tree_law, without_replacement
from fakes import HashLM, run, sequences
from paceline.controllers.fixed import Fixed
from paceline.core.cached import CachedModel
from paceline.core.loop import Loop
from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.core.types import Draft
from paceline.verifiers.candidates import kseq, one_by_one
from paceline.verifiers.rejection import Rejection
from paceline.verifiers.tree import Trees

LEAF: Shape = ()
MIXED: Shape = (((LEAF,), LEAF), LEAF, LEAF)  # three, of which the first has two, …
LATE: Shape = (LEAF, (LEAF, (LEAF,)))

# p, q, and the probability that one of k = 1, 2, 3 candidates is accepted: from the closed forms
P4 = [0.3143595275301861, 0.002948918568854735, 0.20899259664776054, 0.4736989572531987]
Q4 = [0.38739644430358733, 0.3188951052630621, 0.09659569470718252, 0.19711275572616802]
ACCEPTED = {
    "kseq": [0.611017, 0.756076, 0.849994],
    "specinfer": [0.611017, 0.725265, 0.805957],
}


def any_law(seed: int, vocab: int, depth: int, sharpness: float = 1.0) -> Tree:
    """Distributions behind every prefix, in no round numbers."""
    make = torch.Generator().manual_seed(seed)
    return {
        x: (torch.randn(vocab, generator=make, dtype=torch.float64) * sharpness).softmax(0).tolist()
        for x in tree(seed, vocab, depth)
    }


def siblings_leave_p_as_it_is(seed: int, shape: Shape = MIXED, depth: int = 3) -> TreeLaw:
    """Drawn without replacement, in eighths, with zeros and sure tokens."""
    p, q = tree(seed, 3, depth), tree(seed + 1, 3, depth - 1, Q3)
    found = tree_law(p, without_replacement(q, shape), one_by_one)
    assert found.error <= 1e-9
    return found


def continuations_leave_p_as_it_is(
    rule: str, p: Tree, q: Tree, lengths: Sequence[int] = (2, 2)
) -> TreeLaw:
    """Drawn independently of each other."""
    found = tree_law(p, independent(q, lengths), kseq if rule == "kseq" else one_by_one)
    assert found.error <= 1e-9
    return found


def siblings_are_lossless() -> None:
    """A few of them."""
    for seed in (1, 2, 3):
        siblings_leave_p_as_it_is(seed)


def continuations_are_lossless() -> None:
    """A few of them: some agree, in the first token or altogether."""
    for rule in ("kseq", "specinfer"):
        continuations_leave_p_as_it_is(rule, any_law(6, 3, 1), any_law(7, 3, 0), [1, 1, 1])
        continuations_leave_p_as_it_is(rule, any_law(4, 2, 2), any_law(5, 2, 1))


def continuations_are_accepted() -> None:
    """As often as the rules promise: K-SEQ 1 - (1 - b)^k with b = Σ min(p/r, q), SpecInfer
    1 - Π (1 - Σ min(p_j, q)), where p_1 is p and each further one the residual."""
    p, q = dict.fromkeys(tree(0, 4, 1), P4), {(): Q4}
    for rule, right in ACCEPTED.items():
        for k, share in enumerate(right, 1):
            found = continuations_leave_p_as_it_is(rule, p, q, [1] * k)
            assert abs(found.hit - share) <= 1e-6


def drafted(rows: Sequence[tuple[list[int], list[int], object]]) -> Draft:
    """Rows of tokens and parents, which nobody drew, as a draft."""
    lengths = [len(tokens) for tokens, *_ in rows]
    width = max(lengths)
    tokens, parents = (
        torch.tensor([row[i] + [fill] * (width - len(row[i])) for row in rows])
        .reshape(len(rows), width)
        .long()
        for i, fill in enumerate([0, -1])
    )
    return Draft(tokens, lengths, None, parents)


def fixed(paths: Sequence[Sequence[int]]) -> Drafted:
    """A draft that nobody drew."""
    return Drafted(1.0, *merged(paths)[:2])


class Bushy:
    """Drafts the tree of the paths that `script(ids)` gives for the committed ids of each row."""

    def __init__(self, script: Callable[[list[int]], Sequence[Sequence[int]]]) -> None:
        self.script = script

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        return drafted(
            [
                merged(self.script(seqs.committed(b).tolist())) if seqs.running[b] else ([], [], [])
                for b in range(seqs.batch)
            ]
        )


def around(truths: Sequence[Sequence[int]], vocab: int, good: int = 2) -> Bushy:
    """Trees with `good` right tokens in a row. On every level, also behind the last of them, two
    wrong ones come first, each with a child. A row knows its truth by what is committed."""

    def script(ids: list[int]) -> list[list[int]]:
        truth = next((t for t in truths if list(t[: len(ids)]) == ids), None)
        if truth is None:
            return []
        rest = [*truth[len(ids) :], *[0] * good, 0]
        wrong = [[*rest[:i], (rest[i] + j) % vocab, j] for i in range(good + 1) for j in (1, 2)]
        return [*wrong, rest[:good]]

    return Bushy(script)


def greedy_trees_say_what_the_target_would(model: Callable[[], object] = HashLM) -> None:
    """Through the whole loop, rows side by side, right and wrong siblings, and deep enough that
    misplaced entries of an earlier tree would be read."""
    params = SamplingParams(temperature=0, max_tokens=20)
    prompts = [[1, 2, 3], [4], [5, 6]]
    plain = run(model(), prompts, params).ids
    truths = [[*ids, *new] for ids, new in zip(prompts, plain, strict=True)]
    for good in (0, 1, 3):
        drafter = around(truths[:2], 11, good)  # the third row drafts nothing
        found = run(model(), prompts, params, drafter, verifier=Trees(Rejection()))
        assert found.ids == plain
        assert max(e.accepted for row in found.emitted for e in row) == good


def refused_nodes_leave_nothing_in_the_cache() -> None:
    """After a round the cache holds the accepted path alone, whether there is one or not."""
    model, prompts = HashLM(), [[1, 2, 3], [4, 5]]
    params = SamplingParams(temperature=0, max_tokens=9)
    plain = run(model, prompts, params).ids
    truths = [[*ids, *new] for ids, new in zip(prompts, plain, strict=True)]
    for good in (0, 2):
        seqs = sequences(prompts, params)
        target = CachedModel(model, 2, 256)
        loop = Loop(target, around(truths, 11, good), Trees(Rejection()), Fixed(4))
        round = loop.step(seqs)
        assert round.draft.lengths == [4 * (good + 1) + good] * 2
        assert [e.accepted for e in round.emitted if e] == [good, good]
        for b, ids in enumerate(prompts):
            known = len(ids) + good  # the target's own token is pending
            assert target.filled[b] == target.seen(seqs, b) == known == seqs.lengths[b] - 1
            assert target.ids[b, :known].tolist() == truths[b][:known]
