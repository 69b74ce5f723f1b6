"""How much memory a server will hold, before it holds it.

What the process holds, with its weights, is measured. So is what a row takes: a row of
few tokens is made as the engine will make them, whatever drafters there are, and its tensors are
counted. The rest is multiplication.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paceline.core.params import SamplingParams
from paceline.errors import MissingExtra, PacelineError
from paceline.text.batch import Batch
from paceline.text.request import Request

if TYPE_CHECKING:
    from paceline.build import LLM

_SHORT, _LONG = 64, 128  # tokens of the rows that are measured
_STEP = 64  # of a context that is made to fit
_PACKED = ".packed"  # of files that weights are mapped from
_COPIES = 4  # of a round's scores at its worst: logits, p, q and what is left of p
_MARGIN = 0.95  # share of what is available that is planned with


@dataclass(frozen=True)
class Plan:
    """Memory in bytes. `held`: what the process holds now, `weights` of it for the target's; a slot
    takes `per_slot`, `per_token` for each token of its context, and `per_round` while a round runs.
    `available`: all that the process may hold. `where`: "memory" or "GPU memory"."""

    slots: int
    context: int
    held: int
    weights: int
    per_slot: int
    per_token: int
    per_round: int
    available: int
    where: str = "memory"

    @property
    def caches(self) -> int:
        """All slots full to the last token of their context."""
        return self.slots * (self.per_slot + self.per_token * self.context)

    @property
    def room(self) -> int:
        """What the widest round needs beside that."""
        return self.slots * self.per_round

    @property
    def total(self) -> int:
        """All of it."""
        return self.held + self.caches + self.room

    @property
    def fits(self) -> bool:
        """Whether so much can be had."""
        return self.total <= self._usable

    @property
    def most_slots(self) -> int:
        """How many slots of this context fit."""
        each = self.per_slot + self.per_token * self.context + self.per_round
        return max(0, (self._usable - self.held) // each)

    @property
    def most_context(self) -> int:
        """How many tokens fit in each of these slots, a multiple of 64."""
        each = (self._usable - self.held) // self.slots - self.per_slot - self.per_round
        return max(0, each // self.per_token // _STEP * _STEP)

    @property
    def _usable(self) -> int:
        return int(self.available * _MARGIN)

    def check(self) -> Plan:
        """The plan itself. Raises PacelineError, with what would fit, if it does not."""
        if self.fits:
            return self
        least = replace(self, slots=1)
        ways = []
        if self.most_slots:
            ways.append(f"--slots {self.most_slots}")
        if self.most_context >= _STEP:
            ways.append(f"--context {self.most_context}")
        elif least.most_context >= _STEP:
            ways.append(f"--slots 1 --context {min(self.context, least.most_context)}")
        fix = f"use {' or '.join(ways)}" if ways else "use a smaller model or --dtype int4"
        raise PacelineError(
            f"{self.slots} slots of {self.context} tokens need {size(self.total)} of {self.where} "
            f"and {size(self._usable)} can be had: {fix}"
        )

    def lines(self) -> list[str]:
        """For people, one part a line."""
        parts = [
            ("weights of the target", self.weights),
            ("drafters and the program", self.held - self.weights),
            (f"caches of {self.slots} x {self.context} tokens", self.caches),
            ("room for a round", self.room),
            (f"total, of {size(self.available)} that can be had", self.total),
        ]
        return [f"{size(count):>9}  {what}" for what, count in parts]


def plan(llm: LLM, slots: int, *, shrink: bool = False) -> Plan:
    """The plan for an engine of `slots` rows of `llm.context` tokens; `shrink`: of as many tokens
    as fit, if those are fewer.

    Reads a few tokens, so that the weights are in memory. Raises PacelineError, with the most slots
    and the longest context that would fit, where it does not; MissingExtra without psutil.
    """
    if slots < 1:
        raise PacelineError(f"--slots must be at least 1, not {slots}")
    device = llm.model.device
    long = min(_LONG, llm.context)
    short = min(_SHORT, long // 2)
    low, high = (_row(llm, length) for length in (short, long))
    per_token = max(1, (high - low) // (long - short))
    held, available = _gpu() if device.type == "cuda" else _host()
    made = Plan(
        slots=slots,
        context=llm.context,
        held=held,
        weights=min(held, int(getattr(llm.model, "nbytes", 0))),
        per_slot=max(0, high - per_token * long),
        per_token=per_token,
        per_round=_COPIES * (llm.k + 1) * llm.model.vocab_size * 4,
        available=available,
        where="GPU memory" if device.type == "cuda" else "memory",
    )
    if shrink and not made.fits and made.most_context >= min(llm.context, 8 * _STEP):
        made = replace(made, context=min(llm.context, made.most_context))
    return made.check()


def _row(llm: LLM, length: int) -> int:
    """Bytes of the tensors that a row of `length` tokens takes, read to the end."""
    with _counting(llm.model.device) as made:
        batch = Batch(replace(llm.parts, prepare=None), 1, length)
        ids = [i % llm.tokenizer.size for i in range(length - 1)]
        batch.admit(Request(ids, SamplingParams(), llm.tokenizer, lossless=True))
        while batch.unread:
            batch.read(length)
    del batch
    return made[0]


@contextmanager
def _counting(device: torch.device) -> Iterator[list[int]]:
    """Afterwards the list holds the bytes of the tensors on `device` that were made meanwhile and
    are still in use."""
    before = _tensors(device)
    counted: list[int] = []
    yield counted
    after = _tensors(device)
    counted.append(sum(n for place, n in after.items() if before.get(place) != n))


def _tensors(device: torch.device) -> dict[int, int]:
    """The bytes of all tensors there, by address."""
    gc.collect()
    tensors = [x for x in gc.get_objects() if issubclass(type(x), Tensor)]
    plain = [t for t in tensors if t.device.type == device.type and t.layout is torch.strided]
    storages = [t.untyped_storage() for t in plain]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _gpu() -> tuple[int, int]:
    """Bytes held on the GPU, and all that may be."""
    free, _ = torch.cuda.mem_get_info()
    return torch.cuda.memory_allocated(), free + torch.cuda.memory_reserved()


def _host() -> tuple[int, int]:
    """Bytes that this process holds once all weights have been read, and all that it may: what the
    machine has free, or the process's cgroup leaves it, if that is less."""
    try:
        import psutil
    except ImportError:
        raise MissingExtra("the server", "serve") from None
    process = psutil.Process()
    held = process.memory_info().rss
    maps = process.memory_maps() if hasattr(process, "memory_maps") else []
    packed = [x for x in maps if x.path.endswith(_PACKED) and hasattr(x, "size")]
    unread = sum(x.size - x.rss for x in packed)  # weights that no pass has needed yet
    free = [psutil.virtual_memory().available, *_cgroups(Path("/proc/self/cgroup"))]
    return held + unread, held + max(0, min(free))


def _cgroups(own: Path, root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """The bytes that each of the process's cgroups, and those around it, still allow."""
    with suppress(OSError):
        for line in own.read_text().splitlines():
            _, kinds, inside = line.split(":", 2)
            if kinds in ("", "memory"):
                names = _NAMES["memory" if kinds else ""]
                base = root / kinds
                folder = base / inside.strip("/")
                # in a container the folder may be mounted as the root
                for place in {folder, *folder.parents} if folder != base else {base}:
                    if place == base or base in place.parents:
                        yield from _left(place, *names)


_NAMES = {
    "": ("memory.max", "memory.current", "inactive_file"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}
"""Of version 2 and of version 1: the files of limit and use, and what of that can be given up."""


def _left(folder: Path, limit: str, used: str, spare: str) -> Iterator[int]:
    """What the limit of this folder leaves, if it has one."""
    with suppress(OSError, ValueError):  # "max": there is none
        most, now = (int((folder / name).read_text()) for name in (limit, used))
        lines = (folder / "memory.stat").read_text().splitlines()
        stats = dict(line.split() for line in lines)
        yield most - now + int(stats.get(spare, 0))


def size(count: int) -> str:
    """`count` bytes for people."""
    return f"{count / 1e9:.2f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
