"""What a bench found, from records whose figures are known."""

from __future__ import annotations

import json

import pytest

from paceline.bench.recorded import load
from paceline.bench.summary import percentiles, summarise


def side(rate, log, ttft=1.0, parts=(0.0, 1.0, 0.0)):
    emitted = sum(entry[2] for entry in log)
    return {
        "tokens": emitted, "tokens_per_second": rate, "seconds": [emitted / rate],
        "ttft_s": [ttft], "tpot_s": [1 / rate], "rounds": len(log), "alpha_at": [],
        "drafted": sum(entry[0] for entry in log), "accepted": sum(entry[1] for entry in log),
        "draft_s": parts[0], "target_s": parts[1], "overhead_s": parts[2], "round_log": log,
        "made": [],
    }  # fmt: skip


def line(name, category, speedup, log, cell=None, same=True, error=None):
    plain = side(10.0, [[0, 0, 1, 0.1]] * sum(entry[2] for entry in log))
    drafted = side(10.0 * speedup, log, 2.0, (0.1, 0.7, 0.2))
    return {
        "kind": "prompt", "run": "r", "prompt": name, "category": category, "cell": cell or {},
        "prompt_tokens": 5, "plain": None if error else plain, "same_tokens": same,
        "speculative": None if error else drafted, "error": error,
    }  # fmt: skip


def found(tmp_path, *lines):
    path = tmp_path / "r.jsonl"
    run = {"kind": "run", "run": "r", "model": "M", "draft": "lookup:5"}
    path.write_text("".join(json.dumps(each) + "\n" for each in [run, *lines]))
    return summarise(load(path))


# of three drafted tokens two, then none of two, and an end amid a draft of which one was accepted
LOG = [[3, 2, 3, 0.2], [2, 0, 1, 0.2], [3, 1, 1, 0.2]]


def test_counts_are_over_rounds_and_speedups_over_prompts(tmp_path):
    summary = found(
        tmp_path,
        *(line(f"c{i}", "code", gain, LOG) for i, gain in enumerate([1.0, 2.0, 4.0])),
        line("d", "chat", 0.5, [[1, 0, 1, 0.1]]),
        line("e", "chat", 1, LOG, same=None, error="it broke"),
    )
    code = summary["categories"]["code"]
    assert code["speedup"]["mean"] == pytest.approx(2)
    assert code["speedup"]["p50"] == pytest.approx(2)
    assert code["speedup"]["p10"] == pytest.approx(1.2)
    assert code["speedup"]["p90"] == pytest.approx(3.6)
    assert code["tau"] == pytest.approx(5 / 3)
    assert code["alpha"] == pytest.approx(3 / 5)  # tested: 3, 1 and 1 of them
    assert code["drafted_per_round"] == pytest.approx(8 / 3)
    assert code["alpha_at"][0] == pytest.approx(2 / 3)
    assert code["ttft_s"] == {
        "plain": {"p50": 1.0, "p90": 1.0},
        "speculative": {"p50": 2.0, "p90": 2.0},
    }
    assert code["tpot_s"]["speculative"]["p50"] == pytest.approx(0.05)
    assert code["seconds"] == pytest.approx({"draft": 0.3, "target": 2.1, "overhead": 0.6})
    assert code["worst"] == {"prompt": "c0", "speedup": 1.0}
    assert summary["all"]["speedup"]["mean"] == pytest.approx((1 * 2 * 4 * 0.5) ** 0.25)
    assert summary["prompts"] == 4
    assert summary["same_tokens"] == 4
    assert summary["errors"] == [{"prompt": "e (chat)", "error": "it broke"}]
    assert summary["words"] == (
        "lookup:5 makes M 1.41x as fast on 4 prompts: 2.00x on code, "
        "0.50x on chat. 1 prompt got slower, every answer is plain decoding's, token by token, "
        "1 prompt failed."
    )


def test_by_length_of_the_answer(tmp_path):
    def of(tokens):
        return [[0, 0, 1, 0.1]] * tokens

    lines = [line(str(n), "x", 1 + n / 100, of(n)) for n in (32, 33, 64, 300)]
    lengths = found(tmp_path, *lines)["lengths"]
    assert [(each["tokens"], each["prompts"]) for each in lengths] == [
        ("1-32", 1),
        ("33-64", 2),
        ("257-", 1),
    ]
    assert lengths[2]["speedup"]["mean"] == pytest.approx(4)


def test_cells_of_a_sweep_fastest_first(tmp_path):
    lines = [
        line(name, "x", gain * k, LOG, {"k": k})
        for k in (1, 3, 2)
        for name, gain in (("a", 1), ("b", 4))
    ]
    summary = found(tmp_path, *lines)
    assert [each["cell"] for each in summary["cells"]] == [{"k": "3"}, {"k": "2"}, {"k": "1"}]
    assert [each["speedup"]["mean"] for each in summary["cells"]] == pytest.approx([6, 4, 2])
    assert summary["cell"] == {"k": "3"}
    assert summary["words"].startswith("lookup:5 with k=3 makes M 6.00x as fast on 2 prompts.")


def test_words_of_what_does_not_pay_and_of_nothing(tmp_path):
    slower = found(tmp_path, line("a", "x", 0.5, LOG), line("b", "x", 0.8, LOG, same=False))
    assert slower["words"] == (
        "lookup:5 makes M slower, 0.63x, on 2 prompts. 2 prompts got slower, 1 answer differs from "
        "plain decoding's."
    )
    same = found(tmp_path, line("a", "x", 1.01, LOG, same=None))
    assert same["words"] == "lookup:5 makes M no faster, 1.01x, on 1 prompt. No prompt got slower."
    chance = found(tmp_path, *(line(str(i), "x", 0.5 + i / 5, LOG) for i in range(6)))
    assert "as fast, which may be chance (95% interval 0." in chance["words"]
    none = found(tmp_path, line("a", "x", 1, LOG, error="it broke"))
    assert none["all"] is None
    assert none["words"] == "Nothing was measured: 1 prompt failed."


def test_many_prompts_have_an_interval(tmp_path):
    lines = [line(str(i), "x", 2.0, LOG) for i in range(20)]
    said = found(tmp_path, *lines)["words"]
    assert said.startswith("lookup:5 makes M 2.00x as fast (95% interval 2.00 to 2.00) on 20")


def test_percentiles_lie_on_a_line():
    assert percentiles([4.0, 1.0, 2.0, 3.0], (0, 50, 90)) == pytest.approx(
        {"p0": 1, "p50": 2.5, "p90": 3.7}
    )
