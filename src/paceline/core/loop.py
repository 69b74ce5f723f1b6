"""The loop: draft, score, verify, commit. Plain decoding is the same loop with an empty draft."""

from __future__ import annotations

from time import perf_counter

import torch

from paceline.core.cached import CachedModel
from paceline.core.noise import Noise
from paceline.core.protocols import Controller, Drafter, NeedsLogits, Verifier
from paceline.core.sequences import Sequences
from paceline.core.target import Target
from paceline.core.types import Round, Seconds


class Loop:
    """One target and the parts that speed it up.

    Emitted tokens are distributed exactly as the target's own if `verifier.lossless`, whatever the
    drafter and the controller do.
    """

    def __init__(
        self, target: CachedModel, drafter: Drafter, verifier: Verifier, controller: Controller
    ) -> None:
        self.target = target
        self.drafter = drafter
        self.verifier = verifier
        self.controller = controller
        self._logits = isinstance(verifier, NeedsLogits) and verifier.needs_logits

    @torch.no_grad()
    def step(self, seqs: Sequences) -> Round:
        """One round: every running row grows by at least one token, or ends with an error."""
        began = perf_counter()
        draft = self.drafter.propose(seqs, self.controller.window(seqs))
        drafted = perf_counter()
        if self.target.ranks and seqs.argmax_suffices and not self._logits:
            p = Target(None, self.target.best(seqs, draft))
            scored = perf_counter()
        else:
            logits = self.target.score(seqs, draft)
            scored = perf_counter()
            p = seqs.probs(logits, draft)
        noise = seqs.noise(draft) if p.sampled else Noise.none(seqs.batch)
        verdict = self.verifier.verify(p, draft, noise)
        self.target.keep(seqs, draft, verdict)
        emitted = seqs.commit(verdict, draft)
        ended = perf_counter()
        seconds = Seconds(drafted - began, scored - drafted, ended - scored)
        round = Round(draft, p, verdict, emitted, seconds)
        self.controller.observe(round)
        return round
