"""How the kernels are found, switched off and missed, and what a build of the package contains."""

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from paceline import PacelineError, kernels

ROOT = Path(__file__).parents[2]
NATIVE = "paceline.kernels._native"

needs_kernels = pytest.mark.skipif(not kernels.available(), reason=kernels.why_not())


def refused() -> str:
    """What load() says, having checked that all three functions agree that there are no kernels."""
    with pytest.raises(PacelineError) as caught:
        kernels.load()
    message = str(caught.value)
    assert not kernels.available()
    assert kernels.why_not() == message
    assert "\n" not in message
    return message


@pytest.mark.skipif(
    not (shutil.which("c++") or os.environ.get("CXX")) or os.environ.get("PACELINE_KERNELS") == "0",
    reason="no compiler, or kernels switched off",
)
def test_a_machine_with_a_compiler_has_the_kernels() -> None:
    assert kernels.why_not() == ""
    assert kernels.available()
    assert kernels.load() is importlib.import_module(NATIVE)


def test_the_environment_switches_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_KERNELS", "0")
    assert "PACELINE_KERNELS" in refused()


def test_without_them_the_message_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACELINE_KERNELS", raising=False)
    monkeypatch.setitem(sys.modules, NATIVE, None)  # importing it raises ModuleNotFoundError
    message = refused()
    assert "C++ compiler" in message
    assert "pip install --force-reinstall" in message


def test_a_build_that_does_not_load_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(f"{name}.so:\n  undefined symbol: PyHello")

    monkeypatch.delenv("PACELINE_KERNELS", raising=False)
    monkeypatch.setattr(importlib, "import_module", fail)
    message = refused()
    assert "undefined symbol: PyHello" in message
    assert "pip install --force-reinstall" in message


def test_asking_imports_nothing_heavy() -> None:
    code = (
        "import sys; from paceline import kernels; kernels.available();"
        "print({'torch', 'numpy'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "set()"


@needs_kernels
def test_an_engine_is_what_was_asked_for() -> None:
    native = kernels.load()
    isas = native.isas()
    assert isas[-1] == "portable"  # the last resort is always there
    assert len(set(isas)) == len(isas)
    assert native.Engine(3).threads == 3
    assert native.Engine(1).isa == isas[0]
    assert [native.Engine(1, isa).isa for isa in isas] == isas


@needs_kernels
@pytest.mark.parametrize("threads", [0, -1])
def test_an_engine_needs_a_thread(threads: int) -> None:
    with pytest.raises(ValueError, match=f"at least 1, not {threads}"):
        kernels.load().Engine(threads)


@needs_kernels
def test_an_unknown_instruction_set_is_refused_with_the_known_ones() -> None:
    native = kernels.load()
    with pytest.raises(ValueError, match="unknown isa 'mmx'") as caught:
        native.Engine(1, "mmx")
    assert str(caught.value).endswith(", ".join(native.isas()))


needs_backend = pytest.mark.skipif(
    not importlib.util.find_spec("scikit_build_core") or not (ROOT / "CMakeLists.txt").exists(),
    reason="needs scikit-build-core and a checkout",
)


def build(what: str, folder: Path, **environment: str) -> Path:
    """What the build backend makes of the checkout: a wheel or an sdist."""
    code = f"from scikit_build_core.build import build_{what} as b; print(b({str(folder)!r}))"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **environment},
        capture_output=True, text=True,
    )  # fmt: skip
    assert out.returncode == 0, out.stdout + out.stderr
    return folder / out.stdout.splitlines()[-1]


@needs_backend
def test_without_a_compiler_a_pure_wheel_is_built(tmp_path: Path) -> None:
    wheel = build("wheel", tmp_path, CC="/bin/false", CXX="/bin/false")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {str(f.relative_to(ROOT / "src")) for f in (ROOT / "src").rglob("*.py")}
    info = wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info/"
    shipped = {name for name in names if not name.startswith(info)}
    heads = (ROOT / "src" / "paceline" / "heads").rglob("*.*")
    kinds = ("css", "html", "js", "svg", "jsonl")
    pages = [f for kind in kinds for f in (ROOT / "src" / "paceline").rglob(f"*.{kind}")]
    others = {str(f.relative_to(ROOT / "src")) for f in (*heads, *pages) if f.is_file()}
    assert shipped == modules | others | {"paceline/py.typed", "paceline/kernels/_native.pyi"}


@needs_backend
def test_an_sdist_has_what_a_build_needs_and_no_tests(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = (f for f in (ROOT / "src").rglob("*") if f.suffix in {".py", ".cpp", ".h"})
    assert {str(f.relative_to(ROOT)) for f in files} <= names
    assert {"CMakeLists.txt", "pyproject.toml", "README.md", "LICENSE"} <= names
    assert not {name for name in names if name.startswith(("tests", "benchmarks", "build"))}
