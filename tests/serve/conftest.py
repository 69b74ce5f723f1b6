"""Servers over scripted engines, and one over a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from fake_engine import FakeEngine, Script, says
from serving import Served, give_tools, serving

from paceline.build import LLM
from paceline.serve.engine import Engine
from paceline.serve.settings import Settings
from paceline.text.tokenizer import Tokenizer
from tiny import write_llama, write_tokenizer


@pytest.fixture(scope="session")
def byte_tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """A token for each byte, and a chat template that knows tools."""
    folder = tmp_path_factory.mktemp("bytes")
    write_tokenizer(folder)
    give_tools(folder)
    return Tokenizer.from_folder(folder)


@pytest.fixture
def scripted(byte_tokenizer: Tokenizer) -> Iterator[Callable[..., Served]]:
    """Serves a scripted engine: `scripted(script, settings=None, **how)`."""
    with ExitStack() as stack:

        def serve(script: Script, settings: Settings | None = None, **how: Any) -> Served:
            engine = FakeEngine(byte_tokenizer, script, **how)
            return stack.enter_context(serving(engine, settings))

        yield serve


@pytest.fixture(scope="session")
def polite(byte_tokenizer: Tokenizer) -> Iterator[Served]:
    """Answers "ok" to everything."""
    with serving(FakeEngine(byte_tokenizer, says("ok"))) as served:
        yield served


@pytest.fixture(scope="session")
def tiny_llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """A random Llama of 512 tokens of context, with two drafters."""
    folder = write_llama(tmp_path_factory.mktemp("served") / "llama")
    give_tools(folder)
    return LLM(str(folder), draft="lookup", others=["suffix", "self:int8"], dtype="fp32", threads=1)


@pytest.fixture(scope="session")
def server(tiny_llm: LLM) -> Iterator[Served]:
    """The tiny model, served."""
    with serving(Engine(tiny_llm, slots=4, queue=8)) as served:
        yield served
