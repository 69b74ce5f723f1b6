"""The user's own target and drafter, put together from the names on the command line."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from paceline.build import check_threads
from paceline.build.drafts import DraftSetting, Spec, resolve
from paceline.build.models import Models, Note, Progress
from paceline.build.verify import make_verifier
from paceline.core.protocols import Model, Verifier
from paceline.models.hf import HfModel
from paceline.text.parts import MakesDrafter
from paceline.text.tokenizer import Tokenizer

# of a number near 1, what the next one is apart: a CUDA kernel rounds sums of such numbers
_STEPS = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
_SUMS = 8.0


@dataclass(frozen=True)
class Pair:
    """Loaded and ready. `draft` is the drafter's name, "auto" resolved; `dtype` the target's."""

    name: str
    draft: str
    dtype: str
    model: Model
    tokenizer: Tokenizer
    make_drafter: MakesDrafter
    verifier: Verifier

    @property
    def exact(self) -> bool:
        """Whether a row's logits are the same to the bit in every pass: so on a CPU, but for models
        that run through transformers."""
        return self.model.device.type == "cpu" and not isinstance(self.model, HfModel)

    def rounding(self, logit: float) -> float:
        """How far apart two passes may put a logit of this size."""
        if self.exact:
            return 0.0
        return _SUMS * _STEPS.get(self.dtype, _STEPS["bf16"]) * max(1.0, abs(logit))


def open_pair(
    model: str,
    draft: str = "auto",
    verify: str = "auto",
    lenience: float = 1.0,
    dtype: str = "auto",
    device: str = "auto",
    threads: int | None = None,
    progress: Progress | None = None,
    note: Note | None = None,
) -> Pair:
    """Load a pair. Raises PacelineError for anything that the user can put right."""
    verifier = make_verifier(verify, lenience)  # what names mean nothing is refused in no time
    if draft != "auto":
        Spec(draft)
    if threads is not None:
        check_threads(threads)
        torch.set_num_threads(threads)
    models = Models(dtype, device, threads, progress, note)
    loaded = models(model)
    spec = Spec(resolve(draft, loaded))
    make = spec.maker(DraftSetting(), loaded, models)
    return Pair(model, str(spec), loaded.dtype, loaded.model, loaded.tokenizer, make, verifier)
