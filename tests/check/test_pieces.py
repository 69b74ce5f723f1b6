"""Integrals over noise: exact for rules made of thresholds, whatever these are."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.check.pieces import pieces


def shares(rule, dims: int, **more) -> dict[int, float]:
    found = pieces(rule, 1, dims, **more)
    law: dict[int, float] = {}
    for weight, code in zip(found.weight, found.code, strict=True):
        law[int(code)] = law.get(int(code), 0.0) + float(weight)
    return law


def walk(which: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Three thresholds, the last of which hangs on the first two."""
    third = np.where(u[:, 0] < 0.3, 1 / 7, np.where(u[:, 1] < 2**-0.5, 0.9, 1e-3))
    return (u[:, 0] < 0.3) * 4 + (u[:, 1] < 2**-0.5) * 2 + (u[:, 2] < third)


@pytest.mark.parametrize("sections", [2, 5, 16])
def test_the_share_of_each_answer(sections: int) -> None:
    law = shares(walk, 3, sections=sections)
    s = 2**-0.5
    right = {
        7: 0.3 * s / 7, 6: 0.3 * s * 6 / 7, 5: 0.3 * (1 - s) / 7, 4: 0.3 * (1 - s) * 6 / 7,
        3: 0.7 * s * 0.9, 2: 0.7 * s * 0.1, 1: 0.7 * (1 - s) * 1e-3, 0: 0.7 * (1 - s) * 0.999,
    }  # fmt: skip
    assert law == pytest.approx(right, abs=1e-11)


def test_hints_save_questions_and_change_nothing() -> None:
    asked = {True: 0, False: 0}

    def rule(hinted: bool):
        def one(which: np.ndarray, u: np.ndarray) -> np.ndarray:
            asked[hinted] += len(u)
            return np.searchsorted([0.1, 0.35, 0.8], u[:, 0], side="right")

        return one

    right = {0: 0.1, 1: 0.25, 2: 0.45, 3: 0.2}
    assert shares(rule(False), 1) == pytest.approx(right, abs=1e-11)
    hints = lambda which, points: np.tile([0.5, 0.1, 0.35, 0.8], (len(which), 1))  # noqa: E731
    assert shares(rule(True), 1, hints=hints) == pytest.approx(right, abs=1e-11)
    assert asked[True] < asked[False] / 2


def test_an_answer_that_comes_back_is_found_inside() -> None:
    """All corners agree, and still something else happens in the middle."""
    law = shares(lambda which, u: ((u > 0.2) & (u < 0.9)).all(1).astype(np.int64), 2)
    assert law == pytest.approx({0: 0.51, 1: 0.49}, abs=1e-11)


def test_several_rules_at_once_and_no_noise_at_all() -> None:
    def rule(which: np.ndarray, u: np.ndarray) -> np.ndarray:
        return (u[:, 0] < np.array([0.25, 0.5, 1.0])[which]).astype(np.int64)

    found = pieces(rule, 3, 1)
    for i, share in enumerate([0.25, 0.5, 1.0]):
        yes = found.weight[(found.which == i) & (found.code == 1)].sum()
        assert yes == pytest.approx(share, abs=1e-11)
    still = pieces(lambda which, u: which * 10, 2, 0)
    assert (still.code.tolist(), still.weight.tolist()) == ([0, 10], [1, 1])


def test_what_has_no_thresholds_is_refused() -> None:
    def noise(which: np.ndarray, u: np.ndarray) -> np.ndarray:
        return (u[:, 0] * 2**44).astype(np.int64) % 2

    with pytest.raises(ValueError, match="thresholds"):
        pieces(noise, 1, 1)
