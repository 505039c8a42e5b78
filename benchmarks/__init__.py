"""Measurements; `python -m benchmarks.NAME` at the root of the repository runs one of them."""
