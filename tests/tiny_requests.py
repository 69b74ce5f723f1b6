"""Requests that no engine runs: for whoever is told of them."""

from __future__ import annotations

from collections.abc import Sequence

from fake_tokenizer import ByteTokenizer
from paceline.core.params import SamplingParams
from paceline.text.request import Request


def request(ids: Sequence[int], params: SamplingParams | None = None) -> Request:
    """One for the prompt `ids`."""
    return Request(list(ids), params or SamplingParams(), ByteTokenizer(), lossless=True)
