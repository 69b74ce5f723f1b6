"""What lookup would gain on answers that are known already: no model runs.

Reads JSON lines (also .gz) with `prompt_ids` and `completion_ids`, replays each answer with lookup
and greedy acceptance, and prints τ and the speedup that the given cost of a pass, r(n), implies.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from paceline.core.params import SamplingParams
from paceline.core.sequences import Sequences
from paceline.drafters.lookup import Lookup

COST = (1.0, 1.12, 1.2, 1.3, 1.38, 1.5, 1.65, 1.8, 1.95)  # r(1) … r(9); see `make bench-core`


def replay(prompt: list[int], answer: list[int], lookup: Lookup, k: int) -> tuple[int, float]:
    """Rounds and their cost, in passes over one token."""
    seqs = Sequences(1, len(prompt) + len(answer) + 1)
    seqs.admit(0, prompt, SamplingParams(max_tokens=len(answer)))
    seqs.tokens[0, len(prompt) : len(prompt) + len(answer)] = seqs.tokens.new_tensor(answer)
    end, rounds, cost = len(prompt) + len(answer), 0, 0.0
    while seqs.lengths[0] < end:
        draft = lookup.propose(seqs, [k])
        start, n = seqs.lengths[0], 0
        while n < draft.lengths[0] and start + n < end:
            if draft.tokens[0, n] != seqs.tokens[0, start + n]:
                break
            n += 1
        seqs.lengths[0] = min(end, start + n + 1)
        rounds, cost = rounds + 1, cost + COST[draft.lengths[0]]
    return rounds, cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--longest", type=int, nargs="*", default=[3, 5])
    parser.add_argument("--k", type=int, nargs="*", default=[2, 4, 6, 8])
    options = parser.parse_args()
    opener = gzip.open if options.answers.suffix == ".gz" else open
    with opener(options.answers, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    tokens = sum(len(row["completion_ids"]) for row in rows)
    results = []
    for longest in options.longest:
        for k in options.k:
            pairs = [
                replay(row["prompt_ids"], row["completion_ids"], Lookup(longest), k) for row in rows
            ]
            tau = tokens / sum(rounds for rounds, _ in pairs)
            gain = tokens / sum(cost for _, cost in pairs)
            results.append({"longest": longest, "k": k, "tau": tau, "speedup": gain})
            print(f"lookup:{longest} K={k}: τ {tau:.2f}, speedup {gain:.2f}x", flush=True)
    print(json.dumps({"answers": len(rows), "tokens": tokens, "results": results}))


if __name__ == "__main__":
    main()
