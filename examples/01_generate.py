"""One prompt, with the figures that show the gain. Usage: 01_generate.py [MODEL]"""

import sys

from paceline import LLM, SamplingParams

llm = LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m", draft="lookup")
out = llm.generate("Write the numbers from 1 to 20, then again.", SamplingParams(max_tokens=128))
print(out.text)
print(f"{out.stats.tokens_per_second:.1f} tokens/s, {out.stats.tau:.2f} tokens per target pass")
