"""Hugging Face transformers: plain decoding, prompt lookup and assisted generation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from paceline.bench.peer import ASSISTED, LOOKUP, PLAIN, Answer, Job, Meter, Note
from paceline.bench.peers.tuning import TOKENS, best, one_line, thread_counts, windows

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}  # in the order in which bits are lost
ASSISTANTS = (2, 3, 5, 8)  # drafted tokens that are tried


class TransformersPeer:
    """See Peer."""

    name = "transformers"

    def __init__(self, job: Job, note: Note) -> None:
        self._job = job
        self.absent: dict[str, str] = {}
        self.about = [
            f"transformers {transformers.__version__}, torch {torch.__version__}, eager",
            "the file's weights taken out of their few bits: it has no kernels for these on a CPU",
        ]
        torch.set_grad_enabled(False)
        self._model = _load(job.model, "fp32")

        def plain(settings: Mapping[str, Any]) -> Answer:
            self._model.to(DTYPES[settings["dtype"]])
            torch.set_num_threads(settings["threads"])
            return self._answer(job.trial, TOKENS, {})

        found = best(({"dtype": name, "threads": job.threads} for name in DTYPES), plain, note)
        if (dtype := found["dtype"]) == "fp32":
            self._model = None
            self._model = _load(job.model, dtype)  # bf16 has cut its weights
        if len(counts := thread_counts(job.threads)) > 1:
            found = best(({"dtype": dtype, "threads": n} for n in counts), plain, note)
        torch.set_num_threads(found["threads"])
        self._ways: dict[str, dict[str, Any]] = {PLAIN: {}}
        tried = windows("prompt_lookup_num_tokens", "max_matching_ngram_size")
        self._ways[LOOKUP] = best(tried, self._trial, note)
        self.settings = {mode: found | way for mode, way in self._ways.items()}
        if job.draft is None:
            self.absent[ASSISTED] = "no draft model was named"
            return
        try:
            assistant = self._assistant(job.draft, dtype)
            tried = ({"num_assistant_tokens": k} for k in ASSISTANTS)
            chosen = best(tried, lambda way: self._trial(way | assistant), note)
        except Exception as error:
            self.absent[ASSISTED] = one_line(error)
            return
        self._ways[ASSISTED] = chosen | assistant
        self.settings[ASSISTED] = found | {"draft": Path(job.draft).name} | chosen

    def generate(self, ids: Sequence[int], max_tokens: int, mode: str) -> Answer:
        """See Peer."""
        return self._answer(ids, max_tokens, self._ways[mode])

    def _trial(self, way: Mapping[str, Any]) -> Answer:
        return self._answer(self._job.trial, TOKENS, way)

    def _answer(self, ids: Sequence[int], max_tokens: int, way: Mapping[str, Any]) -> Answer:
        eos = list(self._job.eos_ids)
        prompt, way = torch.tensor([list(ids)]), dict(way)
        if "num_assistant_tokens" in way:  # which it takes from the assistant
            way["assistant_model"].generation_config.num_assistant_tokens = way.pop(
                "num_assistant_tokens"
            )
        meter = Meter()
        self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=max_tokens,
            eos_token_id=eos or None,
            pad_token_id=eos[0] if eos else 0,
            streamer=_Streamer(meter),
            **way,
        )
        return meter.answer()

    def _assistant(self, draft: str, dtype: str) -> dict[str, Any]:
        """What `generate` wants to know of the draft model: of one with another vocabulary also
        both tokenizers."""
        way: dict[str, Any] = {"assistant_model": _load(draft, dtype)}
        if way["assistant_model"].config.vocab_size != self._model.config.vocab_size:
            read = transformers.AutoTokenizer.from_pretrained
            way["tokenizer"] = read(**_place(self._job.model))
            way["assistant_tokenizer"] = read(**_place(draft))
        return way


class _Streamer:
    """Hands on the ids of each pass; the first that come are the prompt's."""

    def __init__(self, take: Callable[[Sequence[int]], None]) -> None:
        self._take, self._begun = take, False

    def put(self, ids: torch.Tensor) -> None:
        if self._begun:
            self._take(ids.flatten().tolist())
        self._begun = True

    def end(self) -> None:
        pass


def _place(path: str) -> dict[str, Any]:
    """How it is told of a file or a folder."""
    where = Path(path)
    if where.is_file():
        return {"pretrained_model_name_or_path": where.parent, "gguf_file": where.name}
    return {"pretrained_model_name_or_path": where}


def _load(path: str, dtype: str) -> Any:
    model = transformers.AutoModelForCausalLM.from_pretrained(dtype=DTYPES[dtype], **_place(path))
    model.generation_config = transformers.GenerationConfig()  # nothing but what is asked for
    return model.eval()


open_peer = TransformersPeer
