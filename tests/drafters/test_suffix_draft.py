"""The words `suffix` and `suffix:DEPTH`, and whose corpus a file is."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_tokenizer import ByteTokenizer
from fakes import HashLM, sequences
from paceline.build.drafts import DraftSetting
from paceline.build.models import Loaded
from paceline.build.suffix_draft import check, make, open_corpus
from paceline.core.params import SamplingParams
from paceline.errors import PacelineError


class OtherTokenizer(ByteTokenizer):
    """Another last token."""

    def token_text(self, token_id: int) -> str:
        return "<end>" if token_id == self.EOS else super().token_text(token_id)


def loaded(name: str = "some/model", tokenizer: ByteTokenizer | None = None) -> Loaded:
    return Loaded(name, HashLM(300), tokenizer or ByteTokenizer(), "fp32")


@pytest.mark.parametrize(("value", "depth"), [("", 24), ("1", 1), ("64", 64)])
def test_depths(value: str, depth: int) -> None:
    assert check(value) == depth


@pytest.mark.parametrize("value", ["0", "65", "-1", "x", "1.5", " 3", "²"])
def test_other_depths_are_refused(value: str) -> None:
    with pytest.raises(PacelineError, match=f"suffix:{value}: the depth must be 1 to 64 tokens"):
        check(value)


def test_it_is_made_with_its_depth_and_corpus(tmp_path: Path) -> None:
    """The corpus knows more words of the prompt than the prompt itself; depth 1 does not ask it."""
    corpus = open_corpus(str(tmp_path / "file"), loaded())
    corpus.add([1, 2, 3, 4])
    corpus.save()
    setting, ids = DraftSetting(suffix_corpus=corpus), [3, 9, 2, 3]
    for value, right in (("", [4]), ("1", [9])):
        drafter = make(value, setting, loaded(), None)(1, 64, None)  # type: ignore[arg-type]
        draft = drafter.propose(sequences([ids], SamplingParams()), [4])
        assert draft.tokens.tolist() == [right]


def test_a_corpus_belongs_to_a_model_and_its_tokenizer(tmp_path: Path) -> None:
    """Wherever the model lies, and in whatever format its weights are."""
    path = str(tmp_path / "file")
    open_corpus(path, loaded("/models/one")).save()
    corpus = open_corpus(path, loaded("hub/one"))
    assert corpus.vocab == 258  # what is past the tokenizer's end is padding
    for other in (loaded("hub/two"), loaded("hub/one", OtherTokenizer())):
        with pytest.raises(PacelineError, match=r"holds outputs of one \(tokenizer .*, not of "):
            open_corpus(path, other)
