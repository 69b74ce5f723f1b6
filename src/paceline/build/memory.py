"""What a pass reads of memory, and how fast memory gives it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from paceline.models.cache import Cache

_TURNS = 7
_LEAST = 1 << 29  # bytes that are read at least to time memory
_PIECE = 1 << 20  # bytes that a thread reads at a time


@runtime_checkable
class Weighs(Protocol):
    """A model that knows how many bytes of its weights a pass reads."""

    nbytes: int


def kv_bytes(cache: Any) -> int | None:
    """Bytes of keys and values that a cache holds for each token; None where it does not say."""
    return cache.data.nbytes // cache.length if isinstance(cache, Cache) else None


def bandwidth(device: torch.device, threads: int) -> tuple[float, str]:
    """Bytes a second that memory gives, and in words how they were measured."""
    if device.type == "cuda":
        source = torch.ones(1 << 28, device=device)  # 1 GiB
        target = torch.empty_like(source)

        def copy() -> None:
            target.copy_(source)
            torch.cuda.synchronize(device)

        how = "a copy of 1 GiB on the device, both ways"
        return 2 * source.nbytes / _seconds(copy), how
    size = max(_LEAST, 4 * _last_level_cache())
    pieces = np.ones(size // 4, dtype=np.int32).reshape(-1, _PIECE // 4)

    def read(rows: np.ndarray) -> None:
        for row in rows:
            row.max()

    shares = np.array_split(pieces, threads)
    with ThreadPoolExecutor(threads) as pool:
        taken = _seconds(lambda: list(pool.map(read, shares)))
    how = f"the largest of {size >> 20} MiB looked for by {threads} threads, in pieces of 1 MiB"
    return pieces.nbytes / taken, how


def _seconds(call: Callable[[], object]) -> float:
    """The median of several calls behind a first one."""
    taken: list[float] = []
    for _ in range(_TURNS + 1):
        began = perf_counter()
        call()
        taken.append(perf_counter() - began)
    return median(taken[1:])


def _last_level_cache() -> int:
    """Bytes of the processor's largest cache; 0 where the system does not say."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
        sizes += [int(text[:-1]) * unit] if unit and text[:-1].isdigit() else []
    return max(sizes)
