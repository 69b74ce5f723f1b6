"""What is asked of `paceline advise`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline.advise.what_if import parse_windows
from paceline.build import check_window
from paceline.build.drafts import Spec
from paceline.errors import PacelineError
from paceline.models.catalog import DEFAULT

SECONDS = 70.0
MOST_ROWS = 64


@dataclass(frozen=True)
class Request:
    """A pair to be looked at. Raises PacelineError for a value that means nothing.

    `drafts`: names as on `--draft`; none of them: those that need nothing more. `prompts`: a file
    (see `read_prompts`); None: three of our own. `batch`: numbers of rows; whatever they are, one
    row is looked at. `k`: windows to choose from, "4" or "1:8". `report`: where a page goes.
    `seconds`: that measuring may take, about; loading comes on top.
    """

    model: str = DEFAULT
    drafts: Sequence[str] = ()
    prompts: str | None = None
    batch: Sequence[int] = (1,)
    k: str = "1:8"
    dtype: str = "auto"
    device: str = "auto"
    threads: int | None = None
    report: str | None = None
    seconds: float = SECONDS

    def __post_init__(self) -> None:
        check_window(self.windows[-1])
        for draft in self.drafts:
            if draft != "auto":
                Spec(draft)
        if not self.batch or not all(1 <= rows <= MOST_ROWS for rows in self.batch):
            raise PacelineError(f"--batch must be numbers of rows, 1 to {MOST_ROWS}, as in 1,2,4,8")
        if self.report is not None:
            _check_writable(Path(self.report))

    @property
    def windows(self) -> range:
        """The K to choose from."""
        return parse_windows(self.k)

    @property
    def options(self) -> list[str]:
        """What of the command line matters to whoever runs the model the same way."""
        given = {"--dtype": self.dtype, "--device": self.device}
        options = [
            word for name, value in given.items() if value != "auto" for word in (name, value)
        ]
        return options if self.threads is None else [*options, "--threads", str(self.threads)]


def parse_batch(text: str) -> tuple[int, ...]:
    """`1,2,4,8` as numbers, each once, in order. Raises PacelineError for anything else."""
    try:
        rows = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise PacelineError(
            f"--batch {text}: give numbers of rows with commas between, as in 1,2,4,8"
        ) from None
    return tuple(rows)


def _check_writable(path: Path) -> None:
    """Refuse a page that could not be written in the end, before anything is measured."""
    folder = path.parent
    if path.is_dir():
        raise PacelineError(
            f"--report {path} is a folder: give a file, as in {path / 'advice.html'}"
        )
    if not folder.is_dir():
        raise PacelineError(f"--report {path}: there is no folder {folder}; make it first")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise PacelineError(f"--report {path} cannot be written; give another path")
