"""Peers: what is measured of them, what becomes of one that fails, and the table."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from statistics import median

import pytest
from rich.console import Console
from scripted_peer import JOB, ScriptedPeer

from paceline.bench.peer import Answer, Meter
from paceline.bench.peers import ADAPTERS, Adapter, installed
from paceline.bench.peers.field import Field, Way
from paceline.bench.peers.remote import PeerFailed, RemotePeer
from paceline.bench.peers.table import notes, rows, table
from paceline.bench.peers.tuning import best, one_line, thread_counts, windows
from paceline.errors import MissingExtra, PacelineError

HERE = str(Path(__file__).parent)
RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from paceline.bench import peers
from paceline.bench.peers.__main__ import main
import scripted_peer as scripted
class Scripted:
    def open(self, job, note):
        return scripted.open_peer(job, note)
peers.ADAPTERS["scripted"] = Scripted()
main("scripted")
"""
OF = {"run": "r", "model": "m", "prompt": "p", "category": "code"}


def started(model: str = "model.gguf", notes: list[str] | None = None) -> RemotePeer:
    job, heard = replace(JOB, model=model), [] if notes is None else notes
    return RemotePeer("scripted", job, heard.append, [sys.executable, "-c", RUN, HERE])


def ours(prompt: str, category: str, plain: list[float], speculative: list[float]) -> dict:
    sides = {
        name: {"tokens_per_second": median(rates), "tpot_s": [1 / rate for rate in rates]}
        for name, rates in (("plain", plain), ("speculative", speculative))
    }
    return {"prompt": prompt, "category": category, **sides}


def theirs(prompt: str, category: str, rates: list[float], same: bool = True, **more: str) -> dict:
    side = ours("", "", rates, rates)["plain"]
    record = {"engine": "other", "mode": "plain", "model": "m", "prompt": prompt, **side}
    return {**record, "category": category, "same_tokens": same, "error": None, **more}


def test_tokens_per_second_leaves_out_the_first_pass() -> None:
    times = iter([10.0, 12.0, 12.5, 14.0])
    meter = Meter(clock=lambda: next(times))
    for ids in ([7, 8], [9], [], [4, 5]):
        meter(ids)
    answer = meter.answer()
    assert answer == Answer([7, 8, 9, 4, 5], first=2, first_s=2.0, seconds=4.0)
    assert answer.tokens_per_second == 3 / 2.0


def test_an_answer_of_one_pass_is_timed_from_its_beginning() -> None:
    assert Answer([7, 8], first=2, first_s=4.0, seconds=4.0).tokens_per_second == 0.5


def test_the_fastest_setting_wins_and_one_that_fails_is_passed_over() -> None:
    def answer(settings):
        if settings["k"] == 3:
            raise RuntimeError("cannot do that")
        return Answer([1, 2, 3], 1, 0.0, 2 / settings["rate"])

    heard: list[str] = []
    tried = [{"k": 2, "rate": 5.0}, {"k": 3, "rate": 9.0}, {"k": 5, "rate": 7.0}]
    assert best(tried, answer, heard.append) == {"k": 5, "rate": 7.0}
    assert heard[1] == "k 3, rate 9.0: cannot do that"
    with pytest.raises(PacelineError, match="cannot do that"):
        best([{"k": 3, "rate": 9.0}], answer, heard.append)


def test_a_slow_candidate_is_asked_once() -> None:
    asked: list[int] = []

    def answer(settings):
        asked.append(settings["rate"])
        return Answer([1, 2, 3], 1, 0.0, 2 / settings["rate"])

    best([{"rate": 4}, {"rate": 1}, {"rate": 2}], answer, lambda line: None)
    assert asked == [4, 4, 1, 2, 2]


def test_an_engine_that_misreads_the_weights_is_no_peer() -> None:
    stuck = Answer([0] * 32, 1, 0.1, 1.0)
    with pytest.raises(PacelineError, match="misreads this file"):
        best([{"k": 2}], lambda settings: stuck, lambda line: None)


