"""head:DIR_OR_ID: trained heads of every kind, told apart by their config.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import paceline
from paceline.core.cached import CachedModel
from paceline.core.protocols import Drafter
from paceline.drafters.head import Head, HeadDrafter
from paceline.drafters.sampling import Grows, growing
from paceline.errors import PacelineError
from paceline.models.eagle3_config import is_eagle3
from paceline.models.eagle3_load import load_eagle3
from paceline.models.head_files import head_config, head_folder
from paceline.models.jump import is_jump, load_jump
from paceline.models.native import NativeTransformer

if TYPE_CHECKING:
    from paceline.build.drafts import DraftSetting, MakesPart
    from paceline.build.models import Loaded, Models
    from paceline.build.trees import PaceFor

SHIPPED = Path(paceline.__file__).parent / "heads"
_NATIVE = "int8"  # of a head beside a native target, whatever that one is in


def check_head(value: str) -> None:
    """What may stand behind "head:". Raises PacelineError for nothing."""
    if not value:
        raise PacelineError("draft head needs a folder or an id on the hub: head:DIR_OR_ID")


def make_head(value: str, setting: DraftSetting, target: Loaded, models: Models) -> MakesPart:
    """Loads the head `value` for `target`. Raises PacelineError where it is none, or was made for
    another model."""
    head = load_head(value, target, models)
    if setting.shape.branches > 1:
        raise PacelineError("--branches is for draft models; a head's trees grow with --nodes")

    def reads(cached: CachedModel) -> Grows:
        cached.tap(head.taps)
        return growing(head.over(cached))

    vocab, name = min(target.tokenizer.size, target.model.vocab_size), target.name
    size = setting.shape.size(target.model, vocab, reads)

    def drafter(
        batch: int, length: int, target: CachedModel, pace: PaceFor | None = None
    ) -> Drafter:
        tree = size()
        own = pace(head.confidence) if pace and tree is None else None
        try:
            return HeadDrafter(target, head, setting.temperature, tree, own)
        except ValueError as error:
            raise PacelineError(
                f"head:{value} cannot draft beside the other head, which reads other layers of "
                f"{name} ({error}); give one head"
            ) from None

    return drafter


def load_head(value: str, target: Loaded, models: Models) -> Head:
    """The head itself. Raises PacelineError as `make_head` does."""
    folder = SHIPPED / value if value in _shipped() else head_folder(value)
    return _load(folder, value, target, models)


def shipped(target: Loaded) -> str | None:
    """The head in this package that was trained for `target`, if it has one and can use it."""
    if not isinstance(target.model, NativeTransformer):
        return None
    for name in _shipped():
        made_for = head_config(SHIPPED / name, name)["target"]
        if target.fingerprint == made_for["fingerprint"]:
            return name
    return None


def _shipped() -> list[str]:
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def _load(folder: Path, name: str, target: Loaded, models: Models) -> Head:
    raw = head_config(folder, name)
    for fits, load in _KINDS:
        if fits(raw):
            return load(folder, name, target, models)
    raise PacelineError(f"{name} is no head that is known here; for a whole model use model:{name}")


def _eagle3(folder: Path, name: str, target: Loaded, models: Models) -> Head:
    dtype = _NATIVE if isinstance(target.model, NativeTransformer) else target.dtype
    return load_eagle3(
        folder,
        name,
        target.model,
        target.name,
        dtype,
        progress=models.progress,
        note=models.note,
    )


def _jump(folder: Path, name: str, target: Loaded, models: Models) -> Head:
    return load_jump(folder, name, target.model, target.name)


Loads = Callable[[Path, str, "Loaded", "Models"], Head]
_KINDS: list[tuple[Callable[[dict[str, Any]], bool], Loads]] = [
    (is_eagle3, _eagle3),
    (is_jump, _jump),
]
"""How a kind is known by its config, and what loads it."""
