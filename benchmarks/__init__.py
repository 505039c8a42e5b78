"""Measurements; run one with `python -m benchmarks.NAME` in the repository root."""
