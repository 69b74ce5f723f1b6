"""The card of a trained drafter: what it is for, what it was trained on, how good it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.distill.data import Answer
from paceline.distill.teacher import Teacher


@dataclass(frozen=True)
class Data:
    """The make-up of what a drafter was trained and measured on."""

    train: Sequence[Answer]
    held: Sequence[Answer]

    def to_dict(self) -> dict[str, Any]:
        """Prompts, answers and answer tokens of both parts, and answers by temperature."""
        parts = {"train": self.train, "held_out": self.held}
        return {name: _make_up(answers) for name, answers in parts.items()}


def _make_up(answers: Sequence[Answer]) -> dict[str, Any]:
    warm = Counter(f"{answer.temperature:g}" for answer in answers)
    return {
        "prompts": len({answer.prompt for answer in answers}),
        "answers": len(answers),
        "tokens": sum(len(answer.completion_ids) for answer in answers),
        "by_temperature": dict(sorted(warm.items())),
    }


def card(
    kind: str, teacher: Teacher, data: Data, line: dict[str, Any], trained: int, command: str
) -> str:
    """The text of README.md. `line`: the evaluation of the weights that were kept; `trained`: on
    how many tokens, repeats counted, the whole run trained."""
    make_up = data.to_dict()
    word = "model" if kind == "model" else "head"
    rows = "\n".join(f"| {name} | {_row(part)} |" for name, part in make_up.items())
    alphas = " | ".join(f"{alpha:.3f}" for alpha in line["alpha_at"])
    numbers = " | ".join(str(i + 1) for i in range(len(line["alpha_at"])))
    ruler = "---|" * (len(line["alpha_at"]) + 1)
    return f"""# A draft {word} for {teacher.name}

Made by `paceline distill` for speculative decoding with Paceline; it drafts, the target decides, so
the output is the target's own. Kind: {kind}.

- target: `{teacher.name}`, fingerprint `{teacher.fingerprint}`
- made with: `{command}`
- use: `paceline generate "…" --model {teacher.name} --draft {word}:FOLDER`

## Data

The target's own answers, sampled on this machine or given. One prompt in ten is held out.

| | prompts | answers | tokens | answers by temperature |
|---|---|---|---|---|
{rows}

Trained on {trained:,} tokens, repeats counted; the weights kept are those after {line["tokens"]:,}
({line["weights"]}).

## Held out

Of {line["anchors"]:,} positions, by drafted token (accepted, if all before it were):

| position | {numbers} |
|{ruler}
| α | {alphas} |

τ at K = {len(line["alpha_at"])}, greedy, predicted from these: {line["tau"]:.2f} tokens a round.
"""


def _row(part: dict[str, Any]) -> str:
    warm = ", ".join(f"{count} at T = {t}" for t, count in part["by_temperature"].items())
    return f"{part['prompts']} | {part['answers']} | {part['tokens']:,} | {warm}"
