"""EAGLE-3 heads read trees: each node as a chain along its path, within rounding."""

from __future__ import annotations

from pathlib import Path

import pytest

from checks.trees import levels_see_their_paths
from paceline import kernels
from paceline.core.cached import CachedModel
from paceline.core.follower import Follower
from paceline.models.eagle3_load import load_eagle3
from paceline.models.load import load
from tiny import write_llama
from tiny_heads import write_head

native = pytest.mark.skipif(not kernels.available(), reason="no native kernels")


@pytest.mark.parametrize("dtype", [pytest.param("fp16", marks=native), "fp32"])
def test_a_node_sees_its_path(dtype: str, tmp_path: Path) -> None:
    target, _ = load(write_llama(tmp_path / "target", layers=8), dtype, cache_dir=tmp_path)
    folder = write_head(tmp_path / "head")
    head = load_eagle3(folder, folder.name, target, "tiny", dtype, cache_dir=tmp_path)

    def make() -> Follower:
        cached = CachedModel(target, 4, 64)
        cached.tap(head.taps)
        return head.over(cached)

    levels_see_their_paths(make, 20, exact=False)
