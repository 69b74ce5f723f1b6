"""llama.cpp, through llama-cpp-python: plain decoding and its prompt lookup."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

from paceline.bench.peer import ASSISTED, LOOKUP, PLAIN, Answer, Job, Meter, Note
from paceline.bench.peers.tuning import TOKENS, best, thread_counts, windows
from paceline.errors import PacelineError


class LlamaCppPeer:
    """See Peer. One instance a mode: with a drafter it keeps the scores of all tokens."""

    name = "llama-cpp"

    def __init__(self, job: Job, note: Note) -> None:
        if not job.model.endswith(".gguf"):
            raise PacelineError("llama.cpp reads .gguf files")
        self._job = job
        self.absent = {ASSISTED: "llama-cpp-python drafts by prompt lookup alone"}
        self.about = [
            f"llama-cpp-python {llama_cpp.__version__}, compiled for this processor",
            "the same file with its own bits; activations in 8 bits; its own kernels",
        ]
        plain = best(
            (
                {"n_threads": threads, "flash_attn": flash}
                for threads, flash in product(thread_counts(job.threads), (False, True))
            ),
            self._once,
            note,
        )
        self._draft = LlamaPromptLookupDecoding()
        self._models = {PLAIN: self._open(plain), LOOKUP: self._open(plain, self._draft)}
        lookup = best(windows("num_pred_tokens", "max_ngram_size"), self._drafted, note)
        self._set(lookup)
        self.settings = {PLAIN: plain, LOOKUP: plain | lookup}

    def generate(self, ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
        """See Peer."""
        return self._answer(self._models[mode], ids, max_tokens)

    def _answer(self, model: Any, ids: Sequence[int], max_tokens: int) -> Answer:
        model.reset()  # else a prompt that it knows is not read again
        meter = Meter()
        tokens = model.generate(list(ids), temp=0.0, repeat_penalty=1.0)
        for count, token in enumerate(tokens, 1):
            meter([token])
            if token in self._job.eos_ids or count == max_tokens:
                break
        answer = meter.answer()
        tokens.close()
        return answer

    def _open(self, settings: Mapping[str, Any], draft: Any = None) -> Any:
        return llama_cpp.Llama(
            self._job.model,
            n_ctx=self._job.context,
            n_gpu_layers=0,
            n_threads=settings["n_threads"],
            n_threads_batch=self._job.threads,
            flash_attn=settings["flash_attn"],
            draft_model=draft,
            logits_all=draft is not None,
            verbose=False,
        )

    def _once(self, settings: Mapping[str, Any]) -> Answer:
        model = self._open(settings)
        try:
            return self._answer(model, self._job.trial, TOKENS)
        finally:
            model.close()

    def _drafted(self, settings: Mapping[str, Any]) -> Answer:
        self._set(settings)
        return self.generate(self._job.trial, TOKENS, LOOKUP)

    def _set(self, settings: Mapping[str, Any]) -> None:
        self._draft.num_pred_tokens = settings["num_pred_tokens"]
        self._draft.max_ngram_size = settings["max_ngram_size"]


open_peer = LlamaCppPeer
