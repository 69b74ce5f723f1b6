"""A model of another vocabulary guesses tokens that both vocabularies have (TLI, token-level
intersection; Timor et al. 2025, arXiv 2502.05202, Algorithm 4).

q'(x) = q(x) / Σ_{y ∈ T∩D} q(y) for the strings x that target and draft share, 0 elsewhere; then
accept with min(1, p/q') and correct from norm(max(0, p - q')) over all of T, as ever. q' is what
was drawn from, so the usual proof holds whatever the overlap; and q' >= q on T∩D, so that
Σ min(p, q') is at least what proposing from q and losing the rest would get.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.core.sequences import Sequences
from paceline.core.shape import distribution
from paceline.core.types import Draft
from paceline.drafters.translated import Reader


class TranslateVocab:
    """Drafts for the rows that are drawn: those with a temperature, or all at `temperature`.

    `to_target[d]`: the target's id of the same string as the draft's d, -1 for none; `to_draft[t]`
    the other way. q is over the target's ids. The mask comes before top-k, top-p and min-p, so that
    these leave something. Of ids of the draft's that spell the same, q adds up.
    """

    def __init__(
        self,
        reader: Reader,
        to_target: Sequence[int],
        to_draft: Sequence[int],
        temperature: float | None = None,
    ) -> None:
        self.reader = reader
        self.temperature = temperature
        targets = torch.tensor(to_target, device=reader.device)
        self._shared = (targets >= 0).nonzero()[:, 0]
        self._targets = targets[self._shared]
        self._to_draft = torch.tensor(to_draft, device=reader.device)

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """`k[b]` tokens for each running row that is drawn, fewer at the end of the draft model's
        context and where it gives no distribution; none for the others."""
        drawn = [n if self._temperature(seqs, b) > 0 else 0 for b, n in enumerate(k)]
        lengths = self.reader.follow(seqs, drawn)
        width = max(lengths)
        if not width or not len(self._shared):
            return Draft(torch.zeros(seqs.batch, 0, dtype=torch.int64), [0] * seqs.batch)
        q = [self._first(seqs, lengths)]
        tokens = [seqs.draw_draft(q[0], 0)]
        fed = self._fed(tokens[0], lengths)
        for j in range(1, width):
            logits = self.reader.extend(fed, j - 1)
            q.append(self._q(seqs, logits, [b for b, n in enumerate(lengths) if n > j]))
            tokens.append(seqs.draw_draft(q[-1], j))
            fed = self._to_draft[tokens[-1].clamp(min=0)]
        drafted = torch.stack(tokens, 1)
        sound: list[int] = (drafted >= 0).long().cumprod(-1).sum(-1).tolist()  # pyright: ignore
        lengths = [min(n, most) for n, most in zip(lengths, sound, strict=True)]
        return Draft(drafted.clamp(min=0), lengths, torch.stack(q, 1))

    def _first(self, seqs: Sequences, lengths: Sequence[int]) -> Tensor:
        """q' [B, V] of the first token. Where the draft model might rather have said a longer token
        than the row's last one (see `Reader.longer`), it is a mixture: of what follows the
        last, and of what the longer ones add, by the shares of these behind the ids before."""
        rows = [b for b, n in enumerate(lengths) if n]
        longer = {b: table for b in rows if (table := self._longer(b))}
        before = self.reader.before(longer) if longer else None
        q = self._q(seqs, self.reader.read(), rows)
        for b, table in longer.items():
            assert before is not None
            ids = [self.reader.last(b), *table.values()]
            share = distribution(before[b : b + 1, ids], seqs.params[b], self._temperature(seqs, b))
            added = torch.tensor(list(table), device=q.device)
            q[b] = (q[b] * share[0, 0]).index_add_(0, added, share[0, 1:])
        return q

    def _fed(self, tokens: Tensor, lengths: Sequence[int]) -> Tensor:
        """The draft's ids for the first `tokens` [B]; joined to the last one where it can be."""
        fed = self._to_draft[tokens.clamp(min=0)]
        for b, n in enumerate(lengths):
            if n and (table := self._longer(b)) and (longer := table.get(int(tokens[b]))):
                fed[b] = longer
                self.reader.replace_last(b)
        return fed

    def _longer(self, row: int) -> dict[int, int]:
        """What may be joined to the row's last id: the draft's longer id for each token of the
        target's."""
        table = self.reader.longer(row)
        return {token: longer for longer, token in table.items() if token >= 0}

    def _temperature(self, seqs: Sequences, row: int) -> float:
        return seqs.params[row].temperature if self.temperature is None else self.temperature

    def _q(self, seqs: Sequences, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """q' [B, V] of `rows` from `logits` over the draft's ids; zero for the others."""
        q = torch.zeros(len(logits), len(self._to_draft), device=logits.device)
        for b in rows:
            shared = logits[b : b + 1, self._shared]
            mass = distribution(shared, seqs.params[b], self._temperature(seqs, b))[0]
            q[b].index_add_(0, self._targets, mass)
        return q
