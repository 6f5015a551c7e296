"""Tasks whose truth is known, or whose prompts are files: the built-in ones, and how to load another."""
