"""Metrics and logs beside a real engine: what they say is what the answers say."""

from __future__ import annotations

import io
import json
import random
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from paceline import LLM, SamplingParams
from paceline.serve.engine import Engine
from paceline.serve.logs import Both, Logs
from paceline.serve.metrics import Metrics
from tiny import write_llama

SUMS = ("drafts", "draft_tokens", "accepted_tokens")


class Answered:
    """One request; with `after` it is cancelled behind so many pieces, by the thread that waits."""

    def __init__(self, engine: Engine, ids: list[int], params: SamplingParams, after: int | None):
        self.pieces = 0
        self._enough, self._over = threading.Event(), threading.Event()
        self._after = after
        self.request = engine.submit(ids, params, self._heard)
        if after == 0:
            engine.cancel(self.request)

    def _heard(self, piece) -> None:
        self.pieces += piece is not None
        if piece is None or self.pieces == self._after:
            self._enough.set()
        if piece is None:
            self._over.set()

    def wait(self, engine: Engine) -> None:
        if self._after:
            assert self._enough.wait(60)
            engine.cancel(self.request)
        assert self._over.wait(60)


def read(metrics: Metrics) -> dict[str, float]:
    found = {}
    for family in text_string_to_metric_families(metrics.text().decode()):
        for sample in family.samples:
            if sample.name.endswith(("_total", "_count", "_bucket")):
                found[f"{sample.name}{sample.labels}".removeprefix("paceline:")] = sample.value
    return found


@pytest.fixture(scope="module")
def llm(tmp_path_factory) -> LLM:
    folder = write_llama(tmp_path_factory.mktemp("m") / "llama")
    return LLM(str(folder), draft="lookup:2", others=[f"model:{folder}"], dtype="fp32", k=4)


def test_what_is_counted_is_what_was_answered(llm):
    metrics, logs = Metrics({}), Logs({"draft": llm.draft}, stream := io.StringIO())
    engine = Engine(llm, slots=3, queue=64, watch=Both(metrics, logs))
    engine.start()
    chance = random.Random(7)
    seen, fell = [read(metrics)], []
    answers = []
    for i in range(40):
        params = SamplingParams(
            max_tokens=chance.randint(1, 30),
            temperature=chance.choice([0.0, 1.0]),
            seed=i,
            stop=chance.choice([(), ("a", "e"), ("zz",)]),
            draft=chance.choice([None, "none", llm.drafts[1]]),
            k=chance.choice([None, 0, 2]),
        )
        ids = [chance.randrange(40) for _ in range(chance.randint(1, 90))]
        answers.append(Answered(engine, ids, params, chance.choice([None, None, None, 0, 1, 3])))
    for answer in answers:
        answer.wait(engine)
        seen.append(read(metrics))
        before, now = seen[-2:]
        fell += [name for name, value in before.items() if now[name] < value]
        drafted, accepted = (now[f"spec_decode_num_{x}_total{{}}"] for x in SUMS[1:])
        assert accepted <= drafted
    engine.close()
    logs.close()
    assert fell == []
    done = [answer.request.completion for answer in answers]
    stats = [completion.stats for completion in done]
    now = read(metrics)
    tokens = sum(len(completion.tokens) for completion in done)
    assert now["generation_tokens_total{}"] == tokens
    assert now["spec_decode_num_draft_tokens_total{}"] == sum(s.drafted for s in stats)
    assert now["spec_decode_num_accepted_tokens_total{}"] == sum(s.accepted for s in stats) > 0
    for origin in ("accepted", "recovered", "bonus", "plain"):
        made = sum(token.origin == origin for c in done for token in c.tokens)
        assert now[f"generation_tokens_by_origin_total{{'origin': '{origin}'}}"] == made
    first = [answer for answer in answers if answer.request.completion.tokens]
    assert now["time_to_first_token_seconds_count{}"] == len(first)
    assert now["prompt_tokens_total{}"] == sum(len(a.request.ids) for a in first)
    later = tokens - sum(s.first_round for s in stats)
    assert now["inter_token_latency_seconds_count{}"] == later
    reasons = [completion.finish_reason for completion in done]
    for reason in ("stop", "length", "cancelled", "time", "error"):
        count = now[f"request_success_total{{'finished_reason': '{reason}'}}"]
        assert count == reasons.count(reason)
    assert reasons.count("cancelled") > 3
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert sorted(line["finish_reason"] for line in lines) == sorted(reasons)
    assert sum(line["completion_tokens"] for line in lines) == tokens
    assert not metrics._speaking
