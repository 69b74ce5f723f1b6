"""The engine: answers are those of the library, and whatever happens to a request its slot comes
back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from engine_client import PROMPT, Client, generator

from fakes import HashLM
from paceline import LLM, SamplingParams
from paceline.core.loop import Loop
from paceline.core.sequences import Sequences
from paceline.drafters.lookup import Lookup
from paceline.errors import PacelineError
from paceline.serve.engine import Engine
from paceline.serve.watch import Busy, Load, Stopping
from tiny import write_llama


@pytest.fixture
def engine() -> Iterator[Callable[..., Engine]]:
    """Makes started engines, and closes them."""
    made: list[Engine] = []

    def make(model: HashLM | None = None, **how) -> Engine:
        made.append(Engine(generator(model or HashLM(258, sharpness=6.0)), **how))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[Sequences, str], None]]:
    """Hooks that are called in the engine's thread "before" each round, after its "draft" and
    after "all" of it."""
    hooks: list[Callable[[Sequences, str], None]] = []
    step, propose = Loop.step, Lookup.propose

    def stepping(self, seqs):
        for each in hooks:
            each(seqs, "before")
        done = step(self, seqs)
        for each in hooks:
            each(seqs, "all")
        return done

    def proposing(self, seqs, k):
        draft = propose(self, seqs, k)
        for each in hooks:
            each(seqs, "draft")
        return draft

    monkeypatch.setattr(Loop, "step", stepping)
    monkeypatch.setattr(Lookup, "propose", proposing)
    return hooks


def test_requests_from_many_threads_are_answered_as_alone(tmp_path) -> None:
    """With seeds and without a temperature: the same ids as from the library (C12, C16)."""
    path = str(write_llama(tmp_path / "llama"))
    llm = LLM(path, draft="lookup:2", others=["suffix", f"model:{path}"], dtype="int8", k=4)
    rng = random.Random(0)
    asked = [
        (
            [rng.randrange(97, 105) for _ in range(rng.choice([1, 3, 40, 200]))],
            SamplingParams(
                max_tokens=rng.randrange(1, 40),
                temperature=rng.choice([0.0, 1.5]),
                seed=7,
                k=rng.choice([None, 0, 2]),
                draft=rng.choice([None, "suffix", f"model:{path}", "none"]),
                presence_penalty=rng.choice([0.0, 1.0]),
            ),
        )
        for _ in range(30)
    ]
    running = Engine(llm, slots=4, queue=64)
    running.start()
    clients: list[Client | None] = [None] * len(asked)

    def ask(numbers: range) -> None:
        for i in numbers:
            clients[i] = Client(running, *asked[i])

    threads = [threading.Thread(target=ask, args=(range(i, 30, 3),)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [client.end() for client in clients if client is not None]
    running.close()
    for (ids, params), done in zip(asked, found, strict=True):
        alone = llm.generate([ids], params)[0]
        assert (done.token_ids, done.text, done.finish_reason, done.usage) == (
            alone.token_ids,
            alone.text,
            alone.finish_reason,
            alone.usage,
        )


def test_without_seeds_two_runs_differ(engine) -> None:
    running = engine(HashLM(258, sharpness=1.0))
    params = SamplingParams(max_tokens=40, temperature=1.0, ignore_eos=True)
    one, two = (Client(running, PROMPT, params).end().token_ids for _ in range(2))
    assert one != two


@pytest.mark.parametrize("where", ["before", "draft", "all"])
def test_a_request_that_is_cancelled_within_a_round_frees_its_slot(engine, hook, where) -> None:
    """At whatever point; its neighbour does not notice, and the next one on the same prefix gets
    a cold server's answer (C21)."""
    running = engine(slots=2)
    long = SamplingParams(max_tokens=300, ignore_eos=True)
    cold = Client(running, PROMPT, long).end().token_ids
    for _ in range(20):
        neighbour, gone = Client(running, PROMPT[::-1], long), Client(running, PROMPT, long)
        gone.at(2)
        at = threading.Event()

        def cancel(seqs: Sequences, now: str, at=at, gone=gone) -> None:
            if now == where and not at.is_set():
                running.cancel(gone.request)
                at.set()

        hook.append(cancel)
        done = gone.end()
        hook.clear()
        assert done.finish_reason == "cancelled"
        assert done.token_ids == cold[: len(done.token_ids)]
        assert gone.ends == 1
        assert done.stats.accepted <= done.stats.drafted
        assert len(neighbour.end().token_ids) == 300
        assert Client(running, PROMPT, long).end().token_ids == cold
        assert running.load == Load(0, 0, 2, 64)


