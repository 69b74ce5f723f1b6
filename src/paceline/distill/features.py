"""What the target makes of its answers: computed anew for every batch, never stored in bulk."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.core.protocols import Model, Ranks, Tapped
from paceline.core.types import Output
from paceline.distill.data import Answer
from paceline.distill.trainee import Batch, Needs
from paceline.errors import PacelineError


class Features:
    """Reads rows with `model` and keeps what `needs` names, on `device`. `vocab`: how many ids the
    tokenizer knows (a model's output may be wider).

    Raises PacelineError for a model whose states in between cannot be had.
    """

    def __init__(self, model: Model, needs: Needs, vocab: int, device: torch.device) -> None:
        if not isinstance(model, Tapped):
            raise PacelineError(
                "this model's states in between cannot be had (it runs through transformers); "
                "train on one of an architecture that Paceline implements itself"
            )
        self._model = model.tapped(needs.taps)
        self._needs = needs
        self._vocab = min(vocab, model.vocab_size)
        self._device = device

    @torch.no_grad()
    def read(self, rows: Sequence[Answer]) -> Batch:
        """The batch of these rows. Takes memory for one pass over them."""
        ids = [row.ids for row in rows]
        lengths = [len(each) for each in ids]
        tokens = torch.zeros(len(rows), max(lengths), dtype=torch.int64)
        for b, each in enumerate(ids):
            tokens[b, : len(each)] = torch.tensor(each)
        cache = self._model.new_cache(*tokens.shape)
        output = self._forward(tokens.to(self._model.device), cache)
        assert output.hidden is not None
        assert output.top is not None
        hidden = output.hidden.unflatten(-1, (len(self._needs.taps), -1))
        keys = values = None
        if self._needs.cache:
            data = cache.data[list(self._needs.cache), :, : len(rows), :, : tokens.shape[1]]
            keys, values = (self._moved(data[:, part]) for part in (0, 1))
        return Batch(
            tokens=tokens.to(self._device),
            lengths=lengths,
            starts=[max(1, len(row.prompt_ids)) for row in rows],
            lines=[row.line for row in rows],
            hidden=self._moved(hidden),
            top=output.top.to(self._device),
            keys=keys,
            values=values,
        )

    def _forward(self, tokens: Tensor, cache: object) -> Output:
        at = [0] * len(tokens)
        if isinstance(self._model, Ranks):
            return self._model.best(tokens, at, cache, limit=self._vocab)
        output = self._model.forward(tokens, at, cache)
        assert output.logits is not None
        return Output(None, output.hidden, output.logits[..., : self._vocab].argmax(-1))

    def _moved(self, part: Tensor) -> Tensor:
        return part.to(self._device, torch.float32)
