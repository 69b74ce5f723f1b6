"""Checkpoints in Hugging Face's layout: a folder with `config.json` and safetensors files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError
from paceline.models.config import Config

if TYPE_CHECKING:
    from torch import Tensor

INDEX = "model.safetensors.index.json"


class HfCheckpoint:
    """A `Checkpoint` over a folder; tensors are memory-mapped and read one at a time.

    Raises PacelineError where `config.json` is missing or unreadable, the architecture is none
    that is implemented, a safetensors file is missing or truncated, or the two do not agree.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        raw = _json(folder / "config.json")
        config = Config.from_hf(raw)
        self._files = {path.name: _open(path) for path in _shards(folder)}
        self._where = {name: file for file in self._files.values() for name in file.keys()}  # noqa: SIM118
        self._folder = folder
        # A config may be silent about the output layer (its default is not in the file).
        self.config = replace(config, tied=config.tied or "lm_head.weight" not in self)
        self._check()
        self.fingerprint = _fingerprint(raw, [folder / name for name in self._files])

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def tensor(self, name: str) -> Tensor:
        """The tensor in its own dtype; norm weights with their offset added, in float32."""
        value = self._file(name).get_tensor(name)
        if self.config.norm_offset and name.endswith("norm.weight"):
            return value.float() + 1
        return value

    def _file(self, name: str) -> Any:
        if name not in self._where:
            raise PacelineError(f"{self._folder} has no tensor {name!r}; download the model again")
        return self._where[name]

    def _check(self) -> None:
        """All matrices are there, in the sizes that the config says."""
        c = self.config
        queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim
        sizes = {"model.embed_tokens.weight": [c.vocab_size, c.hidden]}
        if not c.tied:
            sizes["lm_head.weight"] = [c.vocab_size, c.hidden]
        for i in range(c.layers):
            at = f"model.layers.{i}."
            sizes |= {
                at + "self_attn.q_proj.weight": [queries, c.hidden],
                at + "self_attn.k_proj.weight": [keys, c.hidden],
                at + "self_attn.v_proj.weight": [keys, c.hidden],
                at + "self_attn.o_proj.weight": [c.hidden, queries],
                at + "mlp.gate_proj.weight": [c.ffn, c.hidden],
                at + "mlp.up_proj.weight": [c.ffn, c.hidden],
                at + "mlp.down_proj.weight": [c.hidden, c.ffn],
            }
        for name, wanted in sizes.items():
            size = self._file(name).get_slice(name).get_shape()
            if size != wanted:
                raise PacelineError(
                    f"{self._folder}: {name} is {size} where config.json makes it {wanted}; "
                    "download the model again"
                )


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PacelineError(f"{path} does not exist; is this a model's folder?") from None
    except (OSError, ValueError) as e:
        raise PacelineError(f"cannot read {path} ({e}); download it again") from None
    if not isinstance(value, dict):
        raise PacelineError(f"{path} is no JSON object; download it again")
    return value


def _shards(folder: Path) -> list[Path]:
    """The safetensors files that the index names, else the single one."""
    if (folder / INDEX).exists():
        parts = _json(folder / INDEX).get("weight_map")
        if not isinstance(parts, dict) or not parts:
            raise PacelineError(f"{folder / INDEX} names no files; download it again")
        return [folder / name for name in sorted({*map(str, parts.values())})]
    return [folder / "model.safetensors"]


def _open(path: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise PacelineError(f"{path} does not exist; download the model again") from None
    except (OSError, SafetensorError) as e:
        raise PacelineError(f"{path} is damaged or cut short ({e}); download it again") from None


def _fingerprint(raw: dict[str, Any], files: list[Path]) -> str:
    """Names the bytes cheaply: config, and for each file its size, time and table of tensors."""
    digest = hashlib.sha256(json.dumps(raw, sort_keys=True).encode())
    for path in files:
        state = path.stat()
        digest.update(f"{path.name} {state.st_size} {state.st_mtime_ns} ".encode())
        with path.open("rb") as file:
            digest.update(file.read(int.from_bytes(file.read(8), "little")))
    return digest.hexdigest()
