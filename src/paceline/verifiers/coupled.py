"""Coupled verification: the same sampled tokens whatever drafts (Daliri et al. 2024, arXiv
2408.07978, drafter-invariant speculative decoding by Gumbel coupling).

The target's token at a position is drawn by an exponential race of p, whose noise is fixed by the
request's seed, the position and the tokens' ids (see `race`). A drafted token is accepted exactly
if it is that token, and the token behind the accepted ones is that token too.

Why it is lossless: every emitted token is one draw from p by a race of its own, independent of all
races before. The draft decides how many of them a round shows, never which: any drafter, any K and
none at all give the same output. A drafter that draws from q by the same races (see
`Sequences.coupled`) is accepted with a probability of at least (1 - TV(p, q)) / (1 + TV(p, q)).
"""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.noise import Noise, race
from paceline.core.target import Target
from paceline.core.tree import parents_of
from paceline.core.types import Draft, Verdict
from paceline.verifiers.paths import follow, verdict


class Coupled:
    """For chains and trees; greedy rows take the greedy rule, which has this property anyway."""

    lossless = True

    def verify(self, p: Target, draft: Draft, noise: Noise) -> Verdict:
        """Uses `noise.seeds` and `noise.bases`, for sampled rows."""
        drafted: list[list[int]] = draft.tokens.tolist()  # pyright: ignore
        top: list[list[int]] = p.top.tolist()  # pyright: ignore
        place = {b: r for r, b in enumerate(p.sampled)}

        def target_of(b: int) -> Callable[[int, int], int]:
            """What the target says in row b behind a drafted token, so many of them down."""
            if p.dense is None or b not in place:
                return lambda node, n: top[b][node + 1]
            law = p.dense[place[b]]
            seed, base = noise.seeds[b], noise.bases[b]
            return lambda node, n: int(race(law[node + 1 : node + 2], [seed], [base + n]))

        found = [follow(parents_of(draft, b), drafted[b], target_of(b)) for b in range(len(top))]
        return verdict(draft, [path for path, _ in found], [t for _, t in found], p.top.device)
