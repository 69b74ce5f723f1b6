"""Waiting until the threads of whoever computed last have stopped: some spin on for a while."""

from __future__ import annotations

import time

_NAP = 0.01  # seconds
_BUSY = 0.1  # the share of a nap that counts as computing


def quiet(patience: float = 2.0) -> bool:
    """Wait until no thread of this process computes. False: after `patience` seconds one still
    does."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        used = time.process_time()
        time.sleep(_NAP)
        if time.process_time() - used < _BUSY * _NAP:
            return True
    return False