def test_200_cancels_leave_no_trace(engine) -> None:
    """In the queue, while the prompt is read, and while it runs."""
    running = engine(slots=2, queue=300, budget=8)
    quick = SamplingParams(max_tokens=30, ignore_eos=True)
    cold = Client(running, PROMPT, quick).end().token_ids
    target = running._batch._loop.target
    size = target.cache.shape, target.ids.shape
    rng = random.Random(1)
    for _ in range(20):
        clients = []
        for number in range(10):
            ids = [97 + (number + i) % 5 for i in range(rng.choice([5, 200]))]
            clients.append(Client(running, ids, SamplingParams(max_tokens=200, ignore_eos=True)))
        for client in clients:
            client.at(rng.choice([0, 0, 1, 3]))
            running.cancel(client.request)
            running.cancel(client.request)  # twice is once
        assert {client.end().finish_reason for client in clients} <= {"cancelled", "length"}
        assert [client.ends for client in clients] == [1] * 10
    assert running.load == Load(0, 0, 2, 300)
    assert (target.cache.shape, target.ids.shape) == size
    assert Client(running, PROMPT, quick).end().token_ids == cold


def test_a_full_queue_refuses_and_is_served_in_order(engine, hook) -> None:
    gate = threading.Event()
    hook.append(lambda seqs, now: gate.wait(30) and None)
    running = None

    def late() -> None:
        time.sleep(0.05)
        gate.set()

    gate.set()
    running = engine(slots=1, queue=3)
    gate.clear()
    params = SamplingParams(max_tokens=2)
    clients = [Client(running, PROMPT, params) for _ in range(4)]
    with pytest.raises(Busy) as full:
        Client(running, PROMPT, params)
    assert full.value.retry_after >= 1
    threading.Thread(target=late).start()
    began = [client.end() and client.request.completion.stats.total_s for client in clients]
    assert began == sorted(began)
    Client(running, PROMPT, params).end()


def test_what_takes_too_long_ends_wherever_it_is(engine, hook) -> None:
    running = engine(slots=1, time_limit=0.3)
    hook.append(lambda seqs, now: time.sleep(0.01))
    endless = SamplingParams(max_tokens=400, ignore_eos=True)
    clients = [Client(running, PROMPT, endless) for _ in range(2)]
    done = [client.end() for client in clients]
    assert [each.finish_reason for each in done] == ["time", "time"]
    assert done[0].token_ids
    assert not done[1].token_ids
    assert running.load == Load(0, 0, 1, 64)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_round_that_fails_ends_its_requests_and_nothing_else(engine, hook) -> None:
    running = engine(slots=2)

    def fail(seqs: Sequences, now: str) -> None:
        hook.clear()
        raise RuntimeError("a defect")

    hook.append(fail)
    assert Client(running, PROMPT, SamplingParams(max_tokens=5)).end().finish_reason == "failed"
    assert Client(running, PROMPT, SamplingParams(max_tokens=5)).end().finish_reason == "length"
    assert running.ready


def test_what_cannot_be_asked_for_is_refused_at_once(engine) -> None:
    running = engine()
    for ids, params, match in (
        ([], SamplingParams(), "empty"),
        ([97] * 512, SamplingParams(), "512 tokens and the context holds 512"),
        (PROMPT, SamplingParams(k=5), "at most 4"),
        (PROMPT, SamplingParams(draft="model"), "draft"),
        (PROMPT, SamplingParams(verify="block"), "verify"),
    ):
        with pytest.raises(PacelineError, match=match):
            Client(running, ids, params)
    assert running.load.running == 0
    assert Client(running, [97] * 511, SamplingParams()).end().usage["completion_tokens"] == 1
    for wrong in ({"slots": 0}, {"queue": -1}, {"budget": 0}, {"time_limit": 0}):
        with pytest.raises(PacelineError):
            Engine(generator(HashLM(258)), **wrong)


def test_draining_answers_what_is_there_and_takes_nothing_more(engine) -> None:
    running = engine(slots=1)
    assert running.ready
    assert running.plain_rate > 0
    clients = [Client(running, PROMPT, SamplingParams(max_tokens=50)) for _ in range(3)]
    ended: list[bool] = []
    waiter = threading.Thread(target=lambda: ended.append(running.drain(30)))
    waiter.start()
    while running.ready:
        time.sleep(0.001)
    with pytest.raises(Stopping):
        Client(running, PROMPT, SamplingParams())
    waiter.join()
    assert ended == [True]
    assert [len(client.end().token_ids) for client in clients] == [50] * 3
    running.close()
    running.close()
    assert not running.ready


def test_closing_cancels_what_runs(engine) -> None:
    running = engine(slots=1)
    clients = [
        Client(running, PROMPT, SamplingParams(max_tokens=490, ignore_eos=True)) for _ in range(3)
    ]
    clients[0].at(1)
    running.close()
    assert {client.end().finish_reason for client in clients} == {"cancelled"}
