"""Which drafters are looked at: what was asked for, or what needs nothing more."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.advise.rows import Row
from paceline.advise.stage import Made, Stage
from paceline.build.drafts import resolve
from paceline.build.models import Loaded
from paceline.errors import PacelineError
from paceline.models.catalog import find
from paceline.models.config import weight_count
from paceline.models.native import NativeTransformer
from paceline.models.progress import Progress
from paceline.models.store import present

_SMALL = "smollm2-135m"
_COPY = "self:int4"
_INT4_BITS = 4.5  # a weight, its share of a scale included
_WORTH = 0.7  # of the bytes that the target reads: a copy that reads more cannot pay


def defaults(target: Loaded) -> list[str]:
    """auto and what it consists of, prompt lookup and the like, the target in 4 bits, and the small
    model of the catalog where it is on disk."""
    models = [part for part in resolve("auto", target).split("+") if not part.startswith("lookup")]
    small = [f"model:{_SMALL}"] if present(find(_SMALL)) and target.name != _SMALL else []
    return list(dict.fromkeys(["auto", "lookup:5", "suffix", *models, _COPY, *small]))


def load(stage: Stage, drafts: Sequence[str], progress: Progress) -> tuple[list[Made], list[Row]]:
    """The drafters that can be had, each once, and rows that say why the others cannot."""
    made: dict[str, Made] = {}
    failed: list[Row] = []
    wanted = list(drafts) or defaults(stage.target)
    for done, draft in enumerate(wanted):
        progress(done, len(wanted), "drafters")
        vain = None if drafts else _in_vain(draft, stage.target)
        if vain:
            failed.append(Row(draft, draft, error=vain))
            continue
        try:
            new = stage.add(draft)
        except PacelineError as error:
            failed.append(Row(draft, draft, error=str(error)))
        else:
            made.setdefault(new.resolved, new)
    progress(len(wanted), len(wanted), "drafters")
    return [each for each in made.values() if each.resolved != "none"], failed


def _in_vain(draft: str, target: Loaded) -> str | None:
    """Why nobody need make this drafter to know that it is slower: for those that were not asked
    for."""
    model = target.model
    if draft != _COPY or not isinstance(model, NativeTransformer):
        return None
    looked_up = 0 if model.config.tied else model.config.vocab_size * model.config.hidden
    copy = (weight_count(model.config) - looked_up) * _INT4_BITS / 8
    if copy <= _WORTH * model.nbytes:
        return None
    return (
        f"not tried: a step reads about {copy / 1e9:.2f} GB, and the target reads "
        f"{model.nbytes / 1e9:.2f} GB, so it cannot be much cheaper; --draft {_COPY} tries it"
    )
