"""No draft: plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paceline.core.sequences import Sequences
from paceline.core.types import Draft


class NoDraft:
    """Proposes nothing, whatever it is asked for."""

    def propose(self, seqs: Sequences, k: Sequence[int]) -> Draft:
        """An empty draft."""
        return Draft(torch.empty(seqs.batch, 0, dtype=torch.int64), [0] * seqs.batch)
