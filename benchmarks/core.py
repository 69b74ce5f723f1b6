"""The figures that everything else stands on, for each model and weight format.

T(1), r(n) = T(n)/T(1), memory bandwidth used, the overhead of a round, tokens/s plain and with
lookup on an edit prompt, prefill, load and reload, peak memory; and, where they are installed, what
transformers (fp32) and llama-cpp-python make of the same file. Each model and format runs in a
process of its own; what is compared is interleaved there, and medians are quoted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

RUNS = {
    "qwen2.5-coder-1.5b": ("native", "int8", "fp16"),
    "smollm2-135m": ("native", "int8", "fp16"),
    "gemma-3-270m": ("native",),
}
SIZES = (1, 2, 4, 5, 8, 16)
BEHIND = 256  # tokens in the cache when a pass is timed
PREFILL = 512
ANSWER = 96  # tokens of one timed answer
HERE = Path(__file__)


def milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1e3


def interleaved(calls: dict[Any, Callable[[], object]], repeats: int) -> dict[Any, float]:
    """Median milliseconds of each call; they take turns, so that a slow spell hits all alike."""
    for call in calls.values():
        call()
    times: dict[Any, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(milliseconds(call))
    return {name: median(values) for name, values in times.items()}


def read_rate() -> float:
    """Bytes a second that all threads together read from memory: the median of several sums."""
    import torch

    block = torch.ones(1 << 28, dtype=torch.int8).view(torch.int64)  # 256 MiB
    return block.numel() * 8 / median(milliseconds(block.sum) for _ in range(10)) * 1e3


def passes(llm: Any) -> dict[str, Any]:
    """T(1), r(n), MBU and prefill of the whole model."""
    import torch

    model = llm.model
    cache = model.new_cache(1, BEHIND + PREFILL + 64)
    ids = torch.randint(0, 1000, (1, BEHIND + PREFILL))
    with torch.no_grad():
        model.forward(ids[:, :BEHIND], [0], cache, logits=False)
        calls = {n: (lambda n=n: model.forward(ids[:, :n], [BEHIND], cache)) for n in SIZES}
        repeats = 15
        t = interleaved(calls, repeats)
        rate = read_rate()
        prefill = median(
            milliseconds(lambda: model.forward(ids[:, :PREFILL], [0], cache, logits=False))
            for _ in range(5)
        )
    return {
        "t1_ms": t[1],
        "r": {str(n): t[n] / t[1] for n in SIZES},
        "mbu": model.nbytes / (t[1] / 1e3) / rate,
        "read_gb_s": rate / 1e9,
        "prefill_tps": PREFILL / prefill * 1e3,
    }


def answers(llm: Any, t1_ms: float) -> dict[str, Any]:
    """Tokens/s plain and with lookup on the edit prompt, and the overhead of a round over T(1)."""
    from prompts import EDIT

    from paceline import SamplingParams

    params = SamplingParams(max_tokens=ANSWER)
    plain, edit = llm.with_draft("none"), llm.with_draft("auto")
    rates: dict[str, list[float]] = {"plain": [], "edit": []}
    overhead: list[float] = []
    for turn in range(6):
        results = {}
        for name, runner in (("plain", plain), ("edit", edit)):
            done = results[name] = runner.generate(EDIT, params)
            if turn:  # the first answer of each pays for what later ones find ready
                rates[name].append(done.stats.tokens_per_second)
                stats = done.stats
                overhead.append((stats.overhead_s + stats.draft_s) * 1e3 / stats.rounds / t1_ms)
        assert results["plain"].token_ids == results["edit"].token_ids, "speculation changed tokens"
    ratios = [e / p for p, e in zip(rates["plain"], rates["edit"], strict=True)]
    return {
        "overhead": median(overhead),
        "plain_tps": median(rates["plain"]),
        "edit_tps": median(rates["edit"]),
        "edit_speedup": median(ratios),
        "tau": done.stats.tau,
        "alpha": done.stats.alpha,
    }


def transformers_plain(path: str, rate: Callable[[], float]) -> dict[str, float] | None:
    """Tokens/s of transformers in fp32 on the same file, in turns with `rate()`, ours."""
    try:
        import transformers
    except ImportError:
        return None
    import torch

    transformers.utils.logging.set_verbosity_error()
    file = Path(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.float32
    ).eval()
    ids = torch.arange(1000, 1064)[None]

    def theirs() -> float:
        began = time.perf_counter()
        with torch.no_grad():
            out = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=33, do_sample=False,
                min_new_tokens=33, pad_token_id=0,
            )  # fmt: skip
        assert out.shape[1] == 97
        return 33 / (time.perf_counter() - began)

    pairs = [(theirs(), rate()) for _ in range(6)][1:]
    return {
        "transformers_fp32_tps": median(t for t, _ in pairs),
        "vs_transformers_fp32": median(r / t for t, r in pairs),
    }


def llama_cpp_plain(path: str) -> float | None:
    """Tokens/s of llama-cpp-python on the same file, greedy; None if it is not installed."""
    try:
        import llama_cpp
    except ImportError:
        return None
    model = llama_cpp.Llama(path, n_ctx=512, n_threads=2, verbose=False)
    rates = []
    for _ in range(6):
        model.reset()
        tokens = model.generate(list(range(1000, 1032)), temp=0.0, top_k=1)
        next(tokens)
        began = time.perf_counter()
        for _ in range(32):
            next(tokens)
        rates.append(32 / (time.perf_counter() - began))
    return median(rates[1:])


def peak_gb() -> float:
    """The most memory that this process has held."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def first_token(name: str, dtype: str) -> None:
    """What `timed_start` times: start, load, one token. Prints that and the peak memory."""
    from paceline import LLM, SamplingParams

    llm = LLM(name, dtype=dtype)
    next(llm.stream("Hello", SamplingParams(max_tokens=16)))
    print(json.dumps({"peak_gb": peak_gb()}), flush=True)


