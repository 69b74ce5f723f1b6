"""OpenVINO GenAI: plain decoding and its prompt lookup."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import openvino
import openvino_genai as genai

from paceline.bench.peer import ASSISTED, LOOKUP, PLAIN, Answer, Job, Meter, Note
from paceline.bench.peers.tuning import TOKENS, best, windows
from paceline.errors import PacelineError

BACKENDS = ("PA", "SDPA")


class OpenVinoPeer:
    """See Peer. One pipeline a mode: lookup is decided when a pipeline is made."""

    name = "openvino"

    def __init__(self, job: Job, note: Note) -> None:
        if not job.model.endswith(".gguf"):
            raise PacelineError("OpenVINO GenAI reads .gguf files and its own format")
        self._job = job
        self.absent = {ASSISTED: "it wants a draft model of the same vocabulary"}
        self._set: dict[str, Mapping[str, int]] = {PLAIN: {}}
        self.about = [
            f"openvino-genai {genai.__version__}",
            "the same file, put into its own weight format; its own kernels, which choose the "
            "precision of the activations themselves",
        ]
        pipelines = {name: self._open({"ATTENTION_BACKEND": name}) for name in BACKENDS}

        def plain(settings: Mapping[str, Any]) -> Answer:
            pipeline = pipelines[settings["ATTENTION_BACKEND"]]
            return self._answer(pipeline, job.trial, TOKENS, {})

        def lookup(settings: Mapping[str, Any]) -> Answer:
            return self._answer(self._pipelines[LOOKUP], job.trial, TOKENS, settings)

        backend = best(({"ATTENTION_BACKEND": name} for name in BACKENDS), plain, note)
        self._pipelines = {PLAIN: pipelines[backend["ATTENTION_BACKEND"]]}
        pipelines.clear()
        self._pipelines[LOOKUP] = self._open({"prompt_lookup": True})
        self._set[LOOKUP] = best(windows("num_assistant_tokens", "max_ngram_size"), lookup, note)
        threads = {"INFERENCE_NUM_THREADS": job.threads}
        self.settings = {PLAIN: threads | backend, LOOKUP: threads | dict(self._set[LOOKUP])}

    def generate(self, ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
        """See Peer."""
        return self._answer(self._pipelines[mode], ids, max_tokens, self._set[mode])

    def _open(self, settings: Mapping[str, Any]) -> Any:
        threads = self._job.threads
        if settings.get("ATTENTION_BACKEND") != "SDPA":
            scheduler = genai.SchedulerConfig()
            scheduler.enable_prefix_caching = False  # else a prompt that it knows is not read again
            scheduler.max_num_batched_tokens = self._job.context
            settings = {**settings, "scheduler_config": scheduler}
        return genai.LLMPipeline(self._job.model, "CPU", INFERENCE_NUM_THREADS=threads, **settings)

    def _answer(
        self, pipeline: Any, ids: Sequence[int], max_tokens: int, settings: Mapping[str, int]
    ) -> Answer:
        config = genai.GenerationConfig(
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=self._job.eos_ids[0] if self._job.eos_ids else -1,
            stop_token_ids=set(self._job.eos_ids),
            **settings,
        )
        meter = Meter()
        pipeline.generate(openvino.Tensor(np.array([ids], np.int64)), config, _Streamer(meter))
        return meter.answer()


class _Streamer(genai.StreamerBase):
    """Hands on the ids of each pass."""

    def __init__(self, take: Callable[[Sequence[int]], None]) -> None:
        super().__init__()
        self._take = take

    def write(self, token: int | Sequence[int]) -> Any:
        self._take([token] if isinstance(token, int) else list(token))
        return genai.StreamingStatus.RUNNING

    def end(self) -> None:
        pass


open_peer = OpenVinoPeer
