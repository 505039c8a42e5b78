"""What was measured and how; `python -m benchmarks.NAME` at the root of the repository runs one of them."""