def timed_start(name: str, dtype: str, packed: str) -> tuple[float, float]:
    """Seconds from start of a process to its first token, and its peak memory then."""
    began = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, str(HERE), "--first-token", name, dtype],
        env={**os.environ, "PACELINE_PACKED": packed}, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        line = process.stdout.readline()
        taken = time.perf_counter() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return taken, json.loads(line)["peak_gb"]


def measure(name: str, dtype: str) -> dict[str, Any]:
    """All figures of one model in one format."""
    from paceline import LLM, SamplingParams
    from paceline.models.pull import resolve

    path = str(resolve(name))
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as packed:
        load_s, _ = timed_start(name, dtype, packed)
        starts = [timed_start(name, dtype, packed) for _ in range(2)]
    llm = LLM(name, dtype=dtype, draft="none")
    result: dict[str, Any] = passes(llm)
    result |= answers(llm, result["t1_ms"])
    result |= {
        "load_s": load_s,
        "reload_s": median(s for s, _ in starts),
        "peak_gb": max(gb for _, gb in starts),
    }
    if name == "smollm2-135m" and dtype == "native":
        params = SamplingParams(max_tokens=33, min_tokens=33)
        ids = list(range(1000, 1064))

        def ours() -> float:
            done = llm.generate([ids], params)[0]
            return len(done.token_ids) / done.stats.total_s

        result |= transformers_plain(path, ours) or {}
    if dtype == "native" and (rate := llama_cpp_plain(path)):
        result["llama_cpp_tps"] = rate
    return result


def table(models: dict[str, dict[str, Any]]) -> None:
    """Print what was measured."""
    from rich.console import Console
    from rich.table import Table

    columns = ["model", "dtype", "T(1) ms", "r(2)", "r(4)", "r(5)", "r(8)", "r(16)", "MBU", "o",
               "plain/s", "edit/s", "speedup", "prefill/s", "load s", "reload s", "peak GB",
               "llama.cpp/s"]  # fmt: skip
    shown = Table(*columns)
    for name, formats in models.items():
        for dtype, m in formats.items():
            shown.add_row(
                name, dtype, f"{m['t1_ms']:.1f}",
                *(f"{m['r'][str(n)]:.2f}" for n in SIZES[1:]),
                f"{m['mbu']:.0%}", f"{m['overhead']:.3f}", f"{m['plain_tps']:.1f}",
                f"{m['edit_tps']:.1f}", f"{m['edit_speedup']:.2f}x", f"{m['prefill_tps']:.0f}",
                f"{m['load_s']:.1f}", f"{m['reload_s']:.1f}", f"{m['peak_gb']:.2f}",
                f"{m['llama_cpp_tps']:.1f}" if "llama_cpp_tps" in m else "-",
            )  # fmt: skip
    Console(width=170).print(shown)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(RUNS))
    parser.add_argument("--dtypes", nargs="*")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "DTYPE"), help=argparse.SUPPRESS)
    parser.add_argument("--first-token", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first_token:
        return first_token(*options.first_token)
    if options.one:
        return print(json.dumps(measure(*options.one)))
    models: dict[str, dict[str, Any]] = {}
    for name in options.models:
        for dtype in options.dtypes or RUNS[name]:
            print(f"measuring {name} {dtype} …", file=sys.stderr, flush=True)
            out = subprocess.run(
                [sys.executable, str(HERE), "--one", name, dtype],
                check=True, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            models.setdefault(name, {})[dtype] = json.loads(out.stdout.splitlines()[-1])
            print(out.stdout.splitlines()[-1], file=sys.stderr, flush=True)
    table(models)
    print(json.dumps({"models": models}))
    return None


if __name__ == "__main__":
    main()
