"""The figures of benchmarks/serve.py, on answers whose times are given."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from traffic import Answer, ended, together  # noqa: E402


def test_a_rate_counts_what_came_while_all_were_answered() -> None:
    one = Answer(0.0, [(1.0, 5), (2.0, 1), (3.0, 4)])
    two = Answer(0.0, [(1.5, 2), (2.5, 3), (6.0, 3), (9.0, 1)])
    # from 1.5, when both had begun, until 3, when the first one is over
    tokens, seconds = together([one, two])
    assert tokens == (1 + 4) + 3
    assert seconds == pytest.approx(1.5)
    assert together([two]) == (7, 7.5)


def test_the_longest_gap_that_reaches_into_a_span() -> None:
    answer = Answer(0.0, [(1.0, 1), (2.0, 1), (5.0, 1), (6.0, 1), (16.0, 1)])
    assert answer.longest_gap(2.5, 5.5) == 3
    assert answer.longest_gap(1.0, 2.0) == 1
    assert answer.longest_gap(15.0, 20.0) == 10
    assert answer.longest_gap(16.0, 20.0) == 0


def test_times_of_an_answer() -> None:
    answer = Answer(10.0, [(10.5, 3), (12.0, 4)])
    assert (answer.first, answer.seconds, answer.tokens) == (0.5, 2.0, 7)


EVENTS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
    b'data: {"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":31,"total_tokens":35}}\n\n'
)


@pytest.mark.parametrize(
    ("answer", "status", "tokens"),
    [
        (EVENTS + b"data: [DONE]\n\n", 200, 31),
        (EVENTS + b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n", 200, 31),
        (EVENTS, 0, 0),  # cut off
        (b"", 0, 0),
        (b'HTTP/1.1 429 Too Many Requests\r\n\r\n{"error": {}}', 429, 0),
    ],
)
def test_only_a_whole_answer_is_one(answer, status, tokens) -> None:
    assert ended(answer) == (status, tokens)
