"""A bench in this process, over a tiny model: what is written down, whatever happens."""

from __future__ import annotations

import json

import pytest
from scripted_peer import ScriptedPeer

from fake_tokenizer import ByteTokenizer
from fakes import HashLM
from paceline.bench import run as running
from paceline.bench.engine import Engines, Fresh
from paceline.bench.measure import Differs, run
from paceline.bench.peers.field import Field
from paceline.bench.records import Writer, read
from paceline.bench.request import Request
from paceline.build import LLM
from paceline.controllers.fixed import Fixed
from paceline.core.params import SamplingParams
from paceline.drafters.lookup import Lookup
from paceline.errors import PacelineError
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.verifiers.rejection import Rejection
from tiny import write_llama


def silent(*args) -> None:
    pass


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    return str(write_llama(tmp_path_factory.mktemp("tiny") / "llama"))


@pytest.fixture
def measured(tiny, tmp_path):
    """Measure two prompts; the records."""

    def go(**settings):
        prompts = tmp_path / "p.txt"
        prompts.write_text("abcabcabc\nsome other text\n")
        request = Request(
            [str(prompts)], tiny, "lookup", max_tokens=6, repeats=1, threads=1, **settings
        )
        writer = Writer(tmp_path / "b.jsonl")
        bench = running.Bench(request, writer, None, ["paceline", "bench"], silent, silent)
        bench.measure(silent)
        bench.close()
        writer.close()
        return read(tmp_path / "b.jsonl")

    return go


@pytest.mark.parametrize(
    ("error", "says", "same"),
    [
        (Differs("they differ from token 3 on"), "they differ from token 3 on", False),
        (PacelineError("too long"), "too long", None),
        (RuntimeError("out of\n memory"), "RuntimeError: out of memory", None),
    ],
)
def test_an_error_ends_its_prompt_alone(measured, monkeypatch, error, says, same):
    pair, turns = running.pair, []

    def fails(*args, **settings):
        turns.append(settings["turn"])
        if len(turns) == 1:
            raise error
        return pair(*args, **settings)

    monkeypatch.setattr(running, "pair", fails)
    first, second = measured().prompts
    assert (first["error"], first["same_tokens"]) == (says, same)
    assert first["plain"] is first["speculative"] is None
    assert (second["error"], second["same_tokens"]) == (None, True)
    assert turns == [0, 1]  # prompts differ in which side is first


def test_a_draft_that_changes_the_answer_is_found_out(measured, monkeypatch):
    step = running.Engines.__init__

    def swapped(self, llm, cells):
        step(self, llm, cells)
        prompts = {}

        class Liar:
            def start(self, ids, params):
                other = [*ids[:-1], ids[-1] ^ 1]  # it answers another prompt
                prompts[tuple(ids)] = other
                return plain.start(other, params)

        plain, self.cells = self.plain, [Liar()]

    monkeypatch.setattr(running.Engines, "__init__", swapped)
    monkeypatch.setattr(running.Engines, "warm_up", silent)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running.machine, "commit", lambda: None)
        log = measured()
    assert any("differ from token" in (each["error"] or "") for each in log.prompts)


def test_peers_answer_beside_us_and_are_written_down(measured, monkeypatch):
    peer = ScriptedPeer("llama-cpp")
    monkeypatch.setattr(Field, "open", lambda names, job, note: Field([peer]))
    log = measured(peers=["llama-cpp"])
    assert log.run["peers"]
    assert [each["prompt"] for each in log.prompts] == ["p.txt:1", "p.txt:2"]
    modes = {(each["engine"], each["mode"], each["prompt"]) for each in log.peers}
    assert modes == {("llama-cpp", mode, f"p.txt:{n}") for mode in peer.settings for n in (1, 2)}


@pytest.mark.parametrize("make", [lambda *_: Lookup(), None])
def test_every_answer_reads_its_prompt_anew(make):
    from paceline.drafters.none import NoDraft

    model = HashLM(258)
    drafter = make or (lambda *_: NoDraft())
    parts = Parts(model, ByteTokenizer(add_bos=False), drafter, Rejection(), Fixed(3))
    engine, reads = Fresh(Generator(parts, 256)), []
    for _ in range(3):
        before = model.reads
        answer = engine.start([*b"again and again"], SamplingParams(max_tokens=5))
        assert model.reads == before  # nothing is read before the watch runs
        answer.read()
        reads.append(model.reads - before)
    assert reads[0] >= len("again and again") - 1
    assert reads == [reads[0]] * 3


def test_cells_are_engines_of_one_model(tiny):
    llm = LLM(tiny, draft="lookup", window="fixed", threads=1)
    cells = [{}, {"k": 2}, {"draft": "suffix", "verify": "typical"}, {"verify": "typical", "k": 2}]
    engines = Engines(llm, cells)
    assert engines.lossless == [True, True, False, False]
    engines.warm_up([97] * 50, silent)
    ids, params = [*b"abcabcabcabc"], SamplingParams(max_tokens=24)
    answers = [run(engine, ids, params) for engine in (engines.plain, *engines.cells[:2])]
    assert len({json.dumps(answer.completion.token_ids) for answer in answers}) == 1
    most = [max(drafted for drafted, *_ in answer.rounds) for answer in answers]
    assert most[0] == 0
    assert most[2] <= 2 < most[1]