def test_what_is_tried() -> None:
    assert (thread_counts(4), thread_counts(1)) == ([4, 2], [1])
    assert {(w["a"], w["b"]) for w in windows("a", "b")} >= {(2, 2), (10, 2), (2, 3), (10, 3)}
    assert one_line(RuntimeError("a\n  b")) == "a b"
    assert one_line(ValueError()) == "ValueError"


def test_a_peer_in_a_process_of_its_own() -> None:
    heard: list[str] = []
    peer = started(notes=heard)
    try:
        assert heard == ["scripted: threads 2: 10.0 tokens/s"]
        assert peer.settings == {"plain": {"threads": 2}, "lookup": {"threads": 2}}
        assert peer.absent == {"assisted": "it needs no help"}
        assert peer.generate([1], 2, "plain") == Answer([5, 6], 1, 0.5, 0.6)
        peer.generate([1], 2, "lookup")
        with pytest.raises(PeerFailed, match="out of breath"):
            peer.generate([1], 2, "lookup")
        assert peer.generate([1], 1, "plain").ids == [5]  # and it goes on
    finally:
        peer.close()
    peer.close()


def test_a_peer_that_cannot_start_says_why() -> None:
    with pytest.raises(PeerFailed, match="no such model"):
        started("none")


def test_a_peer_that_dies_leaves_its_last_words() -> None:
    peer = started("dies")
    try:
        for _ in range(2):
            with pytest.raises(PeerFailed, match=r"process ended \(1\): a wheel came off"):
                peer.generate([1], 2, "plain")
    finally:
        peer.close()


def test_a_peer_that_falls_silent_is_given_up() -> None:
    mute = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with pytest.raises(PeerFailed, match=r"no answer in 0\.1 s"):
        RemotePeer("mute", JOB, lambda line: None, mute, patience=0.1)


def test_each_turn_begins_with_another_way() -> None:
    peer = ScriptedPeer(rates={"plain": 10.0, "lookup": 20.0, "assisted": 5.0})
    field = Field([peer])
    for turn in range(3):
        field.turn([1], 3, turn)
    p, k, a = "plain", "lookup", "assisted"
    assert peer.asked == [p, k, a, k, a, p, a, p, k]


def test_records_hold_medians_and_whether_the_tokens_are_ours() -> None:
    field = Field([ScriptedPeer(rates={"plain": 10.0})])
    turns = [{Way("scripted", "plain"): Answer([5, 6, 7], 1, 0.5, s)} for s in (0.7, 0.9, 1.3)]
    same, other = (field.records(OF, turns, ids)[0] for ids in ([5, 6, 7], [5, 6, 8]))
    assert same["tokens_per_second"] == pytest.approx(2 / 0.4)
    assert same["tpot_s"] == pytest.approx([0.1, 0.2, 0.4])
    assert (same["seconds"], same["ttft_s"], same["tokens"]) == ([0.7, 0.9, 1.3], [0.5] * 3, 3)
    assert (same["same_tokens"], other["same_tokens"]) == (True, False)
    assert same["settings"] == {"threads": 2}
    assert same["error"] is other["error"] is None
    assert {name: same[name] for name in OF} == OF


def test_a_way_that_fails_ends_with_its_reason_and_no_figures() -> None:
    peer = ScriptedPeer(rates={"plain": 10.0, "lookup": 20.0}, fails=["lookup"])
    field = Field([peer])
    turns = [field.turn([1], 3, turn) for turn in range(3)]
    plain, lookup = field.records(OF, turns, [5, 6, 7])
    assert plain["tokens_per_second"] == pytest.approx(10.0)
    assert (lookup["error"], lookup["tokens_per_second"]) == ("out of breath", None)
    assert (lookup["seconds"], lookup["same_tokens"]) == ([], None)
    assert peer.asked.count("lookup") == 2
    found = rows([ours("p", "code", [10.0] * 3, [20.0] * 3)], [plain, lookup])
    assert [(r["mode"], r["ratio"], r["error"]) for r in found] == [
        ("plain", pytest.approx(2.0), None),
        ("lookup", None, "out of breath"),
    ]
    assert notes(found) == ["scripted lookup: out of breath"]


