"""Who asks an engine, and a small model for it."""

from __future__ import annotations

import threading

from fake_tokenizer import ByteTokenizer
from fakes import HashLM
from paceline import SamplingParams
from paceline.controllers.fixed import Fixed
from paceline.drafters.lookup import Lookup
from paceline.serve.engine import Engine
from paceline.text.completion import Completion, Piece
from paceline.text.llm import Generator
from paceline.text.parts import Parts
from paceline.verifiers.block import Block

PROMPT = [97, 98, 99, 97, 98]


class Client:
    """Hears one answer; `at(n)` waits for its n-th piece, `end()` for its end."""

    def __init__(self, engine: Engine, ids: list[int], params: SamplingParams) -> None:
        self.pieces: list[Piece] = []
        self.ends = 0
        self._news = threading.Condition()
        self.request = engine.submit(ids, params, self._heard)

    def _heard(self, piece: Piece | None) -> None:
        with self._news:
            if piece is None:
                self.ends += 1
            else:
                self.pieces.append(piece)
            self._news.notify_all()

    def at(self, count: int) -> None:
        with self._news:
            assert self._news.wait_for(lambda: len(self.pieces) >= count or self.ends, 30)

    def end(self) -> Completion:
        with self._news:
            assert self._news.wait_for(lambda: self.ends, 30)
        return self.request.completion


def generator(model: HashLM, context: int = 512) -> Generator:
    parts = Parts(
        model,
        ByteTokenizer(add_bos=False),
        lambda batch, length, target: Lookup(3),
        Block(),
        Fixed(4),
        k=4,
        drafts=("lookup", "none"),
    )
    return Generator(parts, context)
