"""The HTML report of a run, and that of a pipeline."""
