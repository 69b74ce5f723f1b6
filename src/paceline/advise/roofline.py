"""What a pass costs at least, from datasheets: T(n) = max(bytes / bandwidth, operations / rate).

Left out: kernel launches and Python (a pass of a small draft is often made of little else, so a
real c is mostly larger), attention's own arithmetic, the scales of quantised weights (count them in
as bits: 4.5), tiles that a kernel fills in steps, what several GPUs say to each other, and the
share of a peak that a kernel reaches; where memory reaches less of its own than arithmetic, a real
r(n) is smaller. On a GPU fewer bits save bytes only: weights are multiplied in 16 bits.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from paceline.errors import PacelineError

_SIZE = re.compile(r"(?P<count>\d+(\.\d+)?)(?P<unit>[MB])(:(?P<bits>\d+(\.\d+)?))?", re.I)
_HEAD = 128  # values of a key or value head; also d / layers of common models
_KV_HEADS = 8


@dataclass(frozen=True)
class Gpu:
    """`rates`: (b, operations a second with weights of at most b bits), b rising; a multiply-add is
    two. `bandwidth`: bytes a second. `memory`: bytes; None: as many as one plugs in."""

    name: str
    rates: tuple[tuple[float, float], ...]
    bandwidth: float
    memory: float | None

    def rate(self, bits: float) -> float:
        """Operations a second with weights of so many bits."""
        return next((rate for most, rate in self.rates if bits <= most), self.rates[-1][1])


def _tensor_cores(name: str, tera: float, bandwidth: float, memory: float) -> Gpu:
    return Gpu(name, ((16, tera * 1e12),), bandwidth, memory)


# Datasheets: SXM boards, A100 of 80 GB; dense bf16, which adds up in fp32. The cpu is two cores
# with AVX2, measured: docs/kernels.md has the rates of 4 bits, 8 bits (as bytes) and 16 (in fp32).
PRESETS = {
    gpu.name: gpu
    for gpu in (
        _tensor_cores("h100", 989.4, 3.35e12, 80e9),
        _tensor_cores("h200", 989.4, 4.8e12, 141e9),
        _tensor_cores("a100", 312, 2.039e12, 80e9),
        _tensor_cores("rtx4090", 165.2, 1.008e12, 24e9),
        Gpu("cpu", ((5, 280e9), (8, 170e9), (16, 120e9)), 25e9, None),
    )
}


@dataclass(frozen=True)
class Size:
    """A model: `params` in billions, `bits` a weight. Raises PacelineError if one means nothing."""

    params: float
    bits: float = 16

    def __post_init__(self) -> None:
        if not 0 < self.params < math.inf:
            raise PacelineError(f"a model of {self.params:g}B parameters: give a size above 0")
        if not 1 <= self.bits <= 32:
            raise PacelineError(f"{self.bits:g} bits a weight: give 1 to 32")

    @property
    def weights(self) -> float:
        """Bytes of the weights."""
        return self.params * 1e9 * self.bits / 8

    @property
    def kv(self) -> float:
        """Bytes of keys and values a token of context, in 16 bits, for a usual shape: layers of
        12 d² weights with d = 128 layers, 8 key/value heads of 128. Within a seventh of Llama 3's.
        """
        layers = (self.params * 1e9 / (12 * _HEAD**2)) ** (1 / 3)
        return layers * 2 * _KV_HEADS * _HEAD * 2

    def __str__(self) -> str:
        return f"{self.params:g}B in {self.bits:g} bits"


def parse_size(text: str) -> Size:
    """`7B`, `0.5B:4` or `500M:8`: parameters, then bits a weight (16). Raises PacelineError."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise PacelineError(f"{text!r} is no size: write 7B, or 7B:4 for 4 bits a weight")
    params = float(match["count"]) / (1000 if match["unit"] in "mM" else 1)
    return Size(params, float(match["bits"] or 16))


@dataclass(frozen=True)
class Roofline:
    """A pair on a machine: `batch` rows at once, each with `context` tokens behind it.

    Several GPUs, where one does not hold both models, share both evenly (tensor parallel): as many
    times the bandwidth and the operations, and nothing lost between them.
    """

    gpu: Gpu
    target: Size
    draft: Size | None = None
    batch: int = 1
    context: int = 1024

    @property
    def memory(self) -> float:
        """Bytes of both models, keys and values included."""
        return self._bytes(self.target) + (self._bytes(self.draft) if self.draft else 0.0)

    @property
    def gpus(self) -> int:
        """How many it takes to hold both models."""
        return 1 if self.gpu.memory is None else math.ceil(self.memory / self.gpu.memory)

    def seconds(self, size: Size, n: int) -> float:
        """T(n): one pass of a model over n tokens of each row."""
        read = self._bytes(size) / self.gpu.bandwidth
        work = 2 * size.params * 1e9 * n * self.batch / self.gpu.rate(size.bits)
        return max(read, work) / self.gpus

    def r(self, n: int) -> float:
        """r(n) = T(n) / T(1) of the target."""
        return self.seconds(self.target, n) / self.seconds(self.target, 1)

    @property
    def c(self) -> float | None:
        """c: one step of the draft over T(1); None without a draft."""
        if self.draft is None:
            return None
        return self.seconds(self.draft, 1) / self.seconds(self.target, 1)

    def _bytes(self, size: Size) -> float:
        """What one pass reads."""
        return size.weights + size.kv * self.batch * self.context
