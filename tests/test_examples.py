"""Every example runs, on a tiny model, and the README's Python and commands do too."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiny import write_llama

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(write_llama(tmp_path_factory.mktemp("tiny") / "llama"))


def run(code: list[str], tmp_path: Path) -> str:
    done = subprocess.run(
        [sys.executable, *code], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_and_are_short(path, tiny, tmp_path):
    assert len(path.read_text().splitlines()) < 40
    out = run([str(path), tiny], tmp_path)
    if "same_tokens" in path.stem:
        assert out.startswith("same tokens: True")


def test_the_python_of_the_readme_runs(tiny, tmp_path):
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code is not None
    assert len(code[1].splitlines()) <= 10
    shown = re.sub(r'LLM\("[^"]+"', f'LLM("{tiny}"', code[1])
    assert shown != code[1]
    assert run(["-c", shown], tmp_path)
