"""One request while it runs: from what rounds emit to pieces of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import torch

from paceline.core.params import SamplingParams
from paceline.core.types import Emitted, Round
from paceline.text.completion import Completion, Piece, RequestStats, Token
from paceline.text.making import makings
from paceline.text.stream import TextStream
from paceline.text.tokenizer import Tokenizer


class Request:
    """One request while it runs: cuts at stop strings, counts, and builds the `completion` of the
    prompt `ids`. `lossless`: of its stats. `began`: when, by `perf_counter`. `rounds`: its pieces
    hold the rounds that made them (see `Seen`). `name`: what it is called outside."""

    def __init__(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        tokenizer: Tokenizer,
        lossless: bool,
        rounds: bool = False,
        name: str | None = None,
    ) -> None:
        self.ids = ids
        self.name = name
        self.params = params
        self.rounds = rounds
        self.began = perf_counter()
        self.completion = Completion(len(ids), stats=RequestStats(lossless=lossless))
        self._text = TextStream(tokenizer, params.stop)

    def limit(self, context: int) -> int:
        """How many tokens of prompt and output there may be, within `context`."""
        most = self.params.max_tokens
        return context if most is None else min(context, len(self.ids) + most)

    def add(self, round: Round, row: int, emitted: Emitted) -> tuple[Emitted, Piece]:
        """Take what one round emitted for this request, which had that row of it. What of it
        counts: a stop string ends the answer before what was emitted behind it; and the piece."""
        done, stats = self.completion, self.completion.stats
        before = self._text.kept
        texts = [self._text.push([id]) for id in emitted.tokens]
        if self._text.stopped is not None:  # plain decoding would have stopped here
            kept = emitted.tokens[: self._text.kept - before]
            accepted = min(emitted.accepted, len(kept))
            emitted = replace(emitted, tokens=kept, accepted=accepted, finish="stop")
        tokens = self._tokens(round, row, emitted, texts)
        if emitted.finish:
            done.finish_reason = emitted.finish
            rest = self._text.finish()
            if rest and tokens:  # what was held back belongs to the token that ended it
                tokens[-1] = replace(tokens[-1], text=tokens[-1].text + rest)
        done.tokens += tokens
        stats.add(emitted, round.seconds)
        stats.total_s = perf_counter() - self.began
        if stats.rounds == 1:
            stats.first_round, stats.ttft_s = len(emitted.tokens), stats.total_s
        return emitted, Piece(tokens, emitted.drafted)

    def end(self, reason: str) -> None:
        """End it for a reason from outside. Text that was held back is no part of it."""
        self.completion.finish_reason = reason
        self.completion.stats.total_s = perf_counter() - self.began

    def _tokens(self, round: Round, row: int, emitted: Emitted, texts: list[str]) -> list[Token]:
        parts = zip(emitted.tokens, texts, emitted.origins(), strict=False)
        plain = [Token(id, text, origin) for id, text, origin in parts]
        path, wanted = _path(round, row, emitted.accepted), self.params.logprobs
        if self.params.trace and plain:
            made = makings(round, row, self.params, path, emitted.tokens)
            plain = [replace(t, making=m) for t, m in zip(plain, made, strict=True)]
        if wanted is None or not plain:
            return plain
        assert round.target.logits is not None  # `argmax_suffices` saw to it
        places = [0, *(node + 1 for node in path)][: len(plain)]
        scores = round.target.logits[row, places].float().log_softmax(-1)
        own = scores.gather(-1, torch.tensor(emitted.tokens, device=scores.device)[:, None])
        best = scores.topk(min(wanted, scores.shape[-1]), dim=-1)
        tops = [
            dict(zip(ids, values, strict=True))
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
        return [
            replace(token, logprob=logprob[0], top=top)
            for token, logprob, top in zip(plain, own.tolist(), tops, strict=True)
        ]


def _path(round: Round, row: int, accepted: int) -> list[int]:
    """The drafted tokens that a row accepted, as indices in its draft."""
    path = round.verdict.path
    return list(range(accepted)) if path is None else path[row, :accepted].tolist()
