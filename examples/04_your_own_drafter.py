"""A drafter in ten lines: any function of the committed tokens. Usage: [MODEL]

It guesses that the text goes on as it did after the last line break. Wrong guesses cost a little
time and never change the output.
"""

import sys

import torch

from paceline import LLM, SamplingParams
from paceline.controllers.fixed import Fixed
from paceline.core.types import Draft
from paceline.text.llm import Generator, Parts
from paceline.verifiers.rejection import Rejection

llm = LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m", draft="none")
newline = llm.tokenizer.encode("\n")[-1]


class AfterNewline:
    def propose(self, seqs, k):
        rows = []
        for b in range(seqs.batch):
            ids = seqs.committed(b).tolist()
            place = len(ids) - 1 - ids[::-1].index(newline) if newline in ids else len(ids)
            rows.append(ids[place + 1 : place + 1 + k[b]] if seqs.running[b] else [])
        width = max(map(len, rows))
        tokens = [row + [0] * (width - len(row)) for row in rows]
        return Draft(torch.tensor(tokens, dtype=torch.int64), [len(row) for row in rows])


own = Parts(llm.model, llm.tokenizer, lambda b, n, target: AfterNewline(), Rejection(), Fixed(4))
out = Generator(own).generate("List ten fruits, one per line.", SamplingParams(max_tokens=96))
print(out.text, out.stats.accepted, "of", out.stats.drafted, "drafted tokens accepted")
