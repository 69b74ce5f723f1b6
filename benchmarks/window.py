"""Windows: what the adaptive one loses at worst, and what it wins over every fixed one.

All that is compared takes turns in one process, behind prompts that have been read; ratios are
medians over the turns. Speeds are relative: 1 is plain decoding, or what an oracle makes of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from prompts import CHAT, EDIT
from windowing import (
    SEGMENT,
    Answer,
    Builds,
    Neighbour,
    Scripted,
    Stage,
    Told,
    advise_error,
    alternates,
)

from paceline import PacelineError
from paceline.models.catalog import DEFAULT
from paceline.models.progress import rich_progress

if TYPE_CHECKING:
    from paceline.build.drafts import Maker
    from paceline.core.protocols import Controller
    from paceline.models.progress import Note, Progress

PROMPTS = Path(__file__).with_name("drafters_prompts.jsonl")
K = 8
CODE = "Write a Python class for a bank account with deposit and transfer, and tests for it."
Makes = Callable[[], "Controller"]


class Bench:
    """The sections. `turns`: how often everything is measured."""

    def __init__(self, options: argparse.Namespace, progress: Progress, note: Note) -> None:
        import torch

        from paceline.build.drafts import DraftSetting, Spec, resolve
        from paceline.build.models import Models

        if options.threads:
            torch.set_num_threads(options.threads)
        self.turns, self.tokens, self.note = options.turns, options.max_tokens, note
        self._progress = progress
        models = Models(options.dtype, "auto", options.threads, progress, note)
        self.stage = Stage(models(options.model), models, 1536)
        target = self.stage.target
        self.auto = resolve("auto", target)
        setting = DraftSetting()
        self.makers: dict[str, Maker] = {
            name: Spec(name).maker(setting, target, models)
            for name in dict.fromkeys(["lookup:5", "suffix", self.auto.split("+")[-1], self.auto])
        }
        self.head = next((name for name in self.makers if name.startswith("head:")), None)

    def ids(self, text: str) -> list[int]:
        """A prompt's token ids."""
        from paceline.text.chat import prompt_ids

        return prompt_ids(self.stage.target.tokenizer, text)

    def builds(self, maker: Any, cached: Any) -> Builds:
        """What makes that drafter over `cached`, at a controller's pace."""
        return lambda controller: maker(1, self.stage.room, cached, controller)

    def adaptive(self, maker: Any, model: Any = None) -> Makes:
        """Makes adaptive windows that know what passes cost and nothing else."""
        from paceline.build.costs import time_rounds
        from paceline.controllers.adaptive import Adaptive
        from paceline.controllers.cost import CostBook

        target = self.stage.target.model if model is None else model
        timed, steps = time_rounds(target, self.stage.vocab, maker.parts, 1, K + 1)
        return lambda: Adaptive(K, CostBook({1: timed}, {1: steps}))

    def turns_of(self, what: str, ways: dict[str, Callable[[], Answer]]) -> dict[str, list[Answer]]:
        """The answers of each way, in turns, once to warm up. PacelineError if they differ."""
        answers: dict[str, list[Answer]] = {name: [] for name in ways}
        names = list(ways)
        for turn in range(self.turns + 1):
            for i in range(len(names)):
                name = names[(i + turn) % len(names)]
                self._progress(turn * len(names) + i + 1, (self.turns + 1) * len(names), what)
                answer = ways[name]()
                if turn:
                    answers[name].append(answer)
        if len({tuple(a.ids) for each in answers.values() for a in each}) > 1:
            raise PacelineError(f"{what}: answers differ, which they must not")
        return answers

    def told_drafter(self, alpha: float, tokens: int) -> tuple[list[int], Any, Maker]:
        """A prompt, a cache, and a drafter that costs what the head does and of which tokens are
        accepted with chance `alpha`."""
        from paceline.build.drafts import Maker
        from paceline.build.heads import load_head
        from paceline.controllers.fixed import Fixed
        from paceline.drafters.head import HeadDrafter
        from paceline.drafters.none import NoDraft

        if self.head is None:
            raise PacelineError("there is no head for this model: nothing to be as dear as")
        stage, ids = self.stage, self.ids(CODE)
        plain = stage.cache("", stage.target.model)
        script = ids + stage.answer(plain, lambda c: NoDraft(), Fixed(0), ids, tokens).ids
        head = load_head(self.head.partition(":")[2], stage.target, stage.models)
        told = Told(head, script, alpha, stage.vocab)

        def make(batch: int, length: int, target: Any, pace: Any = None) -> HeadDrafter:
            return HeadDrafter(target, told, pace=pace(0.0) if pace else None)

        return ids, stage.cache("head", stage.target.model), Maker([make])

    def told(self, alpha: float) -> dict[str, Any]:
        """Such a drafter against plain decoding and, if it is any good, every fixed window."""
        from paceline.controllers.fixed import Fixed

        ids, cached, maker = self.told_drafter(alpha, self.tokens)
        fresh, build = self.adaptive(maker), self.builds(maker, cached)
        run = partial(self.stage.answer, cached, build, ids=ids, tokens=self.tokens)
        ways = {"plain": lambda: run(Fixed(0)), "adaptive": lambda: run(fresh())}
        if alpha:
            ways |= {f"k={k}": lambda k=k: run(Fixed(k)) for k in (1, 2, 4, 6, 8)}
        found = self.turns_of(f"α = {alpha:g}", ways)
        return {"alpha": alpha, "tokens": self.tokens, **speeds(found)}

    def alternating(self) -> dict[str, Any]:
        """A text that is copied from the prompt and unpredictable by turns of SEGMENT tokens,
        against windows that know which is which, all fixed ones and the published rules."""
        from paceline.build.windows import make_window
        from paceline.controllers.fixed import Fixed

        stage = self.stage
        ids, script = alternates(self.ids(EDIT), self.ids(CHAT)[3:-5])
        model = Scripted(stage.target.model, ids + script)
        cached, maker = stage.cache("alternating", model), self.makers[self.auto]
        fresh, build = self.adaptive(maker, model), self.builds(maker, cached)
        run = partial(stage.answer, cached, build, ids=ids, tokens=len(script))

        class Oracle(Fixed):
            def window(self, seqs: Any) -> Sequence[int]:
                copied = (seqs.lengths[0] - len(ids)) // SEGMENT % 2 == 0
                return super().window(seqs) if copied else [0]

        ways: dict[str, Callable[[], Answer]] = {"adaptive": lambda: run(fresh())}
        ways |= {f"oracle k={k}": lambda k=k: run(Oracle(k)) for k in (4, 8)}
        ways |= {f"k={k}": lambda k=k: run(Fixed(k)) for k in (0, 1, 2, 4, 8)}
        rules = ("heuristic", "confidence", "confidence:auto", "adaedl", "svip")
        ways |= {name: lambda name=name: run(make_window(name, K)) for name in rules}
        found = self.turns_of("alternating", ways)
        return {"tokens": len(script), **speeds(found, "k=0")}

    def prompts(self, count: int, tokens: int) -> dict[str, Any]:
        """`auto` under the adaptive window against the best fixed drafter and K of each kind."""
        from paceline.controllers.fixed import Fixed

        stage, kinds = self.stage, {}
        lines = map(json.loads, PROMPTS.read_text(encoding="utf-8").splitlines())
        by_kind: dict[str, list[str]] = {}
        for line in lines:
            by_kind.setdefault(line["kind"], []).append(line["prompt"])
        cached = stage.cache("head", stage.target.model)
        controller = self.adaptive(self.makers[self.auto])()
        for kind, texts in by_kind.items():
            sums: dict[str, list[float]] = {}
            for i, text in enumerate(texts[:count]):
                ids = self.ids(text)
                ways: dict[str, Callable[[], Answer]] = {}
                for name, maker in self.makers.items():
                    run = partial(stage.answer, cached, self.builds(maker, cached), ids=ids,
                                  tokens=tokens)  # fmt: skip
                    if name == self.auto:
                        ways["adaptive"] = lambda run=run: run(controller)
                        ways["plain"] = lambda run=run: run(Fixed(0))
                    for k in (2, 4, 8):
                        ways[f"{name} k={k}"] = lambda run=run, k=k: run(Fixed(k))
                found = self.turns_of(f"{kind} {i + 1}", ways)
                for name, answers in found.items():
                    sums.setdefault(name, []).append(median(a.seconds for a in answers))
            total = {name: sum(each) for name, each in sums.items()}
            best = min((n for n in total if n != "adaptive"), key=lambda n: total[n])
            kinds[kind] = {
                "best": best,
                "adaptive_over_best": total[best] / total["adaptive"],
                "adaptive_over_plain": total["plain"] / total["adaptive"],
                "worst_prompt_over_plain": min(
                    p / a for p, a in zip(sums["plain"], sums["adaptive"], strict=True)
                ),
            }
        least = min(kind["adaptive_over_best"] for kind in kinds.values())
        return {"prompts": count, "tokens": tokens, "kinds": kinds, "adaptive_over_best": least}

    def busy(self, seconds: float = 10.0) -> dict[str, Any]:
        """Another process takes a core and leaves. Tokens a second while it is there, over plain
        decoding's with the same company, and what is drafted before, meanwhile and after."""
        from paceline.controllers.fixed import Fixed

        tokens = 1000
        ids, cached, maker = self.told_drafter(0.7, tokens)
        fresh, build = self.adaptive(maker), self.builds(maker, cached)
        run = partial(self.stage.answer, cached, build, ids=ids)
        shares, shifts = [], []
        for turn in range(self.turns):
            self._progress(turn, self.turns, "a busy neighbour")
            with Neighbour(0.0, seconds):  # there from the start, for both
                slow = run(Fixed(0), tokens=int(seconds * 12))
            window, begin = fresh(), 4.0
            with Neighbour(begin, seconds):
                answer = run(window, tokens=tokens)
            there = [i for i, t in enumerate(answer.at) if begin + 0.5 < t < begin + seconds]
            meanwhile = (len(there) - 1) / (answer.at[there[-1]] - answer.at[there[0]])
            slowly = [t for t in slow.at if 0.5 < t < seconds]
            shares.append(meanwhile / ((len(slowly) - 1) / (slowly[-1] - slowly[0])))
            gone = there[-1] + 1
            before = mean(answer.drafted[there[0] - 60 : there[0] - 10])
            after = mean(answer.drafted[gone + 100 : gone + 200] or [0])
            shifts.append((before, mean(answer.drafted[i] for i in there), after))
        before, meanwhile, after = (median(each) for each in zip(*shifts, strict=True))
        return {
            "over_plain_meanwhile": median(shares),
            "drafted": {"before": before, "meanwhile": meanwhile, "after": after},
        }


