"""What can be trained, by the word on --kind. A new one is a line here."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from paceline.distill.teacher import Teacher
from paceline.distill.trainee import Trainee

Make = Callable[[Teacher, Tensor, dict[str, str]], Trainee]
"""`make(teacher, vocab, given)`: a fresh trainee. `vocab` [N] int64 ascending: the tokens that it
may guess; `given`: the options on --set. Raises PacelineError for one that it does not know."""


def _jump(teacher: Teacher, vocab: Tensor, given: dict[str, str]) -> Trainee:
    from paceline.distill.jump import jump

    return jump(teacher, vocab, given)


def _eagle3(teacher: Teacher, vocab: Tensor, given: dict[str, str]) -> Trainee:
    from paceline.distill.eagle3 import eagle3

    return eagle3(teacher, vocab, given)


HEADS: dict[str, Make] = {"jump": _jump, "eagle3": _eagle3}
