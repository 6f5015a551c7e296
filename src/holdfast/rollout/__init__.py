"""Answers from a policy: the sampler, here or on a vLLM server, and the batches that it works in."""
