"""Plain against speculative decoding, prompt by prompt: suites, measuring, records, comparing."""
