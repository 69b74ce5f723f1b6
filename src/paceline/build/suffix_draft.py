"""`suffix` and `suffix:DEPTH`: what most often followed these words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from paceline.build.models import Loaded, Models
from paceline.core.cached import CachedModel
from paceline.core.protocols import Drafter
from paceline.drafters.suffix import DEEPEST, DEPTH, Suffix
from paceline.drafters.suffix_corpus import SuffixCorpus
from paceline.errors import PacelineError
from paceline.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from paceline.build.drafts import DraftSetting, MakesPart
    from paceline.build.trees import PaceFor


def check(value: str) -> int:
    """The DEPTH of suffix:DEPTH, the most words that are matched; 24 if there is none."""
    if not value:
        return DEPTH
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= DEEPEST:
        raise PacelineError(f"suffix:{value}: the depth must be 1 to {DEEPEST} tokens")
    return int(value)


def make(value: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    """Drafts from the request, and from the corpus that `setting` names."""
    depth, corpus = check(value), setting.suffix_corpus

    def build(batch: int, length: int, target: CachedModel, pace: PaceFor | None = None) -> Drafter:
        return Suffix(depth, corpus, branches=setting.shape.is_tree)

    return build


def open_corpus(path: str, target: Loaded) -> SuffixCorpus:
    """The corpus in the file at `path`, for outputs of `target`; see `SuffixCorpus`."""
    size = min(target.tokenizer.size, target.model.vocab_size)
    return SuffixCorpus(Path(path).expanduser(), _identity(target), size)


def _identity(target: Loaded) -> str:
    """Whose outputs they are: the weight format does not matter, the tokenizer does."""
    name = target.name.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return f"{name} (tokenizer {_digest(target.tokenizer):08x})"


def _digest(tokenizer: Tokenizer) -> int:
    return crc32("\0".join(map(tokenizer.token_text, range(tokenizer.size))).encode())