def speeds(found: dict[str, list[Answer]], plain: str = "plain") -> dict[str, Any]:
    """Of each way over plain decoding, turn by turn; the median."""

    def over(name: str, base: str) -> float:
        pairs = zip(found[base], found[name], strict=True)
        return median(b.seconds / a.seconds for b, a in pairs)

    speed = {name: over(name, plain) for name in found}
    fixed = [name for name in found if name not in ("adaptive",) and not name.startswith("oracle")]
    best = max(fixed, key=lambda name: speed[name])
    result = {
        "speed": speed,
        "best": best,
        "over_plain": speed["adaptive"],
        "over_best": over("adaptive", best),
    }
    oracles = [name for name in found if name.startswith("oracle")]
    if oracles:
        result["over_oracle"] = over("adaptive", max(oracles, key=lambda name: speed[name]))
    return result


def main(args: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--dtype", default="native")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--max-tokens", type=int, default=512, help="with made-up drafters")
    parser.add_argument("--prompts", type=int, default=3, help="of each kind")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--only", nargs="+", help="sections, by their names in the JSON")
    parser.add_argument("--json", type=Path, help="a file for what is also the last line of output")
    options = parser.parse_args(args)
    with rich_progress(in_bytes=False) as (progress, note):
        bench = Bench(options, progress, note)
        sections: dict[str, Callable[[], dict[str, Any]]] = {
            "random_drafter": lambda: bench.told(0.0),
            "perfect_drafter": lambda: bench.told(1.0),
            "alternating": bench.alternating,
            "auto_vs_best_fixed": lambda: bench.prompts(options.prompts, 96),
            "busy_neighbour": bench.busy,
            "advise_error": lambda: advise_error(options.model, options.dtype),
        }
        result = {}
        for name in options.only or sections:
            result[name] = sections[name]()
            note(f"{name}: {json.dumps(result[name], ensure_ascii=False)}")
    text = json.dumps({"model": options.model, "dtype": options.dtype, **result})
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except PacelineError as error:
        sys.exit(f"bench-window: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
