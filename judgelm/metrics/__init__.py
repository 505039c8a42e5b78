"""Metrics for judgments: pure functions of label arrays, independent of files and judges."""
