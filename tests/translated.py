"""Drafters whose model has another vocabulary, from tokenizers that can be read off the page."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.build.drafts import DraftSetting
from paceline.build.models import Loaded
from paceline.build.translated import make_translated
from paceline.core.cached import CachedModel
from paceline.core.sequences import Sequences
from paceline.core.types import Output
from paceline.drafters.translate_text import TranslateText
from paceline.drafters.translate_vocab import TranslateVocab
from paceline.drafters.translated import Reader
from paceline.errors import PacelineError
from paceline.text.tokenizer import Tokenizer
from paceline.text.translate import Translation
from paceline.text.vocabulary import Kind, Vocabulary


def pieces(*tokens: str, add_bos: bool = False) -> Tokenizer:
    """Longest match first. Tokens like "<end>" are control tokens; "<bos>" is the first one."""
    known = {token: i for i, token in enumerate(tokens) if not token.startswith("<")}

    def encode(text: str, special: bool) -> list[int]:
        ids: list[int] = []
        while text:
            fits = [token for token in known if text.startswith(token)]
            if not fits:
                raise PacelineError(f"no token for {text[0]!r}")
            best = max(fits, key=len)
            ids.append(known[best])
            text = text[len(best) :]
        return ids

    return Tokenizer(
        Vocabulary(
            tokens=list(tokens),
            kinds=[Kind.CONTROL if t.startswith("<") else Kind.NORMAL for t in tokens],
            spell=str.encode,
            encode=encode,
            bos_id=tokens.index("<bos>") if "<bos>" in tokens else None,
            eos_ids=(),
            add_bos=add_bos,
            chat_template=None,
        )
    )


class Permuted:
    """`model` under other numbers: id d stands for the model's id `order[d]`."""

    def __init__(self, model, order: Sequence[int]) -> None:
        self.model, self.order = model, torch.tensor(order)
        self.vocab_size, self.context, self.device = len(order), model.context, model.device

    def new_cache(self, batch: int, length: int) -> object:
        return self.model.new_cache(batch, length)

    def forward(
        self, tokens: Tensor, at: Sequence[int], cache, *, row: int = 0, logits: bool = True
    ) -> Output:
        output = self.model.forward(self.order[tokens], at, cache, row=row)
        return Output(output.logits[..., self.order])


def translation(target: Tokenizer, draft: Tokenizer) -> Translation:
    return Translation(target, draft, target.size, draft.size)


def reader(
    model, table: Translation, seqs: Sequences, context: int = 1 << 20, length: int | None = None
) -> Reader:
    size = len(table.to_target)
    return Reader(
        lambda room: CachedModel(model, seqs.batch, room, size),
        table,
        seqs.batch,
        length or seqs.tokens.shape[1],
        context,
    )


def by_token(model, target: Tokenizer, draft: Tokenizer, temperature=None, **room: int):
    table = translation(target, draft)
    return lambda seqs: TranslateVocab(
        reader(model, table, seqs, **room), table.to_target, table.to_draft, temperature
    )


def by_text(model, target: Tokenizer, draft: Tokenizer, **room: int):
    table = translation(target, draft)
    return lambda seqs: TranslateText(reader(model, table, seqs, **room), table)


class _Models:
    """What `make_translated` asks of a `Models`: one model, and an ear for its notes."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.notes = loaded, []
        self.note = self.notes.append

    def __call__(self, name: str) -> Loaded:
        return self.loaded


def as_built(model, draft_model, target: Tokenizer, draft: Tokenizer, temperature=None):
    """The drafter as `--draft model:NAME` makes it, and what it notes."""
    models = _Models(Loaded("small", draft_model, draft, "fp32"))
    setting = DraftSetting(temperature)
    make = make_translated("small", setting, Loaded("big", model, target, "fp32"), models)  # type: ignore[arg-type]
    return lambda seqs: make(seqs.batch, seqs.tokens.shape[1], None), models.notes  # type: ignore[arg-type]
