"""Score a run with the benchmark's own metric."""
