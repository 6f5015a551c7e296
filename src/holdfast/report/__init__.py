"""The HTML report of a run, and the chart maker that the docs share with it."""
