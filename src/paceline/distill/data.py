"""Prompts in, the target's own answers out: what a drafter is trained on.

An answers file has one JSON object a line, {"prompt", "temperature", "prompt_ids",
"completion_ids"}, and is only ever appended to: a run that is killed loses the answers in flight.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from paceline.errors import PacelineError
from paceline.text.prompts import json_object, read_text

LONGEST = 1024
"""Tokens of a row that are trained on at most: what is longer is cut."""


@dataclass(frozen=True)
class Answer:
    """One prompt and what the target said. `line`: where it stands in its file, from 1."""

    prompt: str
    temperature: float
    prompt_ids: list[int]
    completion_ids: list[int]
    line: int = 0

    @property
    def ids(self) -> list[int]:
        """Prompt and completion, cut to LONGEST."""
        return (self.prompt_ids + self.completion_ids)[:LONGEST]

    @property
    def anchors(self) -> int:
        """How many tokens of it can be trained on (see `trainee.Batch.count`)."""
        return max(0, len(self.ids) - 2 - max(0, len(self.prompt_ids) - 2))

    def to_line(self) -> str:
        """The answer as a line of an answers file."""
        fields = {name: value for name, value in asdict(self).items() if name != "line"}
        return json.dumps(fields, ensure_ascii=False) + "\n"


def read_answers(path: str | Path, vocab: int) -> list[Answer]:
    """The answers of a file (also one in gzip) whose ids must be below `vocab`.

    A last line that was cut off in the middle does not count. Raises PacelineError, with file and
    line, for any other that is no answer.
    """
    text = read_text(path)
    lines = text.split("\n")
    if lines[-1]:  # no line end behind it: the writer was killed
        try:
            json.loads(lines[-1])
        except ValueError:
            lines.pop()
    return [_answer(path, n, line, vocab) for n, line in enumerate(lines, 1) if line.strip()]


def append(path: Path, answer: Answer) -> None:
    """Write one more answer to a file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(answer.to_line())


def drop_half_line(path: Path) -> None:
    """Cut off what a killed writer left behind the last whole line."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            with path.open("r+b") as file:
                file.truncate(whole)


def split(answers: Sequence[Answer], seed: int) -> tuple[list[Answer], list[Answer]]:
    """Training and held-out answers. One prompt in ten is held out, by a hash of its text and the
    seed; one at least. Raises PacelineError where there are not two prompts."""
    key = {prompt: _hash(prompt, seed) for prompt in {a.prompt for a in answers}}
    if len(key) < 2:
        raise PacelineError(
            f"answers to {len(key)} prompts are too few: one is held out, so give two or more"
        )
    held = {prompt for prompt, value in key.items() if value % 10 == 0}
    if not held or len(held) == len(key):
        held = {min(key, key=lambda prompt: (key[prompt], prompt))}
    train = [a for a in answers if a.prompt not in held]
    return train, [a for a in answers if a.prompt in held]


class Order:
    """Which rows are read together, epoch by epoch. A batch holds about `tokens` tokens, padding
    counted, and one row at least; rows of about one length come together. The order depends on
    `lengths`, `tokens`, `seed` and the epoch alone."""

    def __init__(self, lengths: Sequence[int], tokens: int, seed: int) -> None:
        self._lengths, self._tokens, self._seed = lengths, tokens, seed

    def epoch(self, number: int) -> list[list[int]]:
        """The batches of an epoch, each a list of rows; every row is in one of them."""
        rng = random.Random(f"{self._seed}:{number}")
        rows = list(range(len(self._lengths)))
        rng.shuffle(rows)
        near = 32  # neighbours by length are looked for among so many
        batches: list[list[int]] = []
        for start in range(0, len(rows), near):
            part = sorted(rows[start : start + near], key=lambda row: self._lengths[row])
            batches += self._cut(part)
        rng.shuffle(batches)
        return batches

    def _cut(self, rows: list[int]) -> Iterator[list[int]]:
        """`rows`, shortest first, in pieces."""
        batch: list[int] = []
        for row in rows:
            if batch and (len(batch) + 1) * self._lengths[row] > self._tokens:
                yield batch
                batch = []
            batch.append(row)
        if batch:
            yield batch


def _hash(prompt: str, seed: int) -> int:
    digest = hashlib.sha256(f"{seed}:{prompt}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little")


def _answer(path: str | Path, number: int, line: str, vocab: int) -> Answer:
    raw = json_object(path, number, line)
    prompt, temperature = raw.get("prompt"), raw.get("temperature", 0.0)
    if not isinstance(prompt, str) or not isinstance(temperature, int | float):
        raise PacelineError(f"{path}:{number} is no answer: it needs a prompt and a temperature")
    ids: list[list[int]] = []
    for name in ("prompt_ids", "completion_ids"):
        value = raw.get(name)
        if not isinstance(value, list) or not value or not all(type(i) is int for i in value):
            raise PacelineError(f"{path}:{number} is no answer: {name} must be a list of token ids")
        if not 0 <= min(value) <= max(value) < vocab:
            raise PacelineError(
                f"{path}:{number}: token {max(value)} in {name}, but the model has {vocab}; "
                "was this answered by another model?"
            )
        ids.append(value)
    return Answer(prompt, float(temperature), ids[0], ids[1], number)
