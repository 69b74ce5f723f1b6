"""Paceline: lossless speculative decoding. The model that you have, faster, with the same output.

The public names load lazily: `import paceline` costs milliseconds and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paceline.build import LLM
    from paceline.core.params import SamplingParams
    from paceline.errors import PacelineError
    from paceline.models.pull import pull
    from paceline.text.completion import Completion, Piece, Token

__version__ = "0.1.0"
__all__ = ["LLM", "Completion", "PacelineError", "Piece", "SamplingParams", "Token", "pull"]

_WHERE = {
    "LLM": "paceline.build",
    "SamplingParams": "paceline.core.params",
    "PacelineError": "paceline.errors",
    "pull": "paceline.models.pull",
    "Completion": "paceline.text.completion",
    "Piece": "paceline.text.completion",
    "Token": "paceline.text.completion",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
