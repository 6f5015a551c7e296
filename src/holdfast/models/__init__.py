"""Policy, critic and reward models over transformers, with their codec; `fast` is the packed path."""
