"""Prompts, preferences and demonstrations from files: sources, forms, splits, and the check before a run."""
