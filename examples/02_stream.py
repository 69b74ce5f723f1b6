"""Tokens as they come, each with its origin. Usage: 02_stream.py [MODEL]"""

import sys
from collections import Counter

from paceline import LLM, SamplingParams

llm = LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m")
stream = llm.stream("Name five rivers.", SamplingParams(max_tokens=96, temperature=0.7, seed=1))
origins: Counter[str] = Counter()
for piece in stream:
    print(piece.text, end="", flush=True)
    origins.update(token.origin for token in piece.tokens)
print("\n", stream.completion.finish_reason, dict(origins))
