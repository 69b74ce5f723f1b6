"""head:DIR: found, told apart, loaded and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes import HashLM, sequences
from paceline.build.drafts import DraftSetting
from paceline.build.heads import check_head, make_head
from paceline.build.models import Loaded, Models
from paceline.core.cached import CachedModel
from paceline.core.params import SamplingParams
from paceline.drafters.first_of import FirstOf
from paceline.errors import PacelineError
from tiny import write_llama
from tiny_heads import DRAFT_IDS, write_head


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Models:
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    return Models("auto", "cpu", 1, None, None)


@pytest.fixture
def target(models: Models, tmp_path: Path) -> Loaded:
    return models(str(write_llama(tmp_path / "target", layers=8)))


@pytest.mark.parametrize("style", ["plain", "speculators"])
def test_a_head_drafts_for_its_target(style, models, target, tmp_path) -> None:
    """Deterministic: on the native kernels where there are any, in torch elsewhere."""
    folder = write_head(tmp_path / "head", style)
    maker = make_head(str(folder), DraftSetting(), target, models)
    seqs = sequences([[1, 2, 3], [4, 5]], SamplingParams())
    drafts = []
    for _ in range(2):
        cached = CachedModel(target.model, 2, 256)
        drafts.append(maker(2, 256, cached).propose(seqs, [4, 2]))
    assert drafts[0].lengths == [4, 2]
    assert {*drafts[0].tokens.flatten().tolist()} <= {*DRAFT_IDS}
    assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()


def test_two_heads_that_read_other_layers_are_refused(models, target, tmp_path) -> None:
    one = write_head(tmp_path / "one")
    two = write_head(tmp_path / "two", eagle_aux_hidden_state_layer_ids=[1, 2, 3])
    cached = CachedModel(target.model, 1, 256)
    makers = [make_head(str(folder), DraftSetting(), target, models) for folder in (one, one, two)]
    FirstOf(makers[0](1, 256, cached), makers[1](1, 256, cached))
    with pytest.raises(PacelineError, match=r"beside the other head, which reads other layers"):
        makers[2](1, 256, cached)


def test_what_is_no_head_is_refused(models, target, tmp_path) -> None:
    with pytest.raises(PacelineError, match="needs a folder or an id"):
        check_head("")
    with pytest.raises(PacelineError, match="no such head: nowhere"):
        make_head("nowhere", DraftSetting(), target, models)
    with pytest.raises(PacelineError, match="no head that is known here; for a whole model use"):
        make_head(str(tmp_path / "target"), DraftSetting(), target, models)
    other = Loaded("hashes", HashLM(257), target.tokenizer, "fp32")
    with pytest.raises(PacelineError, match="no head can look inside"):
        make_head(str(write_head(tmp_path / "head")), DraftSetting(), other, models)
