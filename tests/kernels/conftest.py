"""Where there are no kernels, how they are missed is all there is to test."""

from pathlib import Path

from paceline import kernels

collect_ignore: list[str] = []
if not kernels.available():
    tests = Path(__file__).parent.glob("test_*.py")
    collect_ignore += [test.name for test in tests if test.name != "test_build.py"]
