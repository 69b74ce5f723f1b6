"""A process that is forked while its parent computes can compute too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import os, threading
import torch

torch.set_num_threads(1)  # its OpenMP does not survive a fork
from kernels.tiny_decoders import FAMILIES, Weights, native, tokens

model, ids = native(Weights(FAMILIES["llama"]), threads=2), tokens(1, 200)
right = model.forward(ids, [0], model.new_cache(1, 200)).logits


def compute():
    cache = model.new_cache(1, 200)
    while True:
        model.forward(ids, [0], cache)


threading.Thread(target=compute, daemon=True).start()
for _ in range(5):
    child = os.fork()
    if not child:
        found = model.forward(ids, [0], model.new_cache(1, 200)).logits
        os._exit(0 if found.equal(right) else 3)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_computes_on_its_own() -> None:
    tests = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tests, timeout=60, check=False)
    assert done.returncode == 0
