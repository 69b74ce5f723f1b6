"""What is known before the first answer: bytes, the bandwidth's floor, what longer passes cost."""

from __future__ import annotations

from typing import Any

from paceline.build import LLM
from paceline.build.costs import time_rounds
from paceline.build.memory import Weighs, bandwidth, kv_bytes
from paceline.core.theory import expected_tokens

_MOST = 9  # tokens of the longest pass that is timed, where K asks for no longer one


def measure(llm: LLM, *, context: int, threads: int, k: int, alpha: float | None) -> dict[str, Any]:
    """The static card of a model on this machine, behind `context` tokens; takes about three
    seconds. `r` is T(n) / T(1); `floor_tokens_per_second`: as many as memory lets through one by
    one; `predicted_tau`: of K = `k`, if each drafted token is accepted with chance `alpha`.
    What is not known is None."""
    model = llm.model
    weights = model.nbytes if isinstance(model, Weighs) else None
    kv = kv_bytes(model.new_cache(1, 8))
    read = None if weights is None else weights + (kv or 0) * context
    speed, how = bandwidth(model.device, threads)
    vocab = min(llm.tokenizer.size, model.vocab_size)
    curve, _ = time_rounds(model, vocab, [], 1, max(_MOST, k + 1))
    return {
        "weights_bytes": weights,
        "bytes_per_token": read,
        "context": context,
        "bandwidth_gb_s": speed / 1e9,
        "bandwidth_how": how,
        "floor_tokens_per_second": None if read is None else speed / read,
        "t1_ms": curve[0] * 1e3,
        "r": {str(n): seconds / curve[0] for n, seconds in enumerate(curve, 1)},
        "alpha": alpha,
        "predicted_tau": None if alpha is None else expected_tokens(alpha, k),
    }
