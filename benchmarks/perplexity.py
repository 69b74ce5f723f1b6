"""What each weight format costs in quality: perplexity on a text of our own, against fp32.

Every position after the first of a window is scored on all that stands before it in the window.
Prints a table; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = ("qwen2.5-coder-1.5b", "smollm2-135m")
DTYPES = ("fp32", "native", "int8", "int4", "fp16")
WINDOW = 1024  # tokens read with one cache
STEP = 128  # positions whose scores are held at a time
TEXT = Path(__file__).with_name("text.md")


@dataclass(frozen=True)
class Score:
    """`nll`: the mean of -log p over all scored tokens. `top`: the likeliest token at each."""

    nll: float
    top: list[int]


def score(model: Any, ids: list[int]) -> Score:
    """How well `model` foresees `ids`, window by window."""
    import torch

    total, top = 0.0, []
    with torch.no_grad():
        for start in range(0, len(ids) - 1, WINDOW):
            window = torch.tensor([ids[start : start + WINDOW]])
            cache = model.new_cache(1, window.shape[1])
            for at in range(0, window.shape[1] - 1, STEP):
                seen = window[:, at : at + STEP]
                wanted = window[0, at + 1 : at + STEP + 1]
                logits = model.forward(seen, [at], cache).logits[0, : len(wanted)].cpu()
                total -= logits.log_softmax(-1).gather(1, wanted[:, None]).double().sum().item()
                top += logits.argmax(-1).tolist()
    return Score(total / len(top), top)


def measure(name: str, dtypes: list[str], text: str, device: str) -> dict[str, Any]:
    """Perplexity of one model in each format, and how it differs from the first of them."""
    from paceline.models.load import load
    from paceline.models.pull import resolve
    from paceline.text.tokenizer import Tokenizer

    path = resolve(name)
    tokenizer = Tokenizer.from_gguf(path) if path.is_file() else Tokenizer.from_folder(path)
    ids = tokenizer.encode(text)
    results: dict[str, Any] = {"tokens": len(ids)}
    base: Score | None = None
    for dtype in dtypes:
        found = score(load(path, dtype=dtype, device=device)[0], ids)
        base = base or found
        same = sum(a == b for a, b in zip(found.top, base.top, strict=True)) / len(base.top)
        results[dtype] = {
            "perplexity": math.exp(found.nll),
            "change_percent": 100 * math.expm1(found.nll - base.nll),
            "same_top_percent": 100 * same,
        }
        print(f"{name} {dtype}: {results[dtype]}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--dtypes", nargs="*", default=DTYPES, help="the first is the reference")
    parser.add_argument("--text", type=Path, default=TEXT)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    text = options.text.read_text(encoding="utf-8")
    models = {m: measure(m, list(options.dtypes), text, options.device) for m in options.models}
    print(f"\n{'model':<24}{'dtype':<7}{'perplexity':>11}{'change':>10}{'same top token':>16}")
    for name, results in models.items():
        for dtype in options.dtypes:
            r = results[dtype]
            print(
                f"{Path(name).name[:22]:<24}{dtype:<7}{r['perplexity']:>11.4f}"
                f"{r['change_percent']:>+9.3f}%{r['same_top_percent']:>15.2f}%"
            )
    print(json.dumps({"models": models}))


if __name__ == "__main__":
    main()
