"""The two sides of `kernels.py`: Paceline and llama.cpp, asked for the same things."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

DTYPE = "native"
THREADS = 2
CONTEXT = 1024


class LlamaCpp:
    """llama-cpp-python: single passes through its low-level interface, answers through `Llama`."""

    def __init__(self, path: str) -> None:
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

        self._api: Any = llama_cpp
        threads = {"n_threads": THREADS, "n_threads_batch": THREADS}
        self._plain = llama_cpp.Llama(path, n_ctx=CONTEXT, verbose=False, **threads)
        self._draft = LlamaPromptLookupDecoding()
        self._lookup = llama_cpp.Llama(
            path, n_ctx=CONTEXT, verbose=False, draft_model=self._draft, logits_all=True, **threads
        )

    def reader(self, tokens: Sequence[int], at: int, logits: bool) -> Callable[[], None]:
        """A call that reads `tokens` from position `at` on, and scores all of them or none."""
        api, context = self._api, self._plain.ctx
        batch = api.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.logits[i] = token, at + i, logits
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0

        def read() -> None:
            api.llama_memory_seq_rm(api.llama_get_memory(context), -1, at, -1)
            if code := api.llama_decode(context, batch):
                raise RuntimeError(f"llama_decode: {code}")
            api.llama_synchronize(context)

        self._plain.reset()  # what it remembers of the cache is no longer so
        return read

    def plain(self, ids: list[int], count: int) -> float:
        """Tokens/s of a greedy answer, behind its first token."""
        return self._rate(self._plain, ids, count)

    def lookup(self, ids: list[int], count: int, draft: int) -> float:
        """The same with its prompt lookup, `draft` tokens at a time."""
        self._draft.num_pred_tokens = draft
        return self._rate(self._lookup, ids, count)

    @staticmethod
    def _rate(model: Any, ids: list[int], count: int) -> float:
        tokens = model.generate(ids, temp=0.0, repeat_penalty=1.0)
        next(tokens)
        began = time.perf_counter()
        for _ in range(count - 1):
            next(tokens)
        rate = (count - 1) / (time.perf_counter() - began)
        tokens.close()
        return rate


class Paceline:
    """The same of ours."""

    def __init__(self, name: str) -> None:
        import torch

        from paceline import LLM

        llm = LLM(name, dtype=DTYPE, draft="none", threads=THREADS)
        torch.set_num_threads(1)  # the kernels have threads of their own
        self.tokenizer = llm.tokenizer
        self._plain, self._lookup = llm, llm.with_draft("auto")
        self._cache = llm.model.new_cache(1, CONTEXT)

    def reader(self, tokens: Sequence[int], at: int, logits: bool) -> Callable[[], None]:
        """See LlamaCpp.reader."""
        import torch

        model, cache, ids = self._plain.model, self._cache, torch.tensor([tokens])

        def read() -> None:
            model.forward(ids, [at], cache, logits=logits)

        return read

    def plain(self, ids: list[int], count: int) -> float:
        """See LlamaCpp.plain."""
        return self._answer(self._plain, ids, count).stats.tokens_per_second

    def lookup(self, ids: list[int], count: int) -> float:
        """The same with lookup as it comes."""
        done = self._answer(self._lookup, ids, count)
        return done.stats.tokens_per_second

    def same(self, ids: list[int], count: int) -> bool:
        """Whether lookup leaves the answer as it is."""
        both = [self._answer(llm, ids, count).token_ids for llm in (self._plain, self._lookup)]
        return both[0] == both[1]

    @staticmethod
    def _answer(llm: Any, ids: list[int], count: int) -> Any:
        from paceline import SamplingParams

        return llm.generate([ids], SamplingParams(max_tokens=count, ignore_eos=True))[0]
