"""Drafters under a controller that may have a say while they draft."""

from __future__ import annotations

from collections.abc import Callable

from paceline.core.cached import CachedModel
from paceline.core.protocols import Controller, Drafter, Paces
from paceline.core.sequences import Sequences
from paceline.drafters.model import ModelDrafter
from paceline.drafters.paced import Paced


def paced_drafter(model, controller: Controller) -> Callable[[Sequences], Drafter]:
    """Makes a drafter for given sequences out of `model`, the only one that `controller` has."""

    def make(seqs: Sequences) -> Drafter:
        cached = CachedModel(model, seqs.batch, seqs.tokens.shape[1])
        if not isinstance(controller, Paces):
            return ModelDrafter(cached)
        pace = controller.pace(0, 0.0)
        return Paced(ModelDrafter(cached, pace=pace), pace)

    return make
