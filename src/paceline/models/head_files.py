"""What all trained heads have in common on disk: a folder, and the model they were made for."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.errors import PacelineError
from paceline.models.pull import from_hub

if TYPE_CHECKING:
    from torch import Tensor

    from paceline.models.config import Config

BIN = "pytorch_model.bin"
_PADDING = 512  # an output layer may be padded: so many ids more or fewer are the same vocabulary
_NAME = re.compile(r"(?!.*\.gguf$)\w[\w.-]*(/\w[\w.-]*)?")  # not a path on someone's disk
_NOISE = re.compile(
    r"^(instruct|chat|it|hf|meta|gguf|gptq|awq|quantized|fp\d+|bf16|int\d+|w\d+a\d+|dynamic"
    r"|q\d\w*|iq\d\w*|[ks]|[ksml]|\d)$"
)


def head_folder(name: str, *, pull_missing: bool = True) -> Path:
    """Where the head that the user calls `name` lies: a folder, or `org/name` on the hub (then in
    the hub's own cache). Raises PacelineError where there is none."""
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return folder
    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        raise PacelineError(f"no such head: {name}; give a folder, or its org/name on the hub")
    folder = from_hub(name, ["*.safetensors", "*.json"], ["*/*"], pull_missing)
    if not any(folder.glob("*.safetensors")):
        folder = from_hub(name, ["*.json", BIN], ["*/*"], pull_missing)
    return folder


def head_config(folder: Path, name: str) -> dict[str, Any]:
    """The folder's config.json. Raises PacelineError where it is missing or no JSON object."""
    try:
        raw = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PacelineError(f"{name} has no config.json; is this a head's folder?") from None
    except (OSError, ValueError) as error:
        raise PacelineError(f"cannot read {name}'s config.json ({error}); get it again") from None
    if not isinstance(raw, dict):
        raise PacelineError(f"{name}'s config.json is no JSON object; get it again")
    return raw


def head_tensors(folder: Path, name: str) -> dict[str, Tensor]:
    """All tensors of the folder by name, memory-mapped where they can be: its safetensors files,
    else pytorch_model.bin, of which nothing but tensors is read. Raises PacelineError."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    files = sorted(folder.glob("*.safetensors"))
    try:
        if files:
            return {key: t for file in files for key, t in load_file(file).items()}
        loaded = torch.load(folder / BIN, map_location="cpu", weights_only=True, mmap=True)
    except FileNotFoundError:
        raise PacelineError(f"{name} has no weights: neither *.safetensors nor {BIN}") from None
    except (OSError, SafetensorError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise _damaged(name, error) from None
    except Exception as error:  # whatever unpickling makes of a file that is none
        raise _damaged(name, error) from None
    if not isinstance(loaded, dict):
        raise PacelineError(f"{name}: {BIN} holds no table of tensors; get it again")
    return {str(key): t for key, t in loaded.items() if isinstance(t, torch.Tensor)}


def _damaged(name: str, error: Exception) -> PacelineError:
    reason = (str(error).strip() or repr(error)).splitlines()[0][:160]
    return PacelineError(f"{name}'s weights are damaged or cut short ({reason}); get them again")


@dataclass(frozen=True)
class MadeFor:
    """The target that a head was trained for, as far as it says (None: it does not)."""

    name: str | None = None
    hidden: int | None = None
    vocab: int | None = None
    layers: int | None = None

    def check(self, head: str, target: str, config: Config) -> None:
        """Raise PacelineError unless `config` of the model that the user calls `target` can be
        that one: the same width and number of layers, a vocabulary of that size but for padding,
        and the same name, read loosely: without its owner and without what says how it is stored.
        A path is no name: what lies there is judged by its shape alone."""
        pairs = [
            ("hidden size", self.hidden, config.hidden, 0),
            ("vocabulary", self.vocab, config.vocab_size, _PADDING),
            ("layers", self.layers, config.layers, 0),
        ]
        wrong = [
            f"{what} {mine}, not {its}"
            for what, mine, its, slack in pairs
            if mine is not None and abs(mine - its) > slack
        ]
        named = self.name and _NAME.fullmatch(self.name) and not Path(target).expanduser().exists()
        if named and not wrong and _words(str(self.name)) != _words(target):
            wrong = ["by its name"]
        if wrong:
            whose = self.name or "another model"
            raise PacelineError(
                f"{head} was made for {whose} ({', '.join(wrong)}) and cannot draft for {target}; "
                f"train one: paceline distill head --model {target}"
            )


def _words(name: str) -> frozenset[str]:
    words = re.split(r"[^a-z0-9.]+", name.partition(":")[0].split("/")[-1].lower())
    return frozenset(word for word in words if word and not _NOISE.match(word))
