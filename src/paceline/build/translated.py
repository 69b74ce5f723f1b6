"""Draft models with another vocabulary than the target's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.core.cached import CachedModel
from paceline.core.protocols import Drafter
from paceline.drafters.first_of import FirstOf
from paceline.drafters.translate_text import TranslateText
from paceline.drafters.translate_vocab import TranslateVocab
from paceline.drafters.translated import Reader
from paceline.text.translate import Translation

if TYPE_CHECKING:
    from paceline.build.drafts import DraftSetting, MakesPart
    from paceline.build.models import Loaded, Models
    from paceline.build.trees import PaceFor
    from paceline.text.tokenizer import Tokenizer


def needs_translation(target: Tokenizer, draft: Tokenizer) -> bool:
    """Whether some id means one thing to the target and another to the draft."""
    return target.same_tokens(draft).first is not None


def make_translated(name: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    """The model `name` as a drafter whose tokens are translated: rows that are drawn by the tokens
    that both vocabularies have, the others by text. Says on `models.note` how many those are."""
    draft = models(name)
    vocab = min(draft.tokenizer.size, draft.model.vocab_size)
    table = Translation(
        target.tokenizer,
        draft.tokenizer,
        min(target.tokenizer.size, target.model.vocab_size),
        vocab,
    )
    models.note(table.message(target.name, name))
    if setting.shape.is_tree:
        models.note(f"{name} is translated: it drafts chains, whatever --nodes and --branches say")

    def make(batch: int, length: int, target: CachedModel, pace: PaceFor | None = None) -> Drafter:
        reader = Reader(
            lambda room: CachedModel(draft.model, batch, room, vocab),
            table,
            batch,
            length,
            draft.model.context,
        )
        by_token = TranslateVocab(reader, table.to_target, table.to_draft, setting.temperature)
        return FirstOf(by_token, TranslateText(reader, table))

    return make
