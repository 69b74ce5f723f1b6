"""What /metrics says after rounds whose figures are known."""

from __future__ import annotations

from time import perf_counter

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline.core.params import SamplingParams
from paceline.core.types import Emitted
from paceline.serve.metrics import Metrics
from paceline.serve.watch import Load
from paceline.text.request import Request
from tiny_requests import request

ABOUT = {"version": "1.2", "model": "m", "draft": "lookup:5"}


def read(metrics: Metrics) -> dict[str, float]:
    """Every sample by name and labels, as a scraper sees them."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            name = sample.name.removeprefix("paceline:")
            found[f"{name}{{{labels}}}" if labels else name] = sample.value
    return found


def falling(before: dict[str, float], after: dict[str, float]) -> list[str]:
    """Counters that are smaller than they were."""
    counts = ("_total", "_count", "_sum", "_bucket")
    names = [name for name in before if name.split("{")[0].endswith(counts)]
    return [name for name in names if after[name] < before[name]]


THREE = [Emitted([1, 2, 3, 4, 5], 4, 4), Emitted([6], 4, 0), Emitted([7, 256], 4, 2, "stop")]


def told(metrics: Metrics, rounds: list[Emitted], one: Request | None = None) -> Request:
    one = one or request([9, 9, 9])
    metrics.began(one, 0.02)
    for seconds, emitted in zip((0.3, 0.01, 0.04, 0.04), rounds, strict=False):
        one.completion.finish_reason = emitted.finish or "length"
        metrics.grew(one, emitted, seconds)
    metrics.ended(one)
    return one


def test_three_rounds_by_hand():
    metrics = Metrics(ABOUT)
    told(metrics, THREE)
    found = read(metrics)
    assert found["spec_decode_num_drafts_total"] == 3
    assert found["spec_decode_num_draft_tokens_total"] == 12
    assert found["spec_decode_num_accepted_tokens_total"] == 6
    places = [found[f"spec_decode_num_accepted_tokens_per_pos_total{{position={i}}}"]
              for i in range(4)]  # fmt: skip
    assert places == [2, 2, 1, 1]
    assert found["generation_tokens_total"] == 8
    origins = {"accepted": 6, "bonus": 1, "recovered": 1, "plain": 0}
    for origin, count in origins.items():
        assert found[f"generation_tokens_by_origin_total{{origin={origin}}}"] == count
    assert found["prompt_tokens_total"] == 3
    assert found["request_success_total{finished_reason=stop}"] == 1
    assert found["speculation_active"] == 1


def test_a_round_of_several_tokens_counts_as_so_many():
    metrics = Metrics(ABOUT)
    told(metrics, THREE)
    found = read(metrics)
    assert found["time_to_first_token_seconds_count"] == 1
    assert found["time_to_first_token_seconds_sum"] == pytest.approx(0.3)
    # one token after 0.01 s, then two that share 0.04 s; not those of the first round
    assert found["inter_token_latency_seconds_count"] == 3
    assert found["inter_token_latency_seconds_sum"] == pytest.approx(0.05)
    assert found["inter_token_latency_seconds_bucket{le=0.01}"] == 1
    assert found["inter_token_latency_seconds_bucket{le=0.025}"] == 3
    assert found["request_queue_time_seconds_sum"] == pytest.approx(0.02)


def test_what_was_given_up_between_draft_and_verification_counts_nothing():
    metrics = Metrics(ABOUT)
    told(metrics, THREE)
    before = read(metrics)
    queued, reading, speaking = request([1]), request([1, 2]), request([1, 2, 3])
    for one in (queued, reading, speaking):
        one.completion.finish_reason = "cancelled"
    metrics.began(reading, 0.0)
    metrics.began(speaking, 0.0)
    metrics.grew(speaking, Emitted([5], 0, 0), 0.1)
    for one in (queued, reading, speaking):
        metrics.ended(one)
    after = read(metrics)
    assert falling(before, after) == []
    for name in ("num_drafts", "num_draft_tokens", "num_accepted_tokens"):
        assert after[f"spec_decode_{name}_total"] == before[f"spec_decode_{name}_total"]
    assert after["generation_tokens_total"] == before["generation_tokens_total"] + 1
    assert after["prompt_tokens_total"] == before["prompt_tokens_total"] + 3
    assert after["request_success_total{finished_reason=cancelled}"] == 3
    assert after["e2e_request_latency_seconds_count"] == before["e2e_request_latency_seconds_count"]


def test_no_counter_falls_and_accepted_never_passes_drafted():
    metrics = Metrics(ABOUT)
    rounds = [
        Emitted([], 4, 0, "error"),  # the target gave no distribution
        Emitted([1], 0, 0),
        Emitted([1], 3, 1, "length"),  # cut at the limit: two drafted tokens never tested
        Emitted([1, 2, 3], 2, 2, "stop"),
    ]
    before = read(metrics)
    for emitted in rounds:
        told(metrics, [emitted])
        after = read(metrics)
        assert falling(before, after) == []
        accepted = after["spec_decode_num_accepted_tokens_total"]
        assert accepted <= after["spec_decode_num_draft_tokens_total"]
        origins = [n for name, n in after.items() if name.startswith("generation_tokens_by_origin")]
        assert sum(origins) == after["generation_tokens_total"]
        before = after
    assert before["spec_decode_num_draft_tokens_total"] == 9
    assert before["spec_decode_num_accepted_tokens_total"] == 3


def test_load_rejections_and_build():
    metrics = Metrics(ABOUT)
    assert "slots" not in read(metrics)
    metrics.follow(lambda: Load(running=3, waiting=2, slots=8, queue=64))
    metrics.rejected()
    found = read(metrics)
    assert [found[f"num_requests_{what}"] for what in ("running", "waiting")] == [3, 2]
    assert [found["slots"], found["queue_size"]] == [8, 64]
    assert found["requests_rejected_total"] == 1
    assert found["build_info{draft=lookup:5,model=m,version=1.2}"] == 1
    assert found["process_resident_memory_bytes"] > 1e6
    assert found["speculation_active"] == 0


def test_nothing_is_kept_of_requests_that_are_over():
    metrics = Metrics(ABOUT)
    for _ in range(5):
        told(metrics, THREE)
    assert not metrics._speaking
    assert read(metrics)["time_to_first_token_seconds_count"] == 5


def test_two_servers_in_one_process_do_not_share_counts():
    one, other = Metrics(ABOUT), Metrics(ABOUT)
    told(one, THREE)
    assert read(other)["generation_tokens_total"] == 0


def test_the_whole_time_of_an_answer():
    metrics = Metrics(ABOUT)
    one = request([1], SamplingParams(max_tokens=1))
    one.began = perf_counter() - 3
    told(metrics, [Emitted([1], 0, 0, "length")], one)
    found = read(metrics)
    assert found["e2e_request_latency_seconds_bucket{le=2.5}"] == 0
    assert found["e2e_request_latency_seconds_bucket{le=30.0}"] == 1
