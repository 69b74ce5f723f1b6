"""A trained drafter on disk: weights, config and card, each whole or not there at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors.torch import save

from paceline.distill.checkpoint import write_json, write_text, write_whole
from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Export

WEIGHTS, CONFIG, CARD = "model.safetensors", "config.json", "README.md"


def target_of(teacher: Teacher) -> dict[str, Any]:
    """What a drafter's config says of the target that it was trained for."""
    config = teacher.config
    return {
        "name": teacher.name,
        "fingerprint": teacher.fingerprint,
        "hidden": config.hidden,
        "vocab": config.vocab_size,
        "layers": config.layers,
    }


def write(folder: Path, export: Export, teacher: Teacher, card: str) -> None:
    """Write `export` into `folder` so that it can be loaded from there; config.json comes last, so
    a folder that has one is complete."""
    tensors = {name: value.detach().cpu().contiguous() for name, value in export.tensors.items()}
    data = save(tensors, metadata={"format": "pt"})
    write_whole(folder / WEIGHTS, lambda file: file.write_bytes(data))
    for name, text in {**export.files, CARD: card}.items():
        write_text(folder / name, text)
    write_json(folder / CONFIG, {**export.config, "target": target_of(teacher)})