def test_a_peer_that_did_not_start_has_a_line_of_its_own(monkeypatch) -> None:
    missing = Adapter("no_such_module", "json", "hf")
    monkeypatch.setitem(ADAPTERS, "absent", missing)
    heard: list[str] = []
    with Field.open(["absent"], JOB, heard.append) as field:
        assert field.turn([1], 3) == {}
        (record,) = field.records(OF, [{}], [5])
        assert field.card() == [f"absent: left out: {record['error']}"]
    assert (record["engine"], record["mode"]) == ("absent", "any")
    assert record["error"]
    assert heard == [f"absent: {record['error']}"]


def test_the_ratio_is_ours_at_its_best_over_theirs() -> None:
    prompts = [
        ours("a", "code", [10.0, 5.0, 10.0], [20.0, 10.0, 20.0]),  # a slow turn hits all alike
        ours("b", "code", [10.0] * 3, [40.0] * 3),
        ours("c", "chat", [10.0] * 3, [8.0] * 3),
    ]
    others = [
        theirs("a", "code", [10.0, 5.0, 10.0]),
        theirs("b", "code", [5.0] * 3, same=False),
        theirs("c", "chat", [5.0] * 3),
    ]
    code, chat = rows(prompts, others)
    assert [code[key] for key in ("engine", "mode", "model", "category")] == [
        "other", "plain", "m", "code",
    ]  # fmt: skip
    assert code["ratio"] == pytest.approx((2.0 * 8.0) ** 0.5)
    assert code["tokens_per_second"] == pytest.approx((10.0 * 5.0) ** 0.5)
    assert (code["ours"], code["ours_tokens_per_second"]) == (
        "speculative",
        pytest.approx((20.0 * 40.0) ** 0.5),
    )
    assert (chat["ours"], chat["ratio"]) == ("plain", pytest.approx(2.0))
    assert (code["same"], code["prompts"]) == (1, 2)
    (note,) = notes([code, chat])
    assert note.startswith("other plain: 1 of 3 answers are not ours token for token")
    json.dumps({"rows": [code, chat]})


def test_prompts_that_we_could_not_answer_do_not_count() -> None:
    failed = {**ours("b", "code", [1.0], [1.0]), "plain": None}
    prompts = [ours("a", "code", [10.0], [10.0]), failed]
    (row,) = rows(prompts, [theirs("a", "code", [5.0]), theirs("b", "code", [1.0])])
    assert (row["ratio"], row["prompts"]) == (pytest.approx(2.0), 1)


def test_the_table_shows_each_row_and_our_best() -> None:
    prompts = [ours("a", "code", [10.0], [20.0]), ours("b", "chat", [9.0], [8.0])]
    others = [theirs("a", "code", [5.0]), theirs("b", "chat", [4.5])]
    console = Console(width=100, record=True, file=StringIO())
    console.print(table(rows(prompts, others), "title"))
    lines = console.export_text().splitlines()
    cells = [line.replace("│", " ").split() for line in lines]
    assert ["other", "plain", "5.0", "4.00x", "4.5", "2.00x"] in cells
    assert ["paceline", "its", "best", "20.0", "speculative", "9.0", "plain"] in cells


def test_names_and_packages_are_checked_before_anything_starts(monkeypatch) -> None:
    with pytest.raises(PacelineError, match="did you mean 'llama-cpp'"):
        installed(["llama.cpp"])
    monkeypatch.setitem(ADAPTERS, "llama-cpp", replace(ADAPTERS["llama-cpp"], package="no_such"))
    with pytest.raises(MissingExtra, match=r"pip install 'paceline\[llama-cpp\]'"):
        Field.open(["llama-cpp"], JOB, lambda line: None)
