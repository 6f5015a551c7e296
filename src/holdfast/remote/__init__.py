"""Servers that are asked over HTTP: the judge's, vLLM's, a reward service's."""
