"""Scores of a run by the benchmark's own metric."""
