"""Which drafter is advised, and what is said about it."""

from __future__ import annotations

import pytest

from advise.scripted import choose, none, row
from paceline.advise.rows import Row, together


def test_the_fastest_drafter_is_advised_with_its_k_and_why() -> None:
    advice = choose(row("lookup:5", 1.2, 1.0), row("head:h", 1.8, 1.4))
    assert (advice.draft, advice.k) == ("head:h", 4)
    assert advice.speedup == pytest.approx(1.6)
    assert advice.command == ("paceline generate --model my-model --dtype int8 --draft head:h")
    assert advice.sentence == (
        "Use head:h with K = 4: 1.60 times as fast as plain decoding (1.80x on code, 1.40x on "
        "chat). A round brings 2.00 tokens; scoring 5 at once takes 1.50 plain steps, and drafting "
        "a token 0.050."
    )


def test_a_drafter_that_loses_is_none_and_says_why() -> None:
    advice = choose(row("self:int4", 0.9, 0.7), row("self:skip=8", 0.6, 0.6))
    assert (advice.draft, advice.k, advice.speedup) == ("none", 0, 1.0)
    assert advice.command == "paceline generate --model my-model --dtype int8 --draft none"
    assert advice.sentence == (
        "Do not speculate: the best drafter here, self:int4, would make it 0.80 times as fast at "
        "K = 4. A round brings 2.00 tokens; scoring 5 at once takes 1.50 plain steps, and drafting "
        "a token 0.050."
    )


def test_what_is_no_faster_than_timing_can_tell_is_none() -> None:
    assert choose(row("suffix", 1.02, 1.02)).draft == "none"
    assert choose(row("suffix", 1.05, 1.05)).draft == "suffix"


def test_a_prediction_that_was_not_kept_counts_half() -> None:
    """Predicted 1.10, but 21% too high where it was measured: 1.10 / sqrt(1.21)."""
    disappointing = row("suffix", 1.1, 1.1, error=0.21)
    assert disappointing.expected == pytest.approx(1.0)
    assert choose(disappointing).draft == "none"
    for error, expected in ((2.0, 1.0), (-0.9, 1.21)):  # which tells more of the machine
        assert row("suffix", 1.1, 1.1, error=error).expected == pytest.approx(expected)


def test_what_slows_one_kind_of_text_down_is_said() -> None:
    said = choose(row("head:h", 1.6, 0.9)).sentence
    assert said.endswith("It slows chat down: leave it out there.")


def test_of_equals_the_one_that_needs_less_memory_or_comes_first() -> None:
    large, small = row("model:m", 1.51, 1.51, memory=900_000_000), row("suffix", 1.5, 1.5)
    assert choose(large, small).draft == "suffix"
    assert choose(row("auto", 1.5, 1.5), row("suffix", 1.51, 1.51)).draft == "auto"
    assert choose(row("model:m", 1.6, 1.6, memory=900_000_000), small).draft == "model:m"


def test_a_name_that_the_shell_would_take_apart_is_quoted() -> None:
    advice = choose(row("head:my head", 1.5, 1.5))
    assert "--draft 'head:my head'" in advice.command


def test_auto_says_what_it_is() -> None:
    advice = choose(row("auto", 1.5, 1.5, resolved="lookup:3-5+head:h"))
    assert advice.sentence.startswith("Use auto (lookup:3-5+head:h) with K = 4")
    assert advice.command.endswith("--draft auto")


def test_without_any_drafter_there_is_none() -> None:
    advice = choose(Row("head:h", "head:h", error="no such head"))
    assert advice.sentence == "Do not speculate: no drafter could be tried."
    assert not none().drafts


def test_trials_together_are_sums() -> None:
    first, second = (part.trial for part in row("x", 2.0, 1.0).kinds.values())
    assert first is not None
    assert second is not None
    whole = together([first, second])
    assert whole is not None
    assert whole.tokens == 20
    assert whole.measured == pytest.approx(2 / 1.5)
    assert whole.error == pytest.approx(0.0)
    assert together([]) is None


def test_rows_side_by_side_have_an_advice_of_their_own() -> None:
    slow = choose(row("head:h", 1.6, 1.6, batch=0.9), row("suffix", 1.2, 1.2, batch=0.95))
    assert slow.sentence.endswith("With 4 rows side by side: none (0.95x is predicted).")
    fast = choose(row("head:h", 0.9, 0.9, batch=0.9), row("suffix", 0.9, 0.9, batch=1.3))
    assert fast.draft == "none"
    assert fast.sentence.endswith(
        "With 4 rows side by side: suffix with K = 1 (1.30x is predicted)."
    )
