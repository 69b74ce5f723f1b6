"""The memory plan: against what caches really take, and what it says where they do not fit."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from paceline import LLM, PacelineError
from paceline.serve import memory
from paceline.serve.memory import Plan, plan
from paceline.text.batch import Batch
from tiny import write_llama


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(write_llama(tmp_path_factory.mktemp("m") / "llama", context=4096))


def caches(llm: LLM, rows: int) -> int:
    """Bytes of the tensors that an engine of so many rows holds, counted one by one."""
    with memory._counting(torch.device("cpu")) as made:
        kept = Batch(replace(llm.parts, prepare=None), rows, llm.context)
    del kept
    return made[0]


@pytest.mark.parametrize(
    ("draft", "dtype", "slots", "context"),
    [
        ("none", "int8", 1, 4096),
        ("none", "fp32", 5, 2000),
        ("lookup:3", "int8", 5, 2000),
        ("model", "int8", 3, 500),
        ("self:skip=1", "fp32", 2, 4096),
        ("lookup+model", "fp32", 1, 1000),
    ],
)
def test_caches_take_what_was_planned(folder, tmp_path, draft, dtype, slots, context):
    other = write_llama(tmp_path / "draft", seed=1, layers=4, context=4096)
    draft = draft.replace("model", f"model:{other}")
    model = str(write_llama(tmp_path / "target", layers=5, context=4096))
    llm = LLM(model, draft=draft, dtype=dtype, context=context)
    planned = plan(llm, slots)
    assert (planned.slots, planned.context) == (slots, context)
    assert planned.caches == pytest.approx(caches(llm, slots), rel=0.1)


def test_a_draft_model_has_a_cache_of_its_own(folder):
    alone = plan(LLM(folder, draft="none", dtype="fp32"), 4)
    paired = plan(LLM(folder, draft=f"model:{folder}", dtype="fp32"), 4)
    assert paired.per_token == pytest.approx(2 * alone.per_token, rel=0.15)


GB = 10**9
SMALL = Plan(
    slots=8,
    context=4096,
    held=GB,
    weights=GB // 2,
    per_slot=10**6,
    per_token=50_000,
    per_round=10**7,
    available=10 * GB,
)


def test_it_adds_up():
    assert SMALL.caches == 8 * (10**6 + 4096 * 50_000)
    assert SMALL.total == GB + SMALL.caches + 8 * 10**7
    assert SMALL.fits
    assert SMALL.check() is SMALL
    assert [line.split()[:2] for line in SMALL.lines()] == [
        ["0.50", "GB"], ["0.50", "GB"], ["1.65", "GB"], ["80.0", "MB"], ["2.73", "GB"],
    ]  # fmt: skip


def test_what_does_not_fit_names_the_most_that_would():
    wide = replace(SMALL, slots=100)
    with pytest.raises(PacelineError) as error:
        wide.check()
    slots, context = wide.most_slots, wide.most_context
    assert str(error.value) == (
        "100 slots of 4096 tokens need 22.58 GB of memory and 9.50 GB can be had: "
        f"use --slots {slots} or --context {context}"
    )
    assert replace(wide, slots=slots).fits
    assert not replace(wide, slots=slots + 1).fits
    assert replace(wide, context=context).fits
    assert not replace(wide, context=context + 64).fits


def test_where_only_both_together_help():
    with pytest.raises(PacelineError, match=r"use --slots 1 --context \d+$"):
        replace(SMALL, slots=10**6, context=10**6).check()
    with pytest.raises(PacelineError, match=r"use a smaller model or --dtype int4$"):
        replace(SMALL, held=11 * GB).check()


def test_a_context_nobody_asked_for_is_made_to_fit(folder, monkeypatch):
    llm = LLM(folder, dtype="fp32")
    plan(llm, 8)  # the first makes tables that others share
    whole = plan(llm, 8)
    room = whole.held + whole.room + whole.caches // 2
    monkeypatch.setattr(memory, "_host", lambda: (whole.held, int(room / 0.95)))
    with pytest.raises(PacelineError, match=r"use --slots [45] or --context \d+$"):
        plan(llm, 8)
    made = plan(llm, 8, shrink=True)
    assert made.fits
    assert 1800 < made.context < 2100
    assert made.context % 64 == 0
    assert made.slots == 8


@pytest.mark.parametrize("slots", [0, -1])
def test_no_slots(folder, slots):
    with pytest.raises(PacelineError, match="--slots must be at least 1"):
        plan(LLM(folder, dtype="fp32"), slots)


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_a_limit_of_version_2(tmp_path):
    root, own = tmp_path / "fs", tmp_path / "cgroup"
    own.write_text("0::/a/b\n")
    stat = "anon 5\ninactive_file 100\n"
    group(root / "a/b", memory__max="max\n", memory__current="700\n", memory__stat=stat)
    assert list(memory._cgroups(own, root)) == []
    group(root / "a", memory__max="1000\n", memory__current="800\n", memory__stat=stat)
    assert list(memory._cgroups(own, root)) == [300]  # of the group around it


def test_a_limit_of_version_1(tmp_path):
    root, own = tmp_path / "fs", tmp_path / "cgroup"
    own.write_text("9:name=systemd:/\n4:memory:/docker/x\n3:cpuset:/\n")
    files = {
        "memory__limit_in_bytes": "2000\n",
        "memory__usage_in_bytes": "500\n",
        "memory__stat": "total_inactive_file 0\n",
    }
    group(root / "memory", **files)  # a container sees its own group as the root
    assert list(memory._cgroups(own, root)) == [1500]


def test_where_there_are_no_cgroups(tmp_path):
    assert list(memory._cgroups(tmp_path / "nothing")) == []


FILL = """
import gc, sys
import subprocess
import sys
from dataclasses import replace
import psutil, torch
from paceline import LLM
from paceline.serve.memory import plan
from paceline.text.batch import Batch
llm = LLM("smollm2-135m", draft=sys.argv[1], context=2048)
planned = plan(llm, 6)
batch = Batch(replace(llm.parts, prepare=None), 6, llm.context)
for tensor in gc.get_objects():
    if issubclass(type(tensor), torch.Tensor) and tensor.dtype is torch.float32:
        if tensor.numel() > 2**20 and 6 in tensor.shape:
            tensor.add_(0)
print((planned.held + planned.caches) / psutil.Process().memory_info().rss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("draft", ["none", "auto", "model:smollm2-135m"])
def test_the_process_really_holds_what_was_planned(draft):
    done = subprocess.run(
        [sys.executable, "-c", FILL, draft], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == pytest.approx(1, abs=0.1)
