"""Benchmarks of the source checkout, apart from the package: `python -m benchmarks KIND`."""
