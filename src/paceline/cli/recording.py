"""`generate --trace`: where it goes, and how the run was made, which stands at its head."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paceline
from paceline.text.recorder import record, unwritable

if TYPE_CHECKING:
    from paceline.build import LLM
    from paceline.core.params import SamplingParams
    from paceline.text.completion import Piece
    from paceline.text.decisions import Verifying
    from paceline.text.llm import Stream


def check_path(path: str) -> None:
    """Raise PacelineError where no file can be written there, before a model is loaded."""
    folder = Path(path).absolute().parent
    if Path(path).is_dir():
        raise unwritable(path, "it is a folder")
    if not folder.is_dir():
        raise unwritable(path, f"there is no folder {folder}")
    if not os.access(path if Path(path).exists() else folder, os.W_OK):
        raise unwritable(path, "no permission")


def recorded(
    path: str,
    llm: LLM,
    stream: Stream,
    prompt: str,
    params: SamplingParams,
    how: Verifying,
    window: str,
) -> Iterator[Piece]:
    """The pieces of `stream`, written down on their way: see `record`. The prompt is in the trace
    as it was typed."""
    import torch

    from paceline.bench.machine import commit, hardware, versions

    header = {
        "paceline": paceline.__version__,
        "commit": commit(),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "versions": versions(),
        "hardware": hardware(torch.get_num_threads()),
        "model": llm.name,
        "dtype": llm.dtype,
        "draft": llm.draft,
        "k": llm.k,
        "window": window,
        **vars(how),
        "lossless": llm.lossless,
        "sampling": _sampling(params),
        "prompt": prompt,
    }
    return record(path, header, stream, how, llm.tokenizer)


def _sampling(params: SamplingParams) -> dict[str, Any]:
    """All that the request asked for; of a grammar that there is one."""
    values = {f.name: getattr(params, f.name) for f in fields(params) if f.name != "trace"}
    values["grammar"] = params.grammar is not None
    values["logit_bias"] = {str(id): bias for id, bias in params.logit_bias.items()}
    return values
