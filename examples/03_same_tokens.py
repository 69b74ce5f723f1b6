"""The same answer with and without speculation, from weights loaded once. Usage: [MODEL]"""

import sys

from paceline import LLM, SamplingParams

quick = LLM(sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m", draft="lookup:3", k=8)
plain = quick.with_draft("none")
params = SamplingParams(max_tokens=128)
prompt = "Repeat this list three times: red, green, blue, cyan, magenta, yellow, black."
before, after = plain.generate(prompt, params), quick.generate(prompt, params)
print("same tokens:", before.token_ids == after.token_ids)
print(f"{before.stats.rounds} target passes without, {after.stats.rounds} with")
