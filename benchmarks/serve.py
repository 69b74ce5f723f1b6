"""Many requests at once: what the engine makes of them, and what HTTP costs.

Everything runs in one process on one engine, and what is compared takes turns; figures are medians.
The last line is JSON. `--only` runs some of the parts; what was not run is null there.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

from prompts import CHAT, EDIT
from traffic import Answer, Client, served, submit, together

from paceline import LLM, PacelineError, SamplingParams
from paceline.models.progress import rich_progress
from paceline.text.chat import prompt_ids

PARTS = ("batch", "http", "ttft", "memory", "cancel")
PROMPTS = Path(__file__).with_name("drafters_prompts.jsonl")
SIZES = (1, 2, 4, 8)
SLOTS = 8
ANSWER = 256  # tokens of an answer through HTTP
GROUPS = 3  # of prompts at each size: code, chat, edit
LONG = 2000  # tokens of the neighbour's prompt


class Bench:
    """The parts, on one engine."""

    def __init__(self, options: argparse.Namespace, llm: LLM) -> None:
        from paceline.serve.engine import Engine

        self.llm, self.turns, self.tokens = llm, options.turns, options.max_tokens
        self.requests, self.cancels = options.requests, options.cancels
        self.random = random.Random(1)
        self.long = min(LONG, llm.context // 2)
        self.engine = Engine(llm, slots=SLOTS)
        self.engine.start()

    def params(self, tokens: int, draft: str | None = None) -> SamplingParams:
        return SamplingParams(max_tokens=tokens, ignore_eos=True, draft=draft)

    def mixed(self) -> list[list[int]]:
        """As many prompts as there are slots: code, chat and edits by turns."""
        lines = [json.loads(line) for line in PROMPTS.read_text(encoding="utf-8").splitlines()]
        kinds = {kind: [x["prompt"] for x in lines if x["kind"] == kind] for kind in ("code",)}
        kinds |= {"chat": [CHAT, *(x["prompt"] for x in lines if x["kind"] == "chat")]}
        kinds |= {"edit": [EDIT, *(x["prompt"] for x in lines if x["kind"] == "edit")]}
        texts = [list(kinds.values())[i % 3][i // 3] for i in range(SLOTS)]
        most = self.llm.context - self.tokens - 1
        return [prompt_ids(self.llm.tokenizer, text)[:most] for text in texts]

    def fresh(self, count: int) -> list[int]:
        """A prompt that no cache knows any part of."""
        size = min(self.llm.tokenizer.size, self.llm.model.vocab_size)
        return [self.random.randrange(size // 2) for _ in range(count)]

    def batch(self) -> dict[str, Any]:
        """Tokens a second while B run, plain and speculative: the same prompts for every B."""
        prompts, found = self.mixed(), {}
        for size in SIZES:
            rates: dict[str, list[float]] = {"plain": [], "speculative": []}
            ways = {
                "plain": self.params(self.tokens, "none"),
                "speculative": self.params(self.tokens),
            }
            for turn in range(self.turns + 1):
                for name in sorted(ways, reverse=bool(turn % 2)):
                    rate = self._rate(prompts, size, ways[name])
                    if turn:  # the first reads the prompts
                        rates[name].append(rate)
            pairs = zip(rates["speculative"], rates["plain"], strict=True)
            found[str(size)] = {name: median(each) for name, each in rates.items()}
            found[str(size)]["ratio"] = median(s / p for s, p in pairs)
            print(f"batch {size}: {found[str(size)]}", file=sys.stderr, flush=True)
        return {"batch": found}

    def _rate(self, prompts: Sequence[list[int]], size: int, params: SamplingParams) -> float:
        """Over several groups of `size` prompts, each while all of the group are answered."""
        tokens, seconds = 0, 0.0
        for first in range(0, min(len(prompts), GROUPS * size), size):
            some = prompts[first : first + size]
            answers = [submit(self.engine, ids, params) for ids in some]
            more, took = together([answer.wait() for answer in answers])
            tokens, seconds = tokens + more, seconds + took
        return tokens / seconds

    def http(self, client: Client) -> dict[str, Any]:
        """Seconds a token of a whole request through HTTP over those straight to the engine."""
        ids = self.mixed()[0]
        params, body = self.params(ANSWER), self._body(ids, ANSWER)
        ratios = []
        for turn in range(3 * self.turns + 1):
            both = {}
            for way in ("http", "engine") if turn % 2 else ("engine", "http"):
                if way == "http":
                    (got,) = client.ask([body])
                    both[way] = got["seconds"] / got["tokens"]
                else:
                    answer = submit(self.engine, ids, params).wait()
                    both[way] = answer.seconds / answer.tokens
            if turn:
                ratios.append(both["http"] / both["engine"])
        return {"http_overhead": median(ratios) - 1}

    def _body(self, ids: Sequence[int], tokens: int) -> dict[str, Any]:
        return {
            "model": self.llm.name,
            "prompt": list(ids),
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }

    def ttft(self) -> dict[str, Any]:
        """A short request alone, and while a neighbour's prompt is read; the longest gap in a
        stream that runs meanwhile."""
        alone, beside, gaps, reading = [], [], [], []
        few = self.params(4)
        for turn in range(2 * self.turns + 1):
            lonely = submit(self.engine, self.fresh(32), few).wait()
            neighbour = submit(self.engine, self.fresh(self.long), few)
            sleep(0.02)  # it is being read
            short = submit(self.engine, self.fresh(32), few)
            neighbour.wait()
            short.wait()
            stream = submit(self.engine, self.fresh(32), self.params(self.llm.context // 4))
            stream.begun.wait(900)
            other = submit(self.engine, self.fresh(self.long), few).wait()
            assert stream.request is not None
            self.engine.cancel(stream.request)
            stream.wait()
            if turn:
                alone.append(lonely.first)
                beside.append(short.first)
                reading.append(other.first)
                gaps.append(stream.longest_gap(other.submitted, other.came[0][0]))
        ratio = median(beside) / median(alone)
        return {
            "ttft_ratio": ratio,
            "ttft": {"alone_s": median(alone), "beside_s": median(beside),
                     "neighbour_s": median(reading), "longest_gap_s": max(gaps)},
        }  # fmt: skip

    def memory(self, client: Client) -> dict[str, Any]:
        """Short requests, 16 at a time: errors, and the process's memory after 50 and after all."""
        bodies = [
            self._body(self.fresh(self.random.randint(4, 40)), self.random.randint(1, 12))
            for _ in range(self.requests)
        ]
        for body in bodies[::2]:
            body |= {"temperature": 1.0, "seed": self.random.randrange(1000)}
        first = client.ask(bodies[:50], 16)
        early = resident()
        began = perf_counter()
        rest = client.ask(bodies[50:], 16)
        took = perf_counter() - began
        wrong = [got for got in [*first, *rest] if got["status"] != 200 or not got["tokens"]]
        for got in wrong[:3]:
            print(f"error: {got}", file=sys.stderr)
        growth = resident() / early - 1
        sums = {"count": len(bodies), "per_second": len(rest) / took, "rss_gb": early / 1e9}
        return {"memory_growth": growth, "errors": len(wrong), "requests": sums}

    def cancel(self) -> dict[str, Any]:
        """Cancels in the queue, while a prompt is read, behind a round and in the midst of one.
        Afterwards everything is as before, and a request says what it said."""
        probe, few = self.fresh(24), self.params(8)
        before = submit(self.engine, probe, few).wait()
        self._cancelled(12)  # what the first ones touch stays
        load, memory = self.engine.load, resident()
        self._cancelled(self.cancels)
        after = submit(self.engine, probe, few).wait()
        assert before.request is not None
        assert after.request is not None
        same = before.request.completion.token_ids == after.request.completion.token_ids
        found = {"count": self.cancels, "memory_growth": resident() / memory - 1,
                 "slots_back": self.engine.load == load, "same_answer": same}  # fmt: skip
        return {"cancel": found}

    def _cancelled(self, count: int) -> None:
        """So many at least, as many of each kind."""
        lasting, each = self.params(self.llm.context // 4), 3
        moment = 1 / self.engine.plain_rate  # about a round
        for _ in range(-(-count // (4 * each))):
            full = [submit(self.engine, self.fresh(16), lasting) for _ in range(SLOTS)]
            queued = [submit(self.engine, self.fresh(16), lasting) for _ in range(each)]
            for answer in queued:
                self._end(answer)
            for answer in full[:each]:
                answer.begun.wait(900)  # a round has been verified
                self._end(answer)
            for answer in full[each : 2 * each]:
                answer.begun.wait(900)
                sleep(self.random.random() * moment)  # anywhere in one
                self._end(answer)
            for _ in range(each):
                reading = submit(self.engine, self.fresh(self.long), lasting)
                sleep(self.random.random() * 0.1)
                self._end(reading)
            for answer in full[2 * each :]:
                self._end(answer)

    def _end(self, answer: Answer) -> None:
        assert answer.request is not None
        self.engine.cancel(answer.request)
        answer.wait()


def resident() -> int:
    """Bytes of this process in memory."""
    import psutil

    return psutil.Process().memory_info().rss


def show(found: dict[str, Any]) -> None:
    """The tables."""
    from rich.console import Console
    from rich.table import Table

    console = Console(width=100)
    if found["batch"]:
        table = Table("requests at once", "plain tokens/s", "speculative tokens/s", "ratio")
        for size, row in found["batch"].items():
            table.add_row(size, f"{row['plain']:.1f}", f"{row['speculative']:.1f}",
                          f"{row['ratio']:.2f}")  # fmt: skip
        console.print(table)
    table = Table("what", "figure")
    for name in ("http_overhead", "memory_growth"):
        if found[name] is not None:
            table.add_row(name, f"{found[name]:+.1%}")
    for name in ("ttft_ratio", "ttft", "errors", "requests", "cancel"):
        if found[name] is not None:
            value = found[name]
            table.add_row(name, f"{value:.2f}" if isinstance(value, float) else json.dumps(value))
    console.print(table)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All parts that were asked for."""
    from paceline.serve.app import make_app
    from paceline.serve.settings import Settings

    parts = options.only or PARTS
    keys = ("batch", "http_overhead", "ttft_ratio", "memory_growth", "errors", "ttft", "requests",
            "cancel")  # fmt: skip
    found: dict[str, Any] = {"model": options.model, **dict.fromkeys(keys)}
    with rich_progress(in_bytes=False) as (progress, note):
        llm = LLM(options.model, draft=options.draft, dtype=options.dtype, context=options.context,
                  threads=options.threads, progress=progress, note=note)  # fmt: skip
    bench = Bench(options, llm)
    try:
        with served(make_app(bench.engine, Settings())) as port, Client(port) as client:
            for part in parts:
                print(f"measuring {part} …", file=sys.stderr, flush=True)
                over = (client,) if part in ("http", "memory") else ()
                found |= getattr(bench, part)(*over)
    finally:
        bench.engine.close()
    found |= {"draft": llm.draft, "dtype": llm.dtype, "plain_rate": bench.engine.plain_rate}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="*", choices=PARTS)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--cancels", type=int, default=200)
    options = parser.parse_args()
    try:
        found = measure(options)
    except PacelineError as error:
        print(f"serve: {error}", file=sys.stderr)
        return 2
    show(found)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
